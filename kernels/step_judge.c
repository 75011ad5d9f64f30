/* The host's form of step_judge. */
#include "kernels/backend.h"

#include <math.h>

double backend_next_scale(const struct step_rule *r, double scale, bool finite, int64_t *good)
{
	if (r->window <= 0)
		return scale;
	if (finite && (++*good < r->window || scale >= r->scale_max))
		return scale;
	*good = 0;
	return finite ? scale * 2 : scale > 1 ? scale / 2 : scale;
}

void backend_host_step_judge(struct backend *k, struct step_numbers *s, const struct step_rule *r)
{
	(void)k;
	s->norm = sqrt(s->sums[STEP_SQUARES]) / s->loss_scale;
	double clip = r->clip > 0 && s->norm > r->clip ? r->clip / s->norm : 1;
	bool finite = isfinite(s->sums[STEP_LOSS]) && isfinite(s->norm);
	s->grad_scale = (float)(clip / s->loss_scale);
	s->skip = !finite || s->sums[STEP_LOSS] / r->tokens > s->loss_limit ||
		  s->norm > s->norm_limit;
	s->loss_scale = backend_next_scale(r, s->loss_scale, finite, &s->good);
	s->logit_scale = (float)(s->loss_scale / r->tokens);
}
