#include "agent/engine/train/state.h"
#include "agent/tools/ckpt_dir.h"
#include "agent/tools/tools.h"

#include <getopt.h>
#include <stdio.h>

static const char page[] =
	"muster ckpt verify — read checkpoints completely and verify them\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt verify PATH [--remote] [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Reads every byte of a checkpoint and compares it with the digests that were computed\n"
	"  when it was written. It proves that every tensor is present exactly once; that the\n"
	"  files are valid safetensors whose headers agree with the manifest; and that the "
	"tensors\n"
	"  are those of the model in the manifest, each with its shape. It also verifies the "
	"files\n"
	"  that are attached to an imported model. PATH is a checkpoint, or a run's folder or its\n"
	"  ckpt folder; then all of its checkpoints are verified. It may be in another storage,\n"
	"  such as s3://bucket/prefix; then the bytes are read from there, and no local copy is\n"
	"  made. The digest of the state is computed again and compared.\n"
	"\n"
	"OPTIONS\n"
	"  --remote      PATH is a run's folder: verify the copies in its checkpoint.remote\n"
	"  --json        print as JSON: {dir, checkpoints: [{step, path, valid, error}]}\n"
	"\n"
	"EXAMPLES\n"
	"  muster ckpt verify runs/demo\n"
	"\n"
	"EXIT STATUS\n"
	"  0  all are intact\n"
	"  1  one is damaged (its line names the file and the tensor), or there is none\n"
	"  2  usage\n";

/* Verifies the checkpoint's bytes, and that its tensors are those of its model. */
static int verify_one(const char *path, struct err *e)
{
	struct manifest m;
	if (ckpt_verify(path, e) || ckpt_manifest_load(path, &m, e))
		return -1;
	int rc = train_state_check(&m, e) ? err_prefix(e, "%s", path) : 0;
	ckpt_manifest_fini(&m);
	return rc;
}

static int verify_all(const struct ckpt_dir *d, bool json, json_t *results)
{
	int rc = TOOL_OK;
	for (int64_t i = 0; i < d->n; i++) {
		struct err e = ERR_INIT;
		struct manifest m;
		char path[PATH_MAX];
		tool_ckpt_dir_path(d, i, path);
		int bad = verify_one(path, &e);
		if (!bad && !d->one &&
		    !(bad = ckpt_folder_check(ckpt_storage_of(d->dir), d->dir, &d->list[i], &m,
					      &e)))
			ckpt_manifest_fini(&m); /* the step is that of the name */
		if (bad)
			rc = TOOL_FAILED;
		if (!json)
			printf("%s: %s%s\n", path, bad ? "damaged: " : "ok", e.text);
		json_array_append_new(results, json_pack("{s:I, s:s, s:b, s:s}", "step",
							 (json_int_t)d->list[i].step, "path", path,
							 "valid", !bad, "error", e.text));
	}
	return rc;
}

static int verify_checkpoints(const char *word, bool remote, bool json)
{
	struct err e = ERR_INIT;
	struct ckpt_dir d;
	if (remote ? tool_ckpt_dir_open_remote(word, &d, &e) : tool_ckpt_dir_open(word, &d, &e))
		return tool_fail(&tool_ckpt_verify, &e);
	if (d.n == 0) {
		err_set(&e, ERR_NOTFOUND, "%s: no checkpoints", d.dir);
		tool_ckpt_dir_close(&d);
		return tool_fail(&tool_ckpt_verify, &e);
	}
	json_t *results = json_array();
	int rc = verify_all(&d, json, results);
	if (json && tool_print_json(&tool_ckpt_verify,
				    json_pack("{s:s, s:O}", "dir", d.dir, "checkpoints", results)))
		rc = TOOL_FAILED;
	json_decref(results);
	tool_ckpt_dir_close(&d);
	return rc;
}

static int verify_main(int argc, char **argv)
{
	static const struct option options[] = {
		{ "remote", no_argument, NULL, 'r' },
		{ "json", no_argument, NULL, 'j' },
		{ "help", no_argument, NULL, TOOL_HELP },
		{ 0 },
	};
	bool remote = false, json = false;
	opterr = 0;
	for (int c; (c = getopt_long(argc, argv, ":h", options, NULL)) != -1;) {
		if (c != 'r' && c != 'j')
			return tool_option(&tool_ckpt_verify, c, argv);
		*(c == 'r' ? &remote : &json) = true;
	}
	if (argc - optind != 1)
		return tool_usage(&tool_ckpt_verify, "one PATH is needed");
	return verify_checkpoints(argv[optind], remote, json);
}

const struct tool tool_ckpt_verify = { "ckpt", "verify", verify_main,
				       "read checkpoints completely and verify them", page };
