#include "agent/tools/ckpt_transfer.h"

static const char page[] =
	"muster ckpt pull — copy checkpoints from an object store\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt pull s3://BUCKET/PREFIX DIR [--all] [--limit N] [--replace] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Copies a checkpoint from an object store into DIR, a folder of checkpoints, which is\n"
	"  made if it does not exist.\n"
	"\n" TOOL_CKPT_TRANSFER_PAGE "\n"
	"EXAMPLES\n"
	"  muster ckpt pull s3://models/demo/step-00000400 runs/demo/ckpt\n"
	"\n"
	"EXIT STATUS\n"
	"  0  copied, or it was there already\n"
	"  1  the checkpoint is damaged, or the store failed\n"
	"  2  usage, or DIR has another checkpoint of this step\n";

static int pull_main(int argc, char **argv)
{
	return tool_ckpt_transfer(&tool_ckpt_pull, argc, argv, 0);
}

const struct tool tool_ckpt_pull = { "ckpt", "pull", pull_main,
				     "copy checkpoints from an object store", page };
