#include "agent/engine/ckpt/places/hold.h"
#include "agent/tools/ckpt_dir.h"
#include "agent/tools/tools.h"
#include "base/human.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
	"muster ckpt prune — remove old checkpoints\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt prune DIR --keep N [--keep-every M] [--dry-run] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Keeps the last N valid checkpoints of a folder, and removes older ones, valid or\n"
	"  damaged. DIR is a run's folder, its ckpt folder, or any DIR of checkpoints, such as\n"
	"  s3://bucket/prefix. It never removes\n"
	"    - the last valid checkpoint, and whatever is newer\n"
	"    - a checkpoint that a program of muster is reading or copying (not in s3://)\n"
	"    - an attempt that is being written\n"
	"    - in a run's folder or its ckpt folder: a checkpoint that is still to be copied to\n"
	"      the run's checkpoint.remote\n"
	"  A checkpoint's manifest is removed first, so that no reader takes the rest for one.\n"
	"\n"
	"OPTIONS\n"
	"  --keep N        how many valid checkpoints to keep, 1 or more\n"
	"  --keep-every M  keep all valid checkpoints whose step is a multiple of M, too\n"
	"  --dry-run       print what would be removed, and remove nothing\n"
	"  --json          print as JSON: {dir, dry_run, checkpoints: [{step, path, verdict:\n"
	"                  \"kept\", \"in use\" or \"removed\", why, bytes}], freed: bytes}\n"
	"\n"
	"EXAMPLES\n"
	"  muster ckpt prune runs/demo --keep 3 --keep-every 1000 --dry-run\n"
	"\n"
	"EXIT STATUS\n"
	"  0  pruned\n"
	"  1  there is no checkpoint, or one could not be removed\n"
	"  2  usage\n";

struct rules {
	int64_t keep, every; /* every: 0: none */
	bool dry, json;
	/* steps that the run is still to copy to its checkpoint.remote */
	int64_t *needs, n_needs;
};

/* What is known of an entry, and what happens to it. */
struct verdict {
	bool remove;
	bool valid;
	const char *why;
	int64_t bytes;
};

static bool read_entry(const struct ckpt_dir *d, int64_t i, int64_t *bytes)
{
	struct manifest m;
	*bytes = 0;
	if (ckpt_folder_check(ckpt_storage_of(d->dir), d->dir, &d->list[i], &m, NULL))
		return false;
	*bytes = ckpt_manifest_bytes(&m);
	ckpt_manifest_fini(&m);
	return true;
}

static bool awaits_copy(const struct rules *r, int64_t step)
{
	for (int64_t i = 0; i < r->n_needs; i++)
		if (r->needs[i] == step)
			return true;
	return false;
}

/* kept: how many valid checkpoints of higher steps are kept for being the last ones; last: the step
 * of the one before, -1: none. */
static struct verdict judge(const struct ckpt_dir *d, int64_t i, int64_t kept, int64_t last,
			    const struct rules *r)
{
	struct verdict v = { 0 };
	int64_t step = d->list[i].step;
	v.valid = read_entry(d, i, &v.bytes);
	if (v.valid && step == last) {
		v.remove = true;
		v.why = "another checkpoint of this step replaced it";
	} else if (v.valid && kept < r->keep) {
		v.why = "one of the last";
	} else if (v.valid && r->every && step % r->every == 0) {
		v.why = "its step is a multiple";
	} else if (v.valid && awaits_copy(r, step)) {
		v.why = "not copied to checkpoint.remote yet";
	} else if (kept < r->keep) {
		v.why = "damaged, but newer than those that are kept";
	} else {
		v.remove = true;
		v.why = v.valid ? "old" : "damaged";
	}
	return v;
}

/* Removes the entry unless somebody reads it. Sets the word for what happened. */
static int carry_out(const struct ckpt_dir *d, int64_t i, const struct verdict *v, bool dry,
		     const char **word, struct err *e)
{
	char path[PATH_MAX];
	struct ckpt_hold hold = { -1 };
	const struct ckpt_storage *s = ckpt_storage_of(d->dir);
	int rc = 0;
	*word = "kept";
	if (!v->remove)
		return 0;
	tool_ckpt_dir_path(d, i, path);
	if (!ckpt_hold_take(&hold, path, CKPT_HOLD_REMOVE)) {
		*word = "in use";
		return 0;
	}
	if (!dry)
		rc = s->ops->remove(s, path, e);
	ckpt_hold_release(&hold);
	*word = rc ? "kept" : "removed";
	return rc;
}

static void put(const struct ckpt_dir *d, int64_t i, const struct verdict *v, const char *word,
		const struct rules *r, json_t *list)
{
	char path[PATH_MAX], bytes[HUMAN];
	tool_ckpt_dir_path(d, i, path);
	json_array_append_new(list, json_pack("{s:I, s:s, s:s, s:s, s:I}", "step",
					      (json_int_t)d->list[i].step, "path", path, "verdict",
					      word, "why", v->why, "bytes", (json_int_t)v->bytes));
	if (!r->json)
		printf("%-8s %s  %s (%s)\n", r->dry && !strcmp(word, "removed") ? "would go" : word,
		       path, human_bytes((double)v->bytes, bytes), v->why);
}

static int prune_list(const struct ckpt_dir *d, const struct rules *r)
{
	json_t *list = json_array();
	int64_t kept = 0, last = -1, freed = 0;
	int rc = TOOL_OK;
	for (int64_t i = 0; i < d->n; i++) {
		struct err e = ERR_INIT;
		const char *word;
		struct verdict v = judge(d, i, kept, last, r);
		if (carry_out(d, i, &v, r->dry, &word, &e))
			rc = tool_fail(&tool_ckpt_prune, &e);
		if (!strcmp(word, "removed"))
			freed += v.bytes;
		if (v.valid && !v.remove) {
			kept++;
			last = d->list[i].step;
		}
		put(d, i, &v, word, r, list);
	}
	char text[HUMAN];
	if (!r->json)
		printf("%s%s\n", human_bytes((double)freed, text),
		       r->dry ? " would be freed" : " freed");
	else if (tool_print_json(&tool_ckpt_prune,
				 json_pack("{s:s, s:b, s:O, s:I}", "dir", d->dir, "dry_run", r->dry,
					   "checkpoints", list, "freed", (json_int_t)freed)))
		rc = TOOL_FAILED;
	json_decref(list);
	return rc;
}

static int prune(const char *word, const struct rules *r)
{
	struct err e = ERR_INIT;
	struct ckpt_dir d;
	struct rules with = *r;
	if (tool_ckpt_dir_open(word, &d, &e))
		return tool_fail(&tool_ckpt_prune, &e);
	int rc;
	if (d.uploads && ckpt_upload_needs(ckpt_storage_of(d.dir), d.dir, &d.rules, &with.needs,
					   &with.n_needs, &e)) {
		tool_ckpt_dir_close(&d);
		return tool_fail(&tool_ckpt_prune, &e);
	}
	if (d.one)
		rc = tool_usage(&tool_ckpt_prune, "%s is a checkpoint; name its folder", word);
	else if (d.n == 0)
		rc = tool_fail(&tool_ckpt_prune,
			       (err_set(&e, ERR_NOTFOUND, "%s: no checkpoints", d.dir), &e));
	else
		rc = prune_list(&d, &with);
	free(with.needs);
	tool_ckpt_dir_close(&d);
	return rc;
}

/* A whole number of at least 1; 0: it is none. */
static int64_t parse_count(const char *text)
{
	char *end;
	errno = 0;
	long long n = isdigit((unsigned char)*text) ? strtoll(text, &end, 10) : 0;
	return n > 0 && !errno && !*end ? n : 0;
}

static int prune_main(int argc, char **argv)
{
	/* clang-format off */
	static const struct option options[] = {
		{ "keep", required_argument, NULL, 'k' }, { "keep-every", required_argument, NULL, 'e' },
		{ "dry-run", no_argument, NULL, 'n' }, { "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	/* clang-format on */
	struct rules r = { 0 };
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		switch (c) {
		case 'k':
		case 'e':
			*(c == 'k' ? &r.keep : &r.every) = parse_count(optarg);
			if (!parse_count(optarg))
				return tool_usage(&tool_ckpt_prune,
						  "%s %s is not a whole number of 1 or more",
						  c == 'k' ? "--keep" : "--keep-every", optarg);
			break;
		case 'n':
			r.dry = true;
			break;
		case 'j':
			r.json = true;
			break;
		default:
			return tool_option(&tool_ckpt_prune, c, argv);
		}
	}
	if (argc - optind != 1)
		return tool_usage(&tool_ckpt_prune, "one DIR is needed");
	if (!r.keep)
		return tool_usage(&tool_ckpt_prune, "--keep N is missing");
	return prune(argv[optind], &r);
}

const struct tool tool_ckpt_prune = { "ckpt", "prune", prune_main, "remove old checkpoints", page };
