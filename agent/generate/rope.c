#include "agent/generate/parts.h"

#include <math.h>

/* Radians a position turns pair i by, of Su et al., arXiv 2104.09864; stretched as Llama 3.1's configuration in Hugging Face
 * transformers says (rope_type "llama3"): waves longer than the context are slowed, short ones stay, in between it is blended. */
static double turn(const struct model_shape *s, int64_t i)
{
	double plain = pow(s->rope_theta, -2.0 * (double)i / (double)s->head_dim), slow = plain / s->rope_factor;
	if (s->rope_scaling == ROPE_PLAIN)
		return plain;
	if (s->rope_scaling == ROPE_LINEAR)
		return slow;
	double waves = (double)s->rope_original * plain / (2 * M_PI); /* in the original context */
	double share = (waves - s->rope_low) / (s->rope_high - s->rope_low);
	return share <= 0 ? slow : share >= 1 ? plain : slow + share * (plain - slow);
}

int rope_fill(struct lm *m, struct err *e)
{
	const struct model_shape *s = &m->shape;
	int64_t half = s->head_dim / 2, n = s->seq * half;
	m->cos = kern_alloc(m->kern, (size_t)(2 * n) * sizeof *m->cos);
	if (!m->cos)
		return err_set(e, ERR_NOMEM, "rotary positions: no memory for 2 × %lld numbers", (long long)n);
	m->sin = m->cos + n;
	for (int64_t t = 0; t < s->seq; t++)
		for (int64_t i = 0; i < half; i++) {
			double angle = (double)t * turn(s, i);
			m->cos[t * half + i] = (float)cos(angle);
			m->sin[t * half + i] = (float)sin(angle);
		}
	return 0;
}
