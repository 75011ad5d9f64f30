#include "agent/engine/model/stage.h"

#include "agent/engine/model/tapes.h"

int unit_hold(struct model *m, int unit, struct err *e)
{
	tapes_note(m, TAPE_HOLD, unit, false);
	return store_params(m->store, unit, &m->params[unit], e);
}

void unit_drop(struct model *m, int unit)
{
	tapes_note(m, TAPE_DROP, unit, false);
	store_release(m->store, unit);
	m->params[unit] = NULL;
}

int unit_grads(struct model *m, int unit, struct err *e)
{
	tapes_note(m, TAPE_GRADS, unit, false);
	return store_grads(m->store, unit, &m->grads[unit], e);
}

int unit_done(struct pass *p, int unit, bool ends, struct err *e)
{
	tapes_note(p->m, TAPE_DONE, unit, ends);
	p->m->grads[unit] = NULL;
	return store_reduce(p->m->store, unit, ends && p->batch->last, e);
}

const void *unit_param(const struct model *m, int unit, int64_t offset)
{
	return offset < 0 ? NULL : (const char *)m->params[unit] + (size_t)(offset * m->d.width);
}

float *unit_grad(const struct model *m, int unit, int64_t offset)
{
	return offset < 0 ? NULL : m->grads[unit] + offset;
}
