#include "agent/engine/optim/rules.h"

#include <math.h>

/* With a constant gradient G the momentum converges to G / (1 - momentum) for every share. The
 * weight of a whole step is 1. */
static double gradient_weight(const struct optim *o, double share)
{
	double momentum = o->job->optimizer.momentum;
	return (1 - pow(momentum, share)) / (1 - momentum);
}

static void update_sgd(const struct optim *o, struct update *u, int n, const struct optim_step *s)
{
	double weight = gradient_weight(o, s->share);
	const struct sgd_args a = {
		.momentum = (float)pow(o->job->optimizer.momentum, s->share),
	};
	for (int i = 0; i < n; i++)
		u[i].weight_decay = (float)(optim_weight_decay(o, u[i].weight_decay > 0) * weight);
	o->ops->sgd(o->backend, u, n, &a, o->numbers);
}

const struct optim_rule optim_rule_sgd = { .weight = gradient_weight, .update = update_sgd };
