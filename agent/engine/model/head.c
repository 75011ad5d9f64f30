#include "agent/engine/model/check.h"
#include "agent/engine/model/linear_fp8.h"
#include "agent/engine/model/stage.h"

/* Whether the gradient is computed together with the loss. This saves a device from writing and
 * reading the logits. The shard must have the whole vocabulary. */
static bool at_once(const struct pass *p)
{
	return p->m->d.device && p->keep && p->m->tp->size == 1;
}

/* The head's weights, with as many rows as a row of logits has elements. */
static const void *weights(const struct pass *p)
{
	const struct linear_view *head = &p->chunk->views.head;
	const struct model *m = p->m;
	return m->d.logits_row > head->out ? m->scratch[SCRATCH_HEAD]
					   : model_unit_param(m, head->unit, head->w);
}

/* Copies the head's weights in front of their zeros. */
static void pad_weights(const struct pass *p)
{
	const struct linear_view *head = &p->chunk->views.head;
	const struct model *m = p->m;
	if (m->d.logits_row > head->out)
		backend_copy(m->backend, m->scratch[SCRATCH_HEAD],
			     model_unit_param(m, head->unit, head->w),
			     (size_t)(head->out * head->in * m->d.width));
}

/* Turns the logits of `rows` tokens into exp(logit - max), or directly into their gradient. The
 * scratch holds the sums and the targets' logits, over the whole vocabulary. Adds the rows' losses.
 */
static int chunk_loss(struct pass *p, const void *y, const int32_t *targets, int64_t rows,
		      struct err *e)
{
	struct model *m = p->m;
	const struct linear_view *head = &p->chunk->views.head;
	int32_t lo = p->chunk->views.vocab_lo;
	void *logits = m->scratch[SCRATCH_LOGITS];
	float *max = m->scratch[SCRATCH_MAX], *sum = m->scratch[SCRATCH_SUMS], *target = sum + rows;
	int64_t row = m->d.logits_row;

	/* [rows, row], of which V columns are logits and the others 0 */
	m->ops->linear_fwd(m->backend, logits, y, weights(p), NULL, rows, head->in, row);
	model_check_tensor(m, "logits", logits, rows * row);
	if (at_once(p)) {
		m->ops->xent(m->backend, logits, sum, target, targets, m->logit_scale, rows,
			     head->out, row);
		m->ops->xent_loss(m->backend, m->loss, sum, target, rows);
		return 0;
	}
	m->ops->xent_max(m->backend, max, logits, rows, head->out, row);
	if (tp_all_reduce_max(m->tp, max, (size_t)rows, e))
		return -1;
	m->ops->xent_exp(m->backend, logits, sum, target, max, targets, rows, head->out, row, lo);
	if (tp_all_reduce_sum(m->tp, sum, (size_t)rows * 2, e))
		return -1;
	m->ops->xent_loss(m->backend, m->loss, sum, target, rows);
	return 0;
}

/* Adds the chunk's gradient of the head, and replaces y [rows, c] by its own gradient. The weights
 * come first, because they read y. */
static void chunk_grad(struct pass *p, void *y, const int32_t *targets, int64_t rows)
{
	struct model *m = p->m;
	const struct linear_view *head = &p->chunk->views.head;
	void *logits = m->scratch[SCRATCH_LOGITS];
	int64_t row = m->d.logits_row;

	if (!at_once(p))
		m->ops->xent_grad(m->backend, logits, m->scratch[SCRATCH_SUMS], targets,
				  m->logit_scale, rows, head->out, row, p->chunk->views.vocab_lo);
	const struct weight_grad g = model_linear_grad(m, head);
	m->ops->linear_bwd_weight_strided(m->backend, g.w, logits, row, y, rows, head->in,
					  head->out, g.add);
	m->ops->linear_bwd_input(m->backend, y, logits, weights(p), rows, head->in, row);
}

static int chunks(struct pass *p, struct err *e)
{
	struct model *m = p->m;
	for (int64_t i = 0; i < m->d.n; i += m->d.rows) {
		int64_t rows = m->d.n - i < m->d.rows ? m->d.n - i : m->d.rows;
		char *y = (char *)p->slot->at[SLOT_Y] + i * m->d.c * m->d.width;
		if (chunk_loss(p, y, p->targets + i, rows, e))
			return -1;
		if (p->keep)
			chunk_grad(p, y, p->targets + i, rows);
	}
	return 0;
}

/* Sets SLOT_Y to the final norm's output for all n rows. */
static int normed(struct pass *p, struct stream s, struct err *e)
{
	struct model *m = p->m;
	void **at = p->slot->at, *y = m->tp->sp ? m->scratch[SCRATCH_HIDDEN] : at[SLOT_Y];

	if (model_unit_acquire(m, p->chunk->views.norm.unit, e))
		return -1;
	model_norm_forward(m, &p->chunk->views.norm, y, at[SLOT_NORM_X], at[SLOT_NORM_STATS], s.x,
			   s.r);
	model_unit_release(m, p->chunk->views.norm.unit);
	return m->tp->sp ? tp_gather(m->tp, y, at[SLOT_Y], (size_t)(m->d.s * m->d.c), e) : 0;
}

int model_head_forward(struct pass *p, struct stream s, struct err *e)
{
	struct model *m = p->m;
	const struct linear_view *head = &p->chunk->views.head;
	/* The gradients of a tied table are complete after the embedding's backward pass. */
	bool ends = !p->chunk->views.tied_here;

	if (normed(p, s, e) || model_unit_acquire(m, head->unit, e) ||
	    (p->keep && model_unit_grads(m, head->unit, e)))
		return -1;
	pad_weights(p);
	int rc = chunks(p, e);
	model_unit_release(m, head->unit);
	return rc || (p->keep && model_unit_done(p, head->unit, ends, e)) ? -1 : 0;
}

int model_head_backward(struct pass *p, struct err *e)
{
	struct model *m = p->m;
	const struct norm_view *v = &p->chunk->views.norm;
	void **at = p->slot->at, *dy = m->tp->sp ? m->scratch[SCRATCH_HIDDEN] : at[SLOT_Y];
	struct fp8_copies to;

	if (tp_reduce(m->tp, at[SLOT_Y], dy, (size_t)(m->d.s * m->d.c), e) ||
	    model_unit_acquire(m, v->unit, e) || model_unit_grads(m, v->unit, e))
		return -1;
	model_norm_backward(m, v, at[SLOT_GRAD], dy, NULL, at[SLOT_NORM_X], at[SLOT_NORM_STATS],
			    model_linear_fp8_stream_copies(p, p->chunk->layers, &to));
	model_unit_release(m, v->unit);
	return model_unit_done(p, v->unit, true, e);
}
