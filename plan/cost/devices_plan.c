#include "plan/cost/devices.h"
#include "plan/plan.h"
#include "plan/spec/speeds.h"

/* Whether two ranks have the same machine: their nodes are of one kind and have as many agents. */
static bool are_alike(const struct cluster *c, const struct plan_rank *a, const struct plan_rank *b)
{
	return c->nodes[a->node].kind == c->nodes[b->node].kind && a->node_ranks == b->node_ranks;
}

void cost_machine_of_plan(const struct job *job, const struct cluster *c, const struct plan *p,
			  struct cost_machine *out)
{
	double found = 0;
	bool named = speeds_devices(job) > 0;
	for (int i = 0; i < p->world; i++) {
		const struct node_kind *k = topo_cluster_kind(c, p->ranks[i].node);
		struct cost_machine m;
		if (i && are_alike(c, &p->ranks[i], &p->ranks[i - 1]))
			continue;
		cost_machine_of_agents(k, job->precision.dtype != DTYPE_FP32,
				       p->ranks[i].node_ranks, p->threads, &m);
		double rate = cost_machine_pace(&m);
		if (found <= 0 || (named ? rate > found : rate < found)) {
			found = rate;
			*out = m;
		}
	}
}
