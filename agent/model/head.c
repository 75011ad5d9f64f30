#include "agent/model/stage.h"

#include <math.h>

/* Logits of `rows` tokens become exp(logit - max); scratch->sums holds the sums and the targets' logits, over the whole
 * vocabulary. Adds the rows' losses. */
static int chunk_loss(struct model *m, const float *y, const int32_t *targets, int64_t rows, double *loss, struct err *e)
{
	const struct linear_view *head = &m->views.head;
	struct scratch *t = &m->scratch;
	float *sum = t->sums, *target = t->sums + rows;

	m->ops->linear_fwd(m->kern, t->logits, y, m->params + head->w, NULL, rows, head->in, head->out); /* [rows, V] */
	m->ops->xent_max(m->kern, t->max, t->logits, rows, head->out);
	if (tp_max(m->tp, t->max, (size_t)rows, e))
		return -1;
	m->ops->xent_exp(m->kern, t->logits, sum, target, t->max, targets, rows, head->out, m->views.vocab_lo);
	if (tp_sum(m->tp, t->sums, (size_t)rows * 2, e))
		return -1;
	for (int64_t i = 0; i < rows; i++)
		*loss += log((double)sum[i]) - (double)target[i];
	return 0;
}

/* The chunk's gradient of the head is added, and y [rows, c] becomes its own gradient: weights first, as they read y. */
static void chunk_grad(struct model *m, float *y, const int32_t *targets, int64_t rows)
{
	const struct linear_view *head = &m->views.head;
	float *logits = m->scratch.logits;

	m->ops->xent_grad(m->kern, logits, m->scratch.sums, targets, m->grad_scale, rows, head->out, m->views.vocab_lo);
	m->ops->linear_bwd_weight(m->kern, m->grads + head->w, NULL, logits, y, rows, head->in, head->out);
	m->ops->linear_bwd_input(m->kern, y, logits, m->params + head->w, rows, head->in, head->out);
}

int head_forward(struct model *m, struct slot *slot, struct stream s, const int32_t *targets, bool backward,
		 double *loss, struct err *e)
{
	norm_forward(m, &m->views.norm, &slot->norm, slot->y, s.x, s.r);
	for (int64_t i = 0; i < m->n; i += m->rows) {
		int64_t rows = m->n - i < m->rows ? m->n - i : m->rows;
		float *y = slot->y + i * m->shape.hidden;
		if (chunk_loss(m, y, targets + i, rows, loss, e))
			return -1;
		if (backward)
			chunk_grad(m, y, targets + i, rows);
	}
	return 0;
}

int head_backward(struct model *m, struct slot *slot, struct err *e)
{
	if (tp_sum(m->tp, slot->y, (size_t)model_boundary(m), e))
		return -1;
	norm_backward(m, &m->views.norm, &slot->norm, slot->grad, slot->y, NULL);
	return 0;
}
