#include "agent/tools/ckpt_dir.h"
#include "agent/tools/tools.h"
#include "base/human.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char page[] =
	"muster ckpt ls — list the checkpoints of a run\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt ls DIR [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Lists the checkpoints, the last step first. DIR is a run's folder, its ckpt folder,\n"
	"  s3://BUCKET/PREFIX, or a checkpoint. It checks the manifests and the sizes of the "
	"files; `muster ckpt verify`\n"
	"  reads everything.\n"
	"\n"
	"  For a run's folder, the tiers of the run follow each other: dir, then local (the part "
	"on\n"
	"  this node), then remote.\n"
	"\n"
	"OPTIONS\n"
	"  --json        print as JSON: {dir, checkpoints: [{tier, step, path, valid, samples,\n"
	"                total_steps, generation, bytes, files, layout} or {tier, step, path,\n"
	"                valid: false, error}]}; with tier local also files_here\n"
	"\n"
	"EXAMPLES\n"
	"  muster ckpt ls runs/demo\n"
	"\n"
	"EXIT STATUS\n"
	"  0  listed, also if checkpoints are damaged or there are none\n"
	"  1  DIR cannot be read\n"
	"  2  usage\n";

static json_t *describe_valid(const struct manifest *m, const char *path)
{
	return json_pack("{s:I, s:s, s:b, s:I, s:I, s:I, s:I, s:I, s:O}", "step",
			 (json_int_t)m->state.step, "path", path, "valid", 1, "samples",
			 (json_int_t)m->state.samples, "total_steps",
			 (json_int_t)m->state.total_steps, "generation", (json_int_t)m->generation,
			 "bytes", (json_int_t)ckpt_manifest_bytes(m), "files",
			 (json_int_t)m->n_files, "layout", m->layout);
}

/* How many of the shards this node has. */
static int64_t count_here(const struct ckpt_storage *s, const char *path, const struct manifest *m)
{
	int64_t here = 0, size;
	for (int64_t i = 0; i < m->n_files; i++) {
		char file[PATH_MAX];
		here += !ckpt_storage_join(file, sizeof file, path, m->files[i].name, NULL) &&
			!s->ops->size(s, file, &size, NULL) && size == m->files[i].size;
	}
	return here;
}

static json_t *describe(const struct ckpt_dir *d, int64_t i, const char *tier)
{
	struct err e = ERR_INIT;
	struct manifest m;
	char path[PATH_MAX];
	const struct ckpt_storage *s = ckpt_storage_of(d->dir);
	bool local = !strcmp(tier, "local");
	json_t *v;
	tool_ckpt_dir_path(d, i, path);
	if (local ? ckpt_manifest_load_from(s, path, &m, &e)
		  : ckpt_folder_check(s, d->dir, &d->list[i], &m, &e)) {
		v = json_pack("{s:I, s:s, s:b, s:s}", "step", (json_int_t)d->list[i].step, "path",
			      path, "valid", 0, "error", e.text);
	} else {
		v = describe_valid(&m, path);
		if (local)
			json_object_set_new(v, "files_here", json_integer(count_here(s, path, &m)));
		ckpt_manifest_fini(&m);
	}
	json_object_set_new(v, "tier", json_string(tier));
	return v;
}

static json_int_t number(const json_t *v, const char *key)
{
	return json_integer_value(json_object_get(v, key));
}

static void print_row(const json_t *v)
{
	const char *path = json_string_value(json_object_get(v, "path"));
	const json_t *here = json_object_get(v, "files_here");
	printf("%-6s  ", json_string_value(json_object_get(v, "tier")));
	if (!json_is_true(json_object_get(v, "valid"))) {
		printf("%10lld  damaged: %s\n", (long long)number(v, "step"),
		       json_string_value(json_object_get(v, "error")));
		return;
	}
	char bytes[HUMAN];
	long long files = (long long)number(v, "files");
	printf("%10lld  %12lld samples  %9s in %lld file%s  ", (long long)number(v, "step"),
	       (long long)number(v, "samples"), human_bytes((double)number(v, "bytes"), bytes),
	       files, human_s(files));
	if (here && json_integer_value(here) < files)
		printf("(%lld on this node)  ", (long long)json_integer_value(here));
	tool_print_layout(json_object_get(v, "layout"));
	printf("  %s\n", path);
}

/* Adds the checkpoints of another tier of the run. A place that cannot be read is named, and the
 * others are listed all the same. */
static void add_tier(const char *tier, const char *dir, json_t *all)
{
	struct ckpt_dir d = { .n = 0 };
	struct err e = ERR_INIT;
	if (!*dir)
		return;
	snprintf(d.dir, sizeof d.dir, "%s", dir);
	if (ckpt_folder_list(ckpt_storage_of(dir), dir, &d.list, &d.n, &e))
		fprintf(stderr, "muster ckpt ls: checkpoint.%s: %s\n", tier, e.text);
	for (int64_t k = 0; k < d.n; k++)
		json_array_append_new(all, describe(&d, k, tier));
	tool_ckpt_dir_close(&d);
}

static void add_tiers(const char *path, json_t *all)
{
	char local[PATH_MAX], remote[PATH_MAX];
	if (tool_ckpt_dir_tiers(path, local, remote))
		return;
	add_tier("local", local, all);
	add_tier("remote", remote, all);
}

static int list_checkpoints(const char *path, bool json)
{
	struct err e = ERR_INIT;
	struct ckpt_dir d;
	size_t i;
	json_t *all = json_array(), *v;
	if (tool_ckpt_dir_open(path, &d, &e)) {
		json_decref(all);
		return tool_fail(&tool_ckpt_ls, &e);
	}
	for (int64_t k = 0; k < d.n; k++)
		json_array_append_new(all, describe(&d, k, "dir"));
	add_tiers(path, all);
	int rc = TOOL_OK;
	if (json) {
		rc = tool_print_json(&tool_ckpt_ls,
				     json_pack("{s:s, s:O}", "dir", d.dir, "checkpoints", all));
	} else {
		if (json_array_size(all) == 0)
			printf("%s: no checkpoints\n", d.dir);
		json_array_foreach(all, i, v) print_row(v);
	}
	json_decref(all);
	tool_ckpt_dir_close(&d);
	return rc;
}

static int ls_main(int argc, char **argv)
{
	return tool_one_word(&tool_ckpt_ls, argc, argv, "DIR", list_checkpoints);
}

const struct tool tool_ckpt_ls = { "ckpt", "ls", ls_main, "list the checkpoints of a run", page };
