/* The tables of rotary positions: Su et al., arXiv 2104.09864, and how longer contexts stretch them. */
#include "agent/model/stage.h"

#include <math.h>
#include <stdlib.h>

/* The angle a position turns pair i by. llama3: the rule of Llama 3.1's configuration in Hugging Face transformers (rope_type
 * "llama3"): long waves are stretched, short ones are not, those between in proportion. */
static double frequency(const struct model_shape *s, int64_t i)
{
	double f = pow(s->rope_theta, -2.0 * (double)i / (double)s->head_dim);
	if (s->rope_scaling == ROPE_PLAIN)
		return f;
	if (s->rope_scaling == ROPE_LINEAR)
		return f / s->rope_factor;
	double wave = 2 * M_PI / f, context = (double)s->rope_original;
	if (wave < context / s->rope_high)
		return f;
	if (wave > context / s->rope_low)
		return f / s->rope_factor;
	double smooth = (context / wave - s->rope_low) / (s->rope_high - s->rope_low);
	return (1 - smooth) * f / s->rope_factor + smooth * f;
}

int rope_tables(struct model *m, struct err *e)
{
	int64_t half = m->d.dim / 2, n = m->d.seq * half;
	m->cos = kern_alloc(m->kern, (size_t)act_rope_bytes(&m->d));
	if (!m->cos)
		return err_set(e, ERR_NOMEM, "rotary positions: no memory for 2 × %lld numbers; lower model.seq", (long long)n);
	m->sin = m->cos + n;
	float *tables = malloc((size_t)(2 * n + 1) * sizeof *tables), *sines = tables + n;
	if (!tables)
		return err_set(e, ERR_NOMEM, "rotary positions: out of memory");
	for (int64_t i = 0; i < half; i++) {
		double turns = frequency(&m->shape, i);
		for (int64_t t = 0; t < m->d.seq; t++) {
			double angle = (double)m->positions[t] * turns;
			tables[t * half + i] = (float)cos(angle);
			sines[t * half + i] = (float)sin(angle);
		}
	}
	kern_put(m->kern, m->cos, tables, (size_t)(2 * n) * sizeof *tables);
	free(tables);
	return 0;
}
