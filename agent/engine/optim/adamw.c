#include "agent/engine/optim/rules.h"

#include <math.h>

void optim_adamw(const struct optim *o, struct update *u, int n, const struct optim_step *s)
{
	const struct adamw_args a = {
		.beta1 = (float)pow(o->job->optimizer.beta1, s->share),
		.beta2 = (float)pow(o->job->optimizer.beta2, s->share),
		.eps = (float)o->job->optimizer.eps,
	};
	o->ops->adamw(o->backend, u, n, &a, o->numbers);
}

const struct optim_rule optim_rule_adamw = { .update = optim_adamw };
