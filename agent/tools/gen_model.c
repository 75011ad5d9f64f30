#include "agent/tools/gen_model.h"

#include "agent/engine/ckpt/format/manifest.h"
#include "agent/engine/hf/unsupported.h"
#include "agent/engine/hf/side.h"
#include "agent/engine/train/state.h"
#include "agent/tools/ckpt_dir.h"
#include "plan/spec/model/model.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- a checkpoint --- */

static int find_checkpoint(const char *word, struct gen_model *m, struct err *e)
{
	struct ckpt_dir d;
	char *path = NULL;
	if (tool_ckpt_dir_open(word, &d, e))
		return -1;
	int rc = 0;
	if (d.one)
		tool_ckpt_dir_path(&d, 0, m->path);
	else if (!(rc = ckpt_latest(d.dir, NULL, &path, NULL, NULL, e)) && !path)
		rc = err_set(e, ERR_NOTFOUND, "%s: no checkpoints", d.dir);
	if (path)
		snprintf(m->path, sizeof m->path, "%s", path);
	free(path);
	tool_ckpt_dir_close(&d);
	return rc;
}

/* Without this check, a model larger than the saved tensors would be allocated before a missing
 * tensor is found. */
static int check_size(const struct gen_model *g, const struct manifest *m, struct err *e)
{
	double need = (double)shape_params(&g->shape) * sizeof(float);
	if (need <= (double)ckpt_manifest_bytes(m))
		return 0;
	return err_set(e, ERR_CORRUPT, "%s: its files hold %" PRId64 " bytes, its model needs %.0f",
		       g->path, ckpt_manifest_bytes(m), need);
}

static int read_manifest(struct gen_model *g, const struct manifest *m, struct err *e)
{
	static struct job job; /* too large for a small stack */
	if (train_state_model_job(m->model, &job, e))
		return err_prefix(e, "%s", g->path);
	g->step = m->state.step;
	shape_of_job(&job, &g->shape);
	return check_size(g, m, e) || ckpt_attached_load(g->path, m, &g->attached, e) ? -1 : 0;
}

static int open_checkpoint(const char *word, struct gen_model *g, struct err *e)
{
	struct manifest m;
	if (find_checkpoint(word, g, e) || ckpt_manifest_load(g->path, &m, e))
		return -1;
	int rc = read_manifest(g, &m, e);
	ckpt_manifest_fini(&m);
	return rc;
}

/* --- a folder --- */

static int open_folder(const char *word, struct gen_model *g, struct err *e)
{
	if (snprintf(g->path, sizeof g->path, "%s", word) >= (int)sizeof g->path)
		return err_set(e, ERR_USAGE, "%s: the path is too long", word);
	if (hf_reader_open(word, NULL, 0, &g->folder, e) ||
	    hf_side_take(word, NULL, NULL, &g->attached, e))
		return -1;
	shape_of_job(hf_reader_job(g->folder), &g->shape);
	return 0;
}

/* The tensors are in the order of the catalogue, which contains the whole model. */
struct filling {
	struct lm *lm;
	int next;
	hf_reader_note *note;
	void *arg;
};

static int put_part(void *arg, const struct hf_part *part, int64_t columns, const float *data,
		    struct err *e)
{
	struct filling *f = arg;
	const struct catalogue *c = generate_lm_catalogue(f->lm);
	const struct param *p = f->next < c->n ? &c->params[f->next++] : NULL;
	if (!p || strcmp(p->name, part->name) || p->count != part->rows * columns)
		return err_set(e, ERR_INTERNAL, "tensor %s: comes where the model has %s",
			       part->name, p ? p->name : "no more");
	memcpy(generate_lm_weights(f->lm) + p->offset, data, (size_t)p->count * sizeof *data);
	return 0;
}

static void put_note(void *arg, const char *text)
{
	struct filling *f = arg;
	if (f->note)
		f->note(f->arg, text);
}

/* --- both --- */

int tool_gen_model_open(const char *word, struct gen_model *out, struct err *e)
{
	*out = (struct gen_model){ 0 };
	if (hf_is_folder(word) ? open_folder(word, out, e) : open_checkpoint(word, out, e)) {
		tool_gen_model_close(out);
		return -1;
	}
	return 0;
}

void tool_gen_model_close(struct gen_model *m)
{
	hf_reader_close(m->folder);
	ckpt_attached_fini(&m->attached);
	m->folder = NULL;
}

int tool_gen_model_load(struct gen_model *m, struct lm *lm, hf_reader_note *note, void *arg,
			struct err *e)
{
	struct filling f = { lm, 0, note, arg };
	if (m->folder)
		return hf_reader_read(m->folder, put_part, put_note, &f, e);
	return generate_lm_load(lm, m->path, e) ? err_prefix(e, "%s", m->path) : 0;
}
