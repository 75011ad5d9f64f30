#include "agent/engine/ckpt/places/repair.h"
#include "agent/tools/ckpt_dir.h"
#include "agent/tools/tools.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const char page[] =
	"muster ckpt repair — repair a damaged checkpoint from another copy\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt repair BAD --from GOOD [--dry-run] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Reads every slice of BAD, and fetches those that are missing or damaged from GOOD, a\n"
	"  checkpoint of the same state: of the same step, model and state digest, in another\n"
	"  folder or storage, and of any layout. Each byte of the result is compared with the\n"
	"  digests in BAD's manifest, which must be intact. GOOD needs to be intact only where "
	"BAD\n"
	"  is not.\n"
	"\n"
	"  Nothing is changed in place: the result is written as a new checkpoint and published\n"
	"  as step-N when it is complete. BAD is kept as damaged-step-N.NONCE; remove it when you\n"
	"  do not need it. If another program copied it to an object store, it stays below\n"
	"  step-N/ there, where nothing reads it. BAD is a checkpoint; it may have the prefix "
	"damaged-, which a run "
	"gives\n"
	"  to a checkpoint that it could not read. GOOD is a checkpoint, or a run's folder or a\n"
	"  folder of checkpoints; then its last valid checkpoint is used.\n"
	"\n"
	"OPTIONS\n"
	"  --from GOOD   the other copy\n"
	"  --dry-run     report what is damaged, and write nothing\n"
	"  --json        print as JSON: {path, step, whole, kept: where BAD is now or null,\n"
	"                slices, fetched, headers, attached, strangers: files that the manifest\n"
	"                does not list}\n"
	"\n"
	"EXAMPLES\n"
	"  muster ckpt repair runs/a/ckpt/step-00000400 --from /backup/a/step-00000400\n"
	"\n"
	"EXIT STATUS\n"
	"  0  repaired, or BAD is whole\n"
	"  1  it cannot be repaired, or with --dry-run: it is damaged\n"
	"  2  usage, or GOOD is not a copy of the same state\n";

static int print_json(const struct ckpt_repair *r)
{
	return tool_print_json(
		&tool_ckpt_repair,
		json_pack("{s:s, s:I, s:b, s:s?, s:I, s:I, s:I, s:I, s:I}", "path", r->path, "step",
			  (json_int_t)r->step, "whole", r->whole, "kept",
			  r->kept[0] ? r->kept : NULL, "slices", (json_int_t)r->slices, "fetched",
			  (json_int_t)r->fetched, "headers", (json_int_t)r->headers, "attached",
			  (json_int_t)r->attached, "strangers", (json_int_t)r->strangers));
}

static int print_text(const struct ckpt_repair *r, const char *bad, bool dry)
{
	if (r->whole) {
		printf("%s: whole, nothing to repair\n", bad);
		return TOOL_OK;
	}
	printf("%s: %" PRId64 " of %" PRId64 " slices, %" PRId64 " headers and %" PRId64
	       " attached files damaged, %" PRId64 " files too many\n",
	       bad, r->fetched, r->slices, r->headers, r->attached, r->strangers);
	if (!dry && strcmp(r->kept, r->path))
		printf("repaired: %s; the damaged one is kept as %s\n", r->path, r->kept);
	else if (!dry)
		printf("repaired: %s\n", r->path);
	return TOOL_OK;
}

/* Resolves the path of one checkpoint, which may be damaged. */
static int bad_path(const char *word, char path[PATH_MAX], struct err *e)
{
	struct ckpt_dir d;
	if (tool_ckpt_dir_open(word, &d, e))
		return -1;
	int rc = d.one ? 0
		       : err_set(e, ERR_USAGE,
				 "%s is not a checkpoint; name the one that is damaged", word);
	if (!rc)
		tool_ckpt_dir_path(&d, 0, path);
	tool_ckpt_dir_close(&d);
	return rc;
}

static int good_path(const char *word, char path[PATH_MAX], struct err *e)
{
	struct ckpt_dir d;
	struct manifest m;
	if (tool_ckpt_dir_open(word, &d, e))
		return -1;
	int rc = tool_ckpt_dir_choose(&d, path, &m, e);
	tool_ckpt_dir_close(&d);
	if (!rc)
		ckpt_manifest_fini(&m);
	return rc;
}

static int repair(const char *bad_word, const char *good_word, bool dry, bool json)
{
	static struct ckpt_repair r; /* these are too large for a small stack */
	struct err e = ERR_INIT;
	static char bad[PATH_MAX], good[PATH_MAX];
	if (bad_path(bad_word, bad, &e) || good_path(good_word, good, &e) ||
	    ckpt_repair(bad, good, dry, &r, &e))
		return tool_fail(&tool_ckpt_repair, &e);
	int rc = json ? print_json(&r) : print_text(&r, bad, dry);
	return rc == TOOL_OK && dry && !r.whole ? TOOL_FAILED : rc;
}

static int repair_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "from", required_argument, NULL, 'f' },
		{ "dry-run", no_argument, NULL, 'n' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, TOOL_HELP },
		{ 0 },
	};
	const char *from = NULL;
	bool dry = false, json = false;
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		switch (c) {
		case 'f':
			from = optarg;
			break;
		case 'n':
			dry = true;
			break;
		case 'j':
			json = true;
			break;
		default:
			return tool_option(&tool_ckpt_repair, c, argv);
		}
	}
	if (argc - optind != 1)
		return tool_usage(&tool_ckpt_repair, "one BAD is needed");
	if (!from)
		return tool_usage(&tool_ckpt_repair, "--from GOOD is missing");
	return repair(argv[optind], from, dry, json);
}

const struct tool tool_ckpt_repair = { "ckpt", "repair", repair_main,
				       "repair a damaged checkpoint from another copy", page };
