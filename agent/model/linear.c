#include "agent/model/stage.h"

/* What one rank computes of a linear, forward. */
static void product(struct model *m, const struct linear_view *l, void *y, const void *x, bool bias)
{
	m->ops->linear_fwd(m->kern, y, x, unit_param(m, l->unit, l->w), bias ? unit_param(m, l->unit, l->b) : NULL, m->d.n, l->in, l->out);
}

static void weight_grad(struct model *m, const struct linear_view *l, const void *dy, const void *x)
{
	m->ops->linear_bwd_weight(m->kern, unit_grad(m, l->unit, l->w), unit_grad(m, l->unit, l->b), dy, x, m->d.n, l->in, l->out);
}

static void input_grad(struct model *m, const struct linear_view *l, void *dx, const void *dy)
{
	m->ops->linear_bwd_input(m->kern, dx, dy, unit_param(m, l->unit, l->w), m->d.n, l->in, l->out);
}

int all_rows(struct model *m, const void *x, const void **full, struct err *e)
{
	*full = x;
	if (!m->tp->sp)
		return 0;
	*full = m->scratch[SCRATCH_FULL];
	return tp_gather(m->tp, x, m->scratch[SCRATCH_FULL], (size_t)(m->d.s * m->d.c), e);
}

void *before_reduce(struct model *m, void *y)
{
	return m->tp->sp ? m->scratch[SCRATCH_FULL] : y;
}

int to_stream(struct model *m, void *y, struct err *e)
{
	return tp_reduce(m->tp, before_reduce(m, y), y, (size_t)(m->d.s * m->d.c), e);
}

int column_forward(struct model *m, const struct linear_view *l, void *y, const void *x, struct err *e)
{
	const void *full;
	if (all_rows(m, x, &full, e))
		return -1;
	product(m, l, y, full, true);
	return 0;
}

int column_backward(struct pass *p, const struct linear_view *l, void *dx, const void *dy, const void *x, struct err *e)
{
	struct model *m = p->m;
	const void *full;
	if (p->weight) {
		if (all_rows(m, x, &full, e))
			return -1;
		weight_grad(m, l, dy, full);
	}
	if (!p->input)
		return 0;
	input_grad(m, l, before_reduce(m, dx), dy);
	return to_stream(m, dx, e);
}

int row_forward(struct model *m, const struct linear_view *l, void *y, const void *x, struct err *e)
{
	bool alone = m->tp->size == 1; /* then the bias goes with the product */
	product(m, l, before_reduce(m, y), x, alone);
	if (to_stream(m, y, e))
		return -1;
	if (l->b >= 0 && !alone)
		m->ops->add_bias(m->kern, y, unit_param(m, l->unit, l->b), m->d.s, m->d.c);
	return 0;
}

int row_backward(struct pass *p, const struct linear_view *l, void *dx, const void *dy, const void *x, struct err *e)
{
	struct model *m = p->m;
	const void *full;
	if (all_rows(m, dy, &full, e))
		return -1;
	if (p->weight)
		weight_grad(m, l, full, x);
	if (p->input)
		input_grad(m, l, dx, full);
	return 0;
}
