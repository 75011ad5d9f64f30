#include "agent/engine/ckpt/format/state_digest.h"
#include "agent/tools/ckpt_dir.h"
#include "agent/tools/tools.h"
#include "base/human.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

static const char page[] =
	"muster ckpt show — show the contents of a checkpoint\n"
	"\n"
	"SYNOPSIS\n"
	"  muster ckpt show PATH [--json]\n"
	"\n"
	"DESCRIPTION\n"
	"  Prints the state, model, layout, files and tensors of a checkpoint. PATH is a\n"
	"  checkpoint, or a run's folder or its ckpt folder; then the last valid checkpoint is\n"
	"  shown.\n"
	"\n"
	"  The state digest covers the step, the optimizer's numbers and every element of every\n"
	"  tensor, and does not depend on the layout: checkpoints of equal digests hold the same\n"
	"  state. Checkpoints of older versions have none.\n"
	"\n"
	"OPTIONS\n"
	"  --json        print as JSON, with every slice: {path, step, samples, seed, "
	"total_steps,\n"
	"                generation, state_digest: 32 hex digits or null, model, layout,\n"
	"                data: {path, validation, samples} or null,\n"
	"                bytes, files: [{name, size, digest}], carried: [{name, size, digest}]\n"
	"                (files attached to the model), from: the model's name at its origin or\n"
	"                null, tensors: [{name, shape, slices: [{file, lo, hi}]}]}\n"
	"\n"
	"EXAMPLES\n"
	"  muster ckpt show runs/demo/ckpt/step-00000400\n"
	"\n"
	"EXIT STATUS\n"
	"  0  shown\n"
	"  1  there is no checkpoint, or it is damaged\n"
	"  2  usage\n";

static json_t *numbers(const int64_t *v, int n)
{
	json_t *list = json_array();
	for (int i = 0; i < n; i++)
		json_array_append_new(list, json_integer(v[i]));
	return list;
}

static json_t *tensors_json(const struct manifest *m)
{
	json_t *list = json_array();
	for (int64_t i = 0; i < m->n_tensors; i++) {
		const struct manifest_tensor *t = &m->tensors[i];
		json_t *slices = json_array();
		for (int64_t j = 0; j < t->n; j++)
			json_array_append_new(slices,
					      json_pack("{s:s, s:o, s:o}", "file",
							m->files[t->slices[j].file].name, "lo",
							numbers(t->slices[j].lo, t->dims), "hi",
							numbers(t->slices[j].hi, t->dims)));
		json_array_append_new(list,
				      json_pack("{s:s, s:o, s:o}", "name", t->name, "shape",
						numbers(t->shape, t->dims), "slices", slices));
	}
	return list;
}

static json_t *files_json(const struct manifest *m)
{
	json_t *list = json_array();
	for (int64_t i = 0; i < m->n_files; i++) {
		char hex[DIGEST_HEX];
		ckpt_digest_hex(&m->files[i].digest, hex);
		json_array_append_new(list,
				      json_pack("{s:s, s:I, s:s}", "name", m->files[i].name, "size",
						(json_int_t)m->files[i].size, "digest", hex));
	}
	return list;
}

static json_t *attached_json(const struct manifest *m)
{
	json_t *list = json_array();
	for (int i = 0; i < m->n_attached; i++) {
		char hex[DIGEST_HEX];
		ckpt_digest_hex(&m->attached[i].digest, hex);
		json_array_append_new(
			list, json_pack("{s:s, s:I, s:s}", "name", m->attached[i].name, "size",
					(json_int_t)m->attached[i].size, "digest", hex));
	}
	return list;
}

/* Returns NULL if the checkpoint does not contain it. */
static json_t *data_json(const struct ckpt_data *d)
{
	return d->samples ? json_pack("{s:s, s:f, s:I}", "path", d->path, "validation",
				      d->validation, "samples", (json_int_t)d->samples)
			  : NULL;
}

/* "": an older version wrote the checkpoint. */
static void digest_text(const struct manifest *m, char out[DIGEST_HEX])
{
	struct digest d;
	out[0] = '\0';
	if (ckpt_state_digest(m, &d, NULL) == 1)
		ckpt_digest_hex(&d, out);
}

static int show_json(const char *path, const struct manifest *m)
{
	char seed[24], digest[DIGEST_HEX];
	digest_text(m, digest);
	snprintf(seed, sizeof seed, "%" PRIu64, m->state.seed);
	return tool_print_json(
		&tool_ckpt_show,
		json_pack(
			"{s:s, s:I, s:I, s:s, s:I, s:I, s:s?, s:O, s:O, s:o?, s:I, s:o, s:o, s:s?, "
			"s:o}",
			"path", path, "step", (json_int_t)m->state.step, "samples",
			(json_int_t)m->state.samples, "seed", seed, "total_steps",
			(json_int_t)m->state.total_steps, "generation", (json_int_t)m->generation,
			"state_digest", digest[0] ? digest : NULL, "model", m->model, "layout",
			m->layout, "data", data_json(&m->state.data), "bytes",
			(json_int_t)ckpt_manifest_bytes(m), "files", files_json(m), "carried",
			attached_json(m), "from", m->from[0] ? m->from : NULL, "tensors",
			tensors_json(m)));
}

static void show_object(const char *label, const json_t *v)
{
	char *text = json_dumps(v, JSON_SORT_KEYS | JSON_REAL_PRECISION(6));
	printf("%-10s %s\n", label, text ? text : "");
	free(text);
}

static int show_text(const char *path, const struct manifest *m)
{
	char bytes[HUMAN], digest[DIGEST_HEX];
	digest_text(m, digest);
	printf("%s\n", path);
	printf("%-10s %" PRId64 " of %" PRId64 ", %" PRId64 " samples, seed %" PRIu64
	       ", generation %u\n",
	       "step", m->state.step, m->state.total_steps, m->state.samples, m->state.seed,
	       m->generation);
	printf("%-10s %s\n", "digest", digest[0] ? digest : "none: an older version wrote it");
	if (m->state.data.samples)
		printf("%-10s %s, %" PRId64 " samples to train on, a share of %g held out\n",
		       "data", m->state.data.path, m->state.data.samples, m->state.data.validation);
	show_object("model", m->model);
	printf("%-10s ", "layout");
	tool_print_layout(m->layout);
	printf("\n");
	printf("%-10s %" PRId64 ", %s\n", "files", m->n_files,
	       human_bytes((double)ckpt_manifest_bytes(m), bytes));
	for (int64_t i = 0; i < m->n_files; i++)
		printf("  %-32s %12" PRId64 "\n", m->files[i].name, m->files[i].size);
	if (m->n_attached)
		printf("%-10s %d%s%s\n", "carried", m->n_attached, m->from[0] ? ", from " : "",
		       m->from);
	for (int i = 0; i < m->n_attached; i++)
		printf("  %-32s %12" PRId64 "\n", m->attached[i].name, m->attached[i].size);
	printf("%-10s %" PRId64 "\n", "tensors", m->n_tensors);
	for (int64_t i = 0; i < m->n_tensors; i++) {
		const struct manifest_tensor *t = &m->tensors[i];
		char shape[48];
		snprintf(shape, sizeof shape, t->dims == 2 ? "%" PRId64 " × %" PRId64 : "%" PRId64,
			 t->shape[0], t->shape[1]);
		printf("  %-48s %-18s in %" PRId64 " slice%s\n", t->name, shape, t->n,
		       t->n == 1 ? "" : "s");
	}
	return TOOL_OK;
}

static int show_checkpoint(const char *word, bool json)
{
	struct err e = ERR_INIT;
	struct ckpt_dir d;
	struct manifest m;
	char path[PATH_MAX];
	if (tool_ckpt_dir_open(word, &d, &e))
		return tool_fail(&tool_ckpt_show, &e);
	int rc = tool_ckpt_dir_choose(&d, path, &m, &e);
	tool_ckpt_dir_close(&d);
	if (rc)
		return tool_fail(&tool_ckpt_show, &e);
	rc = json ? show_json(path, &m) : show_text(path, &m);
	ckpt_manifest_fini(&m);
	return rc;
}

static int show_main(int argc, char **argv)
{
	return tool_one_word(&tool_ckpt_show, argc, argv, "PATH", show_checkpoint);
}

const struct tool tool_ckpt_show = { "ckpt", "show", show_main, "show the contents of a checkpoint",
				     page };
