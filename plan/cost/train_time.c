#include "plan/cost/train_time.h"

#include "plan/cost/devices.h"
#include "plan/spec/model/zero.h"
#include "plan/plan.h"

#include <math.h>

/* --- Young and Daly --- */

/* Seconds of work between two checkpoints that cost `saving` each. */
static double optimum(double saving, double mtbf)
{
	double x = saving / (2 * mtbf);
	return x >= 1 ? mtbf : sqrt(2 * saving * mtbf) * (1 + sqrt(x) / 3 + x / 9) - saving;
}

int64_t cost_train_interval(const struct train_costs *c, int64_t steps)
{
	if (c->mtbf <= 0 || c->step <= 0)
		return steps;
	double best = fmax(optimum(c->snapshot, c->mtbf), c->write) / c->step;
	return best >= (double)steps ? steps : best < 1 ? 1 : (int64_t)(best + 0.5);
}

void cost_train_expect(const struct train_costs *c, int64_t steps, int64_t every,
		       struct train_time *out)
{
	double work = (double)steps * c->step;
	int64_t between = every > 0 && every < steps ? every : steps;
	/* Counts as if the checkpoints were evenly spaced. */
	double saved = ceil((double)steps / (double)between), interval = work / saved;
	*out = (struct train_time){ .every = between,
				    .work = work,
				    .saving = saved * c->snapshot,
				    .total = work + saved * c->snapshot };
	if (c->mtbf <= 0 || steps < 1)
		return;
	double again = c->restart + fmin(c->write, interval);
	out->total = c->mtbf * exp(again / c->mtbf) * expm1((interval + c->snapshot) / c->mtbf) *
		     saved;
	out->lost = out->total - out->work - out->saving;
	out->failures = out->total / c->mtbf;
}

/* --- The costs of a plan --- */

#define GB   1e9
#define HOUR 3600.0

/* Number of nodes. Each rank of a node with `node_ranks` ranks counts 1 / node_ranks. */
static double nodes_of(const struct plan *p)
{
	double nodes = 0;
	for (int i = 0; i < p->world; i++)
		nodes += 1.0 / p->ranks[i].node_ranks;
	return round(nodes);
}

/* Bytes that all ranks together read after a failure. What ZeRO does not split counts once for each
 * replica; a state that is never split counts once for each rank that holds a part of its
 * parameter. */
static double loaded_bytes(const struct job *job, const struct plan *p,
			   const struct optimizer_elements *model)
{
	double sum = 0;
	struct zero_cut cuts[ZERO_CLASSES];
	zero_cuts(&p->layout, (struct coords){ 0 }, (int)job->parallel.zero,
		  job->parallel.zero_shard == ZERO_SHARD_NODE ? p->ranks[0].node_replicas : 0,
		  cuts);
	for (int class = 0; class < ZERO_CLASSES; class ++)
		sum += (model[class].params + model[class].split) * cuts[class].copies +
		       model[class].whole * p->layout.tp * cuts[class].shards * cuts[class].copies;
	return sum * (double)sizeof(float);
}

void cost_train_costs_of(const struct job *job, const struct cluster *cluster, const struct plan *p,
			 struct train_costs *out)
{
	struct optimizer_elements model[ZERO_CLASSES];
	optimizer_elements_of(job->optimizer.kind, &p->shape, model);
	double saved = optimizer_checkpoint_bytes(job->optimizer.kind, &p->shape),
	       nodes = nodes_of(p),
	       bandwidth = GB *
			   fmin(job->checkpoint.bandwidth, nodes * job->checkpoint.node_bandwidth);
	struct cost_machine m;
	cost_machine_of_plan(job, cluster, p, &m);
	*out = (struct train_costs){
		.step = p->time.total,
		.snapshot = cost_machine_offload(&m, saved / p->world),
		.write = saved / bandwidth,
		.restart = job->restart.respawn + loaded_bytes(job, p, model) / bandwidth,
		.mtbf = HOUR * job->restart.node_mtbf / nodes,
	};
}
