#include "agent/tools/ckpt_transfer.h"

static const char page[] =
	"muster ckpt push — copy checkpoints to an object store\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt push DIR s3://BUCKET/PREFIX [--all] [--limit N] [--replace] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Copies a checkpoint of DIR, which is a run's folder, its ckpt folder or a checkpoint,\n"
	"  to an object store. `muster ckpt ls`, `show` and `verify` read it there, a job resumes\n"
	"  from it (checkpoint.resume = s3://BUCKET/PREFIX/step-00000400), and `muster ckpt pull`\n"
	"  copies it back.\n"
	"\n" TOOL_CKPT_TRANSFER_PAGE "\n"
	"EXAMPLES\n"
	"  muster ckpt push runs/demo s3://models/demo --limit 200\n"
	"\n"
	"EXIT STATUS\n"
	"  0  copied, or it was there already\n"
	"  1  the checkpoint is damaged, or the store failed\n"
	"  2  usage, or the store has another checkpoint of this step\n";

static int push_main(int argc, char **argv)
{
	return tool_ckpt_transfer(&tool_ckpt_push, argc, argv, 1);
}

const struct tool tool_ckpt_push = { "ckpt", "push", push_main,
				     "copy checkpoints to an object store", page };
