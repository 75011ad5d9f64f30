#include "agent/engine/generate/parts.h"

#include <math.h>

int generate_rope_fill(struct lm *m, struct err *e)
{
	const struct model_shape *s = &m->shape;
	int64_t half = s->head_dim / 2, n = s->seq * half;
	m->cos = backend_alloc(m->backend, (size_t)(2 * n) * sizeof *m->cos);
	if (!m->cos)
		return err_set(e, ERR_NOMEM, "rotary positions: no memory for 2 × %lld numbers",
			       (long long)n);
	m->sin = m->cos + n;
	for (int64_t t = 0; t < s->seq; t++)
		for (int64_t i = 0; i < half; i++) {
			double angle = (double)t * shape_rope_turn(s, i);
			m->cos[t * half + i] = (float)cos(angle);
			m->sin[t * half + i] = (float)sin(angle);
		}
	return 0;
}
