/* Checks that a checkpoint holds the tensors of the model that its manifest names. */
#include "agent/engine/train/state.h"

#include "agent/engine/ckpt/format/manifest.h"
#include "agent/engine/model/scales_fp8.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Sets the optimizer whose moments the checkpoint should hold, and whether it holds moments at all.
 */
static int find_optimizer(const struct manifest *m, enum job_optimizer *kind, bool *moments,
			  struct err *e)
{
	const char *has = m->state.optimizer;
	*kind = OPTIMIZER_ADAMW; /* older checkpoints do not name their optimizer */
	*moments = strcmp(has, CKPT_NO_OPTIMIZER) != 0;
	if (!has[0] || !*moments)
		return 0;
	if (optimizer_find(has, kind))
		return 0;
	return err_set(e, ERR_UNSUPPORTED,
		       "it holds the moments of %s, an optimizer that this muster does not know; "
		       "use the one that wrote it",
		       has);
}

static int check_tensor(const struct manifest *m, const struct ckpt_tensor *want, struct err *e)
{
	const struct manifest_tensor *have = ckpt_manifest_find(m, want->name);
	int64_t columns = want->dims == 2 ? want->shape[1] : 1;
	if (!have)
		return err_set(e, ERR_CORRUPT,
			       "has no tensor %s, which its model needs; the model in its manifest "
			       "is not the one that was saved, or "
			       "the manifest is",
			       want->name);
	if (have->dims == want->dims && have->shape[0] == want->shape[0] &&
	    have->shape[1] == columns)
		return 0;
	return err_set(e, ERR_CORRUPT,
		       "tensor %s: is %" PRId64 " × %" PRId64 ", and its model has %" PRId64
		       " × %" PRId64 " there; the model in its "
		       "manifest is not the one that was saved, or the manifest is",
		       want->name, have->shape[0], have->shape[1], want->shape[0], columns);
}

/* All tensors of the model were found. If the checkpoint has more, finds one that does not belong
 * to the model. */
static int check_strangers(const struct manifest *m, const struct ckpt_tensor *list, int n,
			   int64_t wanted, struct err *e)
{
	if (m->n_tensors == wanted)
		return 0;
	json_t *known = json_object();
	int rc = known ? 0 : err_set(e, ERR_NOMEM, "no memory for the names of %d tensors", n);
	for (int i = 0; i < n && !rc; i++)
		json_object_set_new(known, list[i].name, json_true());
	for (int64_t i = 0; i < m->n_tensors && !rc; i++)
		if (!json_object_get(known, m->tensors[i].name))
			rc = err_set(e, ERR_CORRUPT,
				     "tensor %s: its model has no such tensor; the model in its "
				     "manifest is not the one that was saved, or "
				     "the manifest is",
				     m->tensors[i].name);
	json_decref(known);
	return rc;
}

/* Checks the number of tensors first, so that the list of the model's tensors does not take more
 * memory than that of the checkpoint. */
static int check_count(const struct manifest *m, const struct model_shape *s, struct err *e)
{
	int64_t least = s->layers * (s->experts ? 3 * s->experts : 1);
	return least <= m->n_tensors
		       ? 0
		       : err_set(e, ERR_CORRUPT,
				 "it has %" PRId64 " tensors, but its model of %" PRId64
				 " layers has at least %" PRId64,
				 m->n_tensors, s->layers, least);
}

static int read_shape(const struct manifest *m, struct model_shape *out, struct err *e)
{
	struct job *job = malloc(sizeof *job); /* too large for a small stack */
	int rc = job ? train_state_model_job(m->model, job, e)
		     : err_set(e, ERR_NOMEM, "no memory for a job");
	if (!rc)
		shape_of_job(job, out);
	free(job);
	return rc;
}

int train_state_check(const struct manifest *m, struct err *e)
{
	struct model_shape shape;
	struct ckpt_tensor *list = NULL;
	enum job_optimizer kind;
	bool moments;
	int n = 0, rc = 0;
	int64_t wanted = 0;
	bool scales = ckpt_manifest_find(m, model_scales_names[0]) != NULL;
	if (read_shape(m, &shape, e) || find_optimizer(m, &kind, &moments, e))
		return -1;
	if (check_count(m, &shape, e) || train_state_whole(&shape, kind, scales, &list, &n, e))
		return -1;
	for (int i = 0; i < n && !rc; i++)
		if (moments || !list[i].moment) {
			wanted++;
			rc = check_tensor(m, &list[i], e);
		}
	if (!rc)
		rc = check_strangers(m, list, n, wanted, e);
	free(list);
	return rc;
}
