/* Computes the tables of rotary positions. */
#include "agent/engine/model/stage.h"

#include <math.h>
#include <stdlib.h>

int model_rope_tables(struct model *m, struct err *e)
{
	int64_t half = m->d.dim / 2, n = m->d.seq * half;
	m->cos = backend_alloc(m->backend, (size_t)activations_rope_bytes(&m->d));
	if (!m->cos)
		return err_set(e, ERR_NOMEM,
			       "rotary positions: no memory for 2 × %lld numbers; lower model.seq",
			       (long long)n);
	m->sin = m->cos + n;
	float *tables = malloc((size_t)(2 * n + 1) * sizeof *tables), *sines = tables + n;
	if (!tables)
		return err_set(e, ERR_NOMEM, "no memory for the rotary positions");
	for (int64_t i = 0; i < half; i++) {
		double turns = shape_rope_turn(m->shape, i);
		for (int64_t t = 0; t < m->d.seq; t++) {
			double angle = (double)m->positions[t] * turns;
			tables[t * half + i] = (float)cos(angle);
			sines[t * half + i] = (float)sin(angle);
		}
	}
	backend_put(m->backend, m->cos, tables, (size_t)(2 * n) * sizeof *tables);
	free(tables);
	return 0;
}
