#include "agent/engine/model/check.h"
#include "agent/engine/model/graphs.h"

int model_unit_acquire(struct model *m, int unit, struct err *e)
{
	model_graphs_note_call(m, STORE_CALL_HOLD, unit, false);
	return param_store_acquire(m->store, unit, &m->params[unit], e);
}

void model_unit_release(struct model *m, int unit)
{
	model_graphs_note_call(m, STORE_CALL_RELEASE, unit, false);
	param_store_release(m->store, unit);
	m->params[unit] = NULL;
}

int model_unit_grads(struct model *m, int unit, struct err *e)
{
	model_graphs_note_call(m, STORE_CALL_GRADS, unit, false);
	return param_store_grads(m->store, unit, &m->grads[unit], e);
}

int model_unit_done(struct pass *p, int unit, bool ends, struct err *e)
{
	model_graphs_note_call(p->m, STORE_CALL_REDUCE, unit, ends);
	model_plant_gradient(p, unit);
	model_check_gradients(p->m, unit);
	p->m->grads[unit] = NULL;
	return param_store_reduce(p->m->store, unit, ends && p->batch->last, e);
}

const void *model_unit_param(const struct model *m, int unit, int64_t offset)
{
	return offset < 0 ? NULL : (const char *)m->params[unit] + (size_t)(offset * m->d.width);
}

static float *grad_at(const struct model *m, int unit, int64_t offset)
{
	return offset < 0 ? NULL : m->grads[unit] + offset;
}

static const struct grad_range none = { -1, 0 };

/* Whether to add to the gradients of two ranges. */
static bool adds(struct model *m, int unit, struct grad_range w, struct grad_range b)
{
	const struct grad_range both[] = { w, b };
	bool add = param_store_adds_grads(m->store, unit, both, 2);
	model_graphs_note_grads(m, unit, w, add);
	model_graphs_note_grads(m, unit, b, add);
	return add;
}

struct weight_grad model_linear_weight_grad(struct model *m, const struct linear_view *l)
{
	return (struct weight_grad){ grad_at(m, l->unit, l->w), NULL,
				     adds(m, l->unit, (struct grad_range){ l->w, l->in * l->out },
					  none) };
}

struct weight_grad model_linear_bias_grad(struct model *m, const struct linear_view *l)
{
	return (struct weight_grad){ NULL, grad_at(m, l->unit, l->b),
				     adds(m, l->unit, (struct grad_range){ l->b, l->out }, none) };
}

struct weight_grad model_linear_grad(struct model *m, const struct linear_view *l)
{
	return (struct weight_grad){ grad_at(m, l->unit, l->w), grad_at(m, l->unit, l->b),
				     adds(m, l->unit, (struct grad_range){ l->w, l->in * l->out },
					  (struct grad_range){ l->b, l->out }) };
}

/* A norm's weights are one parameter each: its first element identifies it. */
struct weight_grad model_norm_grad(struct model *m, const struct norm_view *v)
{
	return (struct weight_grad){ grad_at(m, v->unit, v->w), grad_at(m, v->unit, v->b),
				     adds(m, v->unit, (struct grad_range){ v->w, 1 },
					  (struct grad_range){ v->b, 1 }) };
}

struct weight_grad model_experts_grad(struct model *m, const struct linear_view *l, int64_t stride,
				      int n)
{
	struct weight_grad g = { grad_at(m, l->unit, l->w), NULL, false };
	for (int i = 0; i < n; i++)
		g.add = adds(m, l->unit, (struct grad_range){ l->w + i * stride, l->in * l->out },
			     none);
	return g;
}

float *model_table_grad(struct model *m, int unit, int64_t offset, int64_t count)
{
	float *at = grad_at(m, unit, offset);
	if (!adds(m, unit, (struct grad_range){ offset, count }, none))
		backend_zero(m->backend, at, (size_t)count * sizeof *at);
	return at;
}
