#include "agent/engine/ckpt/places/copy.h"
#include "agent/tools/ckpt_dir.h"
#include "agent/tools/tools.h"
#include "base/human.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>

static const char page[] =
	"muster ckpt copy — copy a checkpoint to another folder or storage\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt copy FROM TO [--replace] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Copies a checkpoint into TO, a folder of checkpoints or a DIR in another storage such\n"
	"  as s3://bucket/prefix, which is made if it does not exist. FROM is a checkpoint, or a\n"
	"  run's folder or a folder of checkpoints; then its last valid checkpoint is copied.\n"
	"\n"
	"  Every byte is compared with the digests of the manifest on its way, so a damaged\n"
	"  checkpoint is never copied. The copy appears when it is complete. A copy that was\n"
	"  interrupted continues where it was when it is started again.\n"
	"\n"
	"OPTIONS\n"
	"  --replace     replace another checkpoint of this step in TO\n"
	"  --json        print as JSON: {path, step, files, bytes, sent: bytes copied now, "
	"reused:\n"
	"                files that were there already, there_already, seconds}\n"
	"\n"
	"EXAMPLES\n"
	"  muster ckpt copy runs/demo /backup/demo\n"
	"\n"
	"EXIT STATUS\n"
	"  0  copied, or TO has it already\n"
	"  1  FROM is damaged, or TO cannot be written\n"
	"  2  usage, or TO has another checkpoint of this step\n";

static int print_json(const struct ckpt_copy_result *r)
{
	return tool_print_json(&tool_ckpt_copy,
			       json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:f}", "path",
					 r->path, "step", (json_int_t)r->step, "files",
					 (json_int_t)r->files, "bytes", (json_int_t)r->bytes,
					 "sent", (json_int_t)r->sent, "reused",
					 (json_int_t)r->reused, "there_already", r->there_already,
					 "seconds", r->seconds));
}

static int print_text(const struct ckpt_copy_result *r)
{
	char bytes[HUMAN], speed[HUMAN];
	if (r->there_already)
		printf("%s: is there already\n", r->path);
	else
		printf("%s: %s in %" PRId64 " file%s, %s/s\n", r->path,
		       human_bytes((double)r->sent, bytes), r->files, human_s(r->files),
		       human_bytes(r->seconds > 0 ? (double)r->sent / r->seconds : 0, speed));
	return TOOL_OK;
}

static int copy(const char *from, const char *to, bool replace, bool json)
{
	static struct ckpt_copy_result r; /* too large for a small stack, with the path */
	struct err e = ERR_INIT;
	struct ckpt_dir d;
	struct manifest m;
	char path[PATH_MAX];
	const struct ckpt_copy_options opt = { .replace = replace, .result = &r };
	if (tool_ckpt_dir_check_target(to, &e) || tool_ckpt_dir_open(from, &d, &e))
		return tool_fail(&tool_ckpt_copy, &e);
	int rc = tool_ckpt_dir_choose(&d, path, &m, &e);
	tool_ckpt_dir_close(&d);
	if (rc)
		return tool_fail(&tool_ckpt_copy, &e);
	ckpt_manifest_fini(&m);
	if (ckpt_copy(path, to, &opt, &e))
		return tool_fail(&tool_ckpt_copy, &e);
	return json ? print_json(&r) : print_text(&r);
}

static int copy_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "replace", no_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, TOOL_HELP },
		{ 0 },
	};
	bool replace = false, json = false;
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		switch (c) {
		case 'r':
			replace = true;
			break;
		case 'j':
			json = true;
			break;
		default:
			return tool_option(&tool_ckpt_copy, c, argv);
		}
	}
	if (argc - optind != 2)
		return tool_usage(&tool_ckpt_copy, "FROM and TO are needed");
	return copy(argv[optind], argv[optind + 1], replace, json);
}

const struct tool tool_ckpt_copy = { "ckpt", "copy", copy_main,
				     "copy a checkpoint to another folder or storage", page };
