#include "agent/model/stage.h"

int unit_hold(struct model *m, int unit, struct err *e)
{
	return store_params(m->store, unit, &m->params[unit], e);
}

void unit_drop(struct model *m, int unit)
{
	store_release(m->store, unit);
	m->params[unit] = NULL;
}

int unit_grads(struct model *m, int unit, struct err *e)
{
	return store_grads(m->store, unit, &m->grads[unit], e);
}

int unit_done(struct model *m, int unit, bool last, struct err *e)
{
	m->grads[unit] = NULL;
	return store_reduce(m->store, unit, last, e);
}

const void *unit_param(const struct model *m, int unit, int64_t offset)
{
	return offset < 0 ? NULL : (const char *)m->params[unit] + (size_t)(offset * m->d.width);
}

float *unit_grad(const struct model *m, int unit, int64_t offset)
{
	return offset < 0 ? NULL : m->grads[unit] + offset;
}
