#include "agent/engine/hf/import.h"

#include "agent/engine/ckpt/save/stream.h"
#include "agent/engine/hf/config.h"
#include "agent/engine/hf/side.h"
#include "agent/engine/train/state.h"
#include "base/file.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* An import in progress. */
struct arrival {
	struct hf_reader *reader;
	struct attached carry;       /* the model's other files */
	struct ckpt_tensor *tensors; /* muster's tensors, in the order of names' parts */
	json_t *model, *layout;
	struct ckpt_stream *out;
	struct hf_report *report;
	const struct hf_import_options *opt;
};

static struct ckpt_tensor *list_parts(const struct hf_names *names)
{
	struct ckpt_tensor *list = calloc((size_t)names->n_parts + 1, sizeof *list), *at = list;
	for (int64_t i = 0; list && i < names->n; i++)
		for (int j = 0; j < names->tensors[i].n; j++, at++) {
			const struct hf_tensor *t = &names->tensors[i];
			*at = (struct ckpt_tensor){ .dims = t->dims,
						    .shape = { t->parts[j].rows, t->shape[1] } };
			snprintf(at->name, sizeof at->name, "%s", t->parts[j].name);
		}
	return list;
}

static void put_note(void *arg, const char *text)
{
	const struct arrival *a = arg;
	const struct hf_listener *listener = a->opt->listener;
	if (listener)
		listener->note(listener->arg, text);
}

static int open_arrival(struct arrival *a, struct err *e)
{
	const char *folder = a->opt->folder, *config = a->opt->config;
	struct model_shape shape;
	if (hf_reader_open(folder, config, a->opt->seq, &a->reader, e) ||
	    hf_side_take(config ? config : folder, put_note, a, &a->carry, e))
		return -1;
	shape_of_job(hf_reader_job(a->reader), &shape);
	a->tensors = list_parts(hf_reader_names(a->reader));
	a->model = train_state_model(&shape);
	a->layout = json_pack("{s:s}", "imported", hf_reader_format(a->reader));
	if (!a->tensors || !a->model || !a->layout)
		return err_set(e, ERR_NOMEM, "%s: no memory for a list of its tensors", folder);
	return 0;
}

static void close_arrival(struct arrival *a)
{
	ckpt_stream_close(a->out);
	json_decref(a->layout);
	json_decref(a->model);
	free(a->tensors);
	ckpt_attached_fini(&a->carry);
	hf_reader_close(a->reader);
}

static int put_part(void *arg, const struct hf_part *part, int64_t columns, const float *data,
		    struct err *e)
{
	struct arrival *a = arg;
	a->report->params += part->rows * columns;
	return ckpt_stream_add_tensor(a->out, data, e);
}

static int bring_all(struct arrival *a, const char *dir, struct err *e)
{
	const struct hf_names *names = hf_reader_names(a->reader);
	struct hf_report *r = a->report;
	struct ckpt_stream_options opt = { .dir = dir,
					   .model = a->model,
					   .layout = a->layout,
					   .tensors = a->tensors,
					   .n = (int)names->n_parts,
					   .attached = &a->carry,
					   .state = { .optimizer = CKPT_NO_OPTIMIZER } };
	const struct job *job = hf_reader_job(a->reader);
	if (job->model.experts && ckpt_number_set(&opt.state, "aux_loss", job->model.aux_loss, e))
		return -1;
	if (ckpt_stream_open(&opt, &a->out, e) ||
	    hf_reader_read(a->reader, put_part, put_note, a, e))
		return -1;
	r->tensors = names->n;
	r->bytes = r->params * (int64_t)sizeof(float);
	r->files = 1;
	r->carried = a->carry.n;
	r->job = *hf_reader_job(a->reader);
	return ckpt_stream_commit(a->out, r->path, e);
}

void hf_job_file(const struct hf_report *r, struct buf *out)
{
	char real[PATH_MAX];
	hf_config_section(&r->job, out);
	if (shape_families[r->job.model.family].experts && r->job.model.aux_loss == 0)
		buf_puts(out, "# config.json asks for no balancing loss (output_router_logits is "
			      "not true). Its own would be\n"
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
	int rc = buf_failed(&text) ? err_set(e, ERR_NOMEM, "%s: no memory to write it", path)
				   : file_replace(path, text.data, text.len, e);
	buf_fini(&text);
	return rc;
}

int hf_import(const struct hf_import_options *opt, struct hf_report *report, struct err *e)
{
	struct hf_report *r = calloc(1, sizeof *r); /* too large for a small stack */
	if (!r)
		return err_set(e, ERR_NOMEM, "%s: no memory to import it", opt->folder);
	struct arrival a = { .report = r, .opt = opt };
	int rc = open_arrival(&a, e) || bring_all(&a, opt->dir, e) || write_job(r, opt->dir, e) ? -1
												: 0;
	close_arrival(&a);
	if (!rc)
		*report = *r;
	free(r);
	return rc;
}
