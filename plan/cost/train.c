#include "plan/cost/train.h"

#include "plan/cost/devices.h"
#include "plan/plan.h"

#include <math.h>

/* --- Young and Daly ------------------------------------------------------------------ */

/* Seconds of work between two checkpoints that cost `saving` each. */
static double optimum(double saving, double mtbf)
{
	double x = saving / (2 * mtbf);
	return x >= 1 ? mtbf : sqrt(2 * saving * mtbf) * (1 + sqrt(x) / 3 + x / 9) - saving;
}

int64_t train_interval(const struct train_costs *c, int64_t steps)
{
	if (c->mtbf <= 0 || c->step <= 0)
		return steps;
	double best = fmax(optimum(c->snapshot, c->mtbf), c->write) / c->step;
	return best >= (double)steps ? steps : best < 1 ? 1 : (int64_t)(best + 0.5);
}

void train_expect(const struct train_costs *c, int64_t steps, int64_t every, struct train_time *out)
{
	double work = (double)steps * c->step;
	int64_t between = every > 0 && every < steps ? every : steps;
	double saved = ceil((double)steps / (double)between), interval = work / saved; /* as if they were evenly spread */
	*out = (struct train_time){ .every = between, .work = work, .saving = saved * c->snapshot, .total = work + saved * c->snapshot };
	if (c->mtbf <= 0 || steps < 1)
		return;
	double again = c->restart + fmin(c->write, interval);
	out->total = c->mtbf * exp(again / c->mtbf) * expm1((interval + c->snapshot) / c->mtbf) * saved;
	out->lost = out->total - out->work - out->saving;
	out->failures = out->total / c->mtbf;
}

/* --- Of a plan ------------------------------------------------------------------------- */

/* What a node writes to storage that all nodes share, bytes/s; less than its own disk or its network would give alone. */
#define NODE_STORAGE 1e9
/* Agents started again, devices and transports opened; muster's own part of it is a second or two (muster drill). */
#define RESPAWN 30.0

static int nodes_of(const struct plan *p)
{
	int n = 0;
	for (int i = 0; i < p->world; i++)
		n += !i || p->ranks[i].node != p->ranks[i - 1].node;
	return n;
}

void train_costs_of(const struct job *job, const struct cluster *cluster, const struct plan *p, double mtbf, struct train_costs *out)
{
	double words = job->optimizer.kind == OPTIMIZER_ADAMW ? 3 : 2, bytes = words * sizeof(float) * (double)model_params(&p->shape);
	int nodes = nodes_of(p), savers = p->layout.tp * p->layout.pp * (job->parallel.zero ? p->layout.cp * p->layout.dp : 1);
	double writers = fmin(nodes, savers); /* nodes */
	struct machine m;
	machine_of_plan(job, cluster, p, &m);
	*out = (struct train_costs){
		.step = p->time.total,
		.snapshot = machine_offload(&m, bytes / savers),
		.write = bytes / (NODE_STORAGE * writers),
		.restart = RESPAWN + bytes / (NODE_STORAGE * nodes),
		.mtbf = (mtbf > 0 ? mtbf : TRAIN_NODE_MTBF) / nodes,
	};
}
