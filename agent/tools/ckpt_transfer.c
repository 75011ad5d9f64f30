#include "agent/tools/ckpt_transfer.h"

#include "agent/engine/ckpt/places/copy.h"
#include "agent/tools/ckpt_dir.h"
#include "base/human.h"
#include "plan/spec/job/job.h"

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

struct transfer {
	const struct tool *tool;
	const char *from, *to;
	struct ckpt_copy_options opt;
	struct ckpt_copy_result result;
	bool all, json;
	json_t *done;
};

static void report(struct transfer *t)
{
	const struct ckpt_copy_result *r = &t->result;
	char bytes[HUMAN], speed[HUMAN];
	json_array_append_new(t->done,
			      json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:b, s:f}", "path", r->path,
					"step", (json_int_t)r->step, "bytes", (json_int_t)r->bytes,
					"files", (json_int_t)r->files, "sent", (json_int_t)r->sent,
					"reused", (json_int_t)r->reused, "there_already",
					r->there_already, "seconds", r->seconds));
	if (t->json)
		return;
	if (r->there_already)
		printf("%s: is there already\n", r->path);
	else
		printf("%s: %s in %" PRId64 " file%s, %" PRId64 " of them there already, %s/s\n",
		       r->path, human_bytes((double)r->bytes, bytes), r->files, human_s(r->files),
		       r->reused,
		       human_bytes(r->seconds > 0 ? (double)r->sent / r->seconds : 0, speed));
	fflush(stdout);
}

static int copy_one(struct transfer *t, const char *path, struct err *e)
{
	if (ckpt_copy(path, t->to, &t->opt, e))
		return -1;
	report(t);
	return 0;
}

/* All valid checkpoints; those that are damaged are skipped with a line. */
static int copy_all(struct transfer *t, const struct ckpt_dir *d, struct err *e)
{
	int64_t copied = 0;
	for (int64_t i = 0; i < d->n; i++) {
		struct err why = ERR_INIT;
		struct manifest m;
		char path[PATH_MAX];
		tool_ckpt_dir_path(d, i, path);
		if (ckpt_folder_check(ckpt_storage_of(d->dir), d->dir, &d->list[i], &m, &why)) {
			fprintf(stderr, "muster ckpt %s: skipped: %s\n", t->tool->name, why.text);
			continue;
		}
		ckpt_manifest_fini(&m);
		if (copy_one(t, path, e))
			return -1;
		copied++;
	}
	return copied ? 0 : err_set(e, ERR_NOTFOUND, "%s: no valid checkpoints", d->dir);
}

static int copy_chosen(struct transfer *t, const struct ckpt_dir *d, struct err *e)
{
	char path[PATH_MAX];
	struct manifest m;
	if (tool_ckpt_dir_choose(d, path, &m, e))
		return -1;
	ckpt_manifest_fini(&m);
	return copy_one(t, path, e);
}

static int run(struct transfer *t)
{
	struct err e = ERR_INIT;
	struct ckpt_dir d;
	if (tool_ckpt_dir_check_target(t->to, &e) || tool_ckpt_dir_open(t->from, &d, &e))
		return tool_fail(t->tool, &e);
	t->done = json_array();
	int rc = t->all ? copy_all(t, &d, &e) : copy_chosen(t, &d, &e);
	tool_ckpt_dir_close(&d);
	int status = rc ? tool_fail(t->tool, &e) : TOOL_OK;
	if (t->json && !rc)
		status = tool_print_json(t->tool, json_pack("{s:O}", "checkpoints", t->done));
	json_decref(t->done);
	return status;
}

static int parse_limit(const char *text, int64_t *out)
{
	char *end;
	double megabytes = strtod(text, &end);
	if (end == text || *end || !(megabytes > 0) || megabytes > 1e9)
		return -1;
	*out = (int64_t)(megabytes * 1e6) + 1;
	return 0;
}

int tool_ckpt_transfer(const struct tool *t, int argc, char **argv, int remote)
{
	static const struct option options[] = {
		{ "all", no_argument, NULL, 'a' },        { "limit", required_argument, NULL, 'l' },
		{ "replace", no_argument, NULL, 'r' },    { "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, TOOL_HELP }, { 0 },
	};
	static struct transfer s; /* too large for a small stack, with the paths */
	s = (struct transfer){ .tool = t, .opt = { .result = &s.result } };
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		if (c == 'a')
			s.all = true;
		else if (c == 'r')
			s.opt.replace = true;
		else if (c == 'j')
			s.json = true;
		else if (c != 'l')
			return tool_option(t, c, argv);
		else if (parse_limit(optarg, &s.opt.bytes_per_s))
			return tool_usage(t, "--limit %s: not a number of megabytes per second",
					  optarg);
	}
	if (argc - optind != 2)
		return tool_usage(t, "two places are needed, from and to");
	s.from = argv[optind];
	s.to = argv[optind + 1];
	if (!job_path_is_address(argv[optind + remote]))
		return tool_usage(t, "%s is no address such as s3://bucket/prefix",
				  argv[optind + remote]);
	return run(&s);
}
