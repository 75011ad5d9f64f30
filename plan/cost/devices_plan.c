#include "plan/cost/devices.h"
#include "plan/plan.h"
#include "plan/spec/speeds.h"

void cost_machine_of_plan(const struct job *job, const struct cluster *c, const struct plan *p,
			  struct cost_machine *out)
{
	double found = 0;
	bool named = speeds_devices(job) > 0;
	for (int i = 0; i < p->world; i++) {
		const struct node_kind *k = topo_cluster_kind(c, p->ranks[i].node);
		struct cost_machine m;
		if (i && p->ranks[i].node == p->ranks[i - 1].node)
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
