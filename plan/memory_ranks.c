/* The memory of all ranks of a plan. */
#include "plan/plan.h"
#include "plan/capacity.h"
#include "plan/memory_library.h"

const struct plan_rank *plan_largest(const struct plan *p, int pp)
{
	int n = p->world / p->layout.pp; /* ranks of one pipeline coordinate are adjacent */
	const struct plan_rank *best = &p->ranks[pp * n];
	for (int i = 1; i < n; i++)
		if (p->ranks[pp * n + i].total > best->total)
			best = &p->ranks[pp * n + i];
	return best;
}

void plan_memory(const struct job *job, const struct cluster *cluster, struct plan *p)
{
	p->library = plan_memory_library(job, &p->shape, &p->layout);
	for (int i = 0; i < p->world; i++) {
		struct plan_rank *r = &p->ranks[i];
		bool on_cpu = plan_on_cpu(&cluster->kinds[cluster->nodes[r->node].kind]);
		plan_memory_rank(job, &p->shape, &p->layout, p->shares[r->at.dp].micros, p->stages,
				 on_cpu, r);
	}
}
