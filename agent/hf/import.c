#include "agent/hf/import.h"

#include "agent/ckpt/single.h"
#include "agent/hf/config.h"
#include "agent/hf/weights.h"
#include "agent/state.h"
#include "base/file.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A model on its way in. */
struct arrival {
	struct model_shape shape;
	struct hf_names names;
	struct weights *weights;
	struct ckpt_tensor *tensors; /* of ours, in the order of names' parts */
	float *numbers, *room;       /* of the largest tensor */
	json_t *model, *layout;
	struct single *out;
};

static int read_config(const char *folder, int64_t seq, struct job *job, struct err *e)
{
	char path[PATH_MAX];
	struct buf text = BUF_INIT;
	if (snprintf(path, sizeof path, "%s/config.json", folder) >= (int)sizeof path)
		return err_set(e, ERR_USAGE, "%s: the path is too long", folder);
	int rc = file_slurp(path, CONFIG_MOST, &text, e) || config_read(buf_str(&text), text.len, path, seq, job, e) ? -1 : 0;
	buf_fini(&text);
	return rc;
}

static struct ckpt_tensor *list_parts(const struct hf_names *names)
{
	struct ckpt_tensor *list = calloc((size_t)names->n_parts + 1, sizeof *list), *at = list;
	for (int64_t i = 0; list && i < names->n; i++)
		for (int j = 0; j < names->tensors[i].n; j++, at++) {
			const struct hf_tensor *t = &names->tensors[i];
			*at = (struct ckpt_tensor){ .dims = t->dims, .shape = { t->parts[j].rows, t->shape[1] } };
			snprintf(at->name, sizeof at->name, "%s", t->parts[j].name);
		}
	return list;
}

static int open_arrival(struct arrival *a, const char *folder, const struct job *job, struct err *e)
{
	size_t most = 0, most_transposed = 0;
	model_shape(job, &a->shape);
	if (names_build(&a->shape, &a->names, e) || weights_open(folder, &a->weights, e) || weights_fit(a->weights, &a->names, e))
		return -1;
	for (int64_t i = 0; i < a->names.n; i++) {
		const struct hf_tensor *t = &a->names.tensors[i];
		size_t n = (size_t)hf_elements(t);
		most = n > most ? n : most;
		most_transposed = t->transposed && n > most_transposed ? n : most_transposed;
	}
	a->tensors = list_parts(&a->names);
	a->numbers = malloc(most * sizeof(float) + 1);
	a->room = malloc(most_transposed * sizeof(float) + 1);
	a->model = state_model(&a->shape);
	a->layout = json_pack("{s:s}", "imported", "huggingface");
	if (!a->tensors || !a->numbers || !a->room || !a->model || !a->layout)
		return err_set(e, ERR_NOMEM, "%s: no memory for its largest tensor, of %zu numbers", folder, most);
	return 0;
}

static void close_arrival(struct arrival *a)
{
	single_close(a->out);
	json_decref(a->layout);
	json_decref(a->model);
	free(a->room);
	free(a->numbers);
	free(a->tensors);
	weights_close(a->weights);
	names_free(&a->names);
}

static int bring(struct arrival *a, const struct hf_tensor *t, struct hf_report *r, struct err *e)
{
	const float *at = a->numbers;
	if (weights_read(a->weights, &a->names, t, a->numbers, a->room, e))
		return -1;
	for (int i = 0; i < t->n; i++) {
		if (single_add(a->out, at, e))
			return -1;
		at += t->parts[i].rows * t->shape[1];
	}
	r->params += hf_elements(t);
	return 0;
}

static int bring_all(struct arrival *a, const char *dir, struct hf_report *r, struct err *e)
{
	struct single_options opt = { .dir = dir, .model = a->model, .layout = a->layout, .tensors = a->tensors,
				      .n = (int)a->names.n_parts,
				      .state = { .optimizer = CKPT_NO_OPTIMIZER } };
	if (a->shape.experts && ckpt_number_set(&opt.state, "aux_loss", r->job.model.aux_loss, e))
		return -1;
	if (single_open(&opt, &a->out, e))
		return -1;
	for (int64_t i = 0; i < a->names.n; i++)
		if (bring(a, &a->names.tensors[i], r, e))
			return -1;
	r->tensors = a->names.n;
	r->bytes = r->params * (int64_t)sizeof(float);
	r->files = 1;
	return single_commit(a->out, r->path, e);
}

void hf_job_file(const struct hf_report *r, struct buf *out)
{
	char real[PATH_MAX];
	config_section(&r->job, out);
	if (r->job.model.family == FAMILY_MIXTRAL && r->job.model.aux_loss == 0)
		buf_puts(out, "# config.json asks for no balancing loss (output_router_logits is not true). Its own would be\n"
			      "# aux_loss = router_aux_loss_coef * experts_per_token / layers\n");
	buf_printf(out, "\n[checkpoint]\nresume = %s\n", realpath(r->path, real) ? real : r->path);
}

static int write_job(const struct hf_report *r, const char *dir, struct err *e)
{
	char path[PATH_MAX];
	struct buf text = BUF_INIT;
	if (snprintf(path, sizeof path, "%s/model.ini", dir) >= (int)sizeof path)
		return err_set(e, ERR_USAGE, "%s: the path is too long", dir);
	hf_job_file(r, &text);
	int rc = buf_failed(&text) ? err_set(e, ERR_NOMEM, "%s: no memory to write it", path) :
		file_replace(path, text.data, text.len, e);
	buf_fini(&text);
	return rc;
}

int hf_import(const char *folder, const char *dir, int64_t seq, struct hf_report *report, struct err *e)
{
	struct arrival a = { 0 };
	struct hf_report *r = calloc(1, sizeof *r); /* too large for a small stack */
	if (!r)
		return err_set(e, ERR_NOMEM, "%s: no memory to import it", folder);
	int rc = read_config(folder, seq, &r->job, e) || open_arrival(&a, folder, &r->job, e) || bring_all(&a, dir, r, e) ||
		 write_job(r, dir, e) ? -1 : 0;
	close_arrival(&a);
	if (!rc)
		*report = *r;
	free(r);
	return rc;
}
