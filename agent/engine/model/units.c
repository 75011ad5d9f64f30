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

float *model_unit_grad(const struct model *m, int unit, int64_t offset)
{
	return offset < 0 ? NULL : m->grads[unit] + offset;
}
