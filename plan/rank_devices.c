#include "plan/rank_devices.h"

#include "plan/place/place.h"
#include "plan/place/traffic.h"
#include "plan/search/fit.h"
#include "plan/spec/speeds.h"
#include "plan/capacity.h"

#include <stdlib.h>
#include <string.h>

/* Only muster's own launcher maps ranks. Other programs' rank r is the r-th device. */
static bool stays_in_order(const struct job *job, const struct cluster *c)
{
	bool in_nodes = job->parallel.zero && job->parallel.zero_shard == ZERO_SHARD_NODE;
	return job->plan.engine != ENGINE_MUSTER || speeds_devices(job) || in_nodes ||
	       (c->n_nodes == 1 && plan_on_cpu(topo_cluster_kind(c, 0)));
}

static int map_ranks(const struct job *job, const struct cluster *c, struct plan *p, struct err *e)
{
	struct traffic t;
	struct cluster_slot *slots = calloc((size_t)p->world, sizeof *slots);
	if (!slots)
		return err_set(e, ERR_NOMEM, "no memory to place %d ranks; close other programs",
			       p->world);
	if (job_has_program(job))
		place_traffic_usual(&p->layout, &t);
	else
		place_traffic_of(job, &p->shape, &p->layout, p->stages, p->micros, &t);
	int rc = place_ranks(c, &p->layout, &t, stays_in_order(job, c), slots, &p->place, e);
	for (int i = 0; !rc && i < p->world; i++)
		p->ranks[i] = (struct plan_rank){ .at = layout_coords(&p->layout, i),
						  .node = slots[i].node,
						  .slot = slots[i].device };
	free(slots);
	return rc;
}

void plan_ranks_by_node(const struct cluster *c, const struct plan *p, int *first, int *order)
{
	memset(first, 0, (size_t)(c->n_nodes + 1) * sizeof *first);
	for (int i = 0; i < p->world; i++)
		first[p->ranks[i].node + 1]++;
	for (int n = 0; n < c->n_nodes; n++)
		first[n + 1] += first[n];
	for (int i = p->world - 1; i >= 0; i--)
		order[--first[p->ranks[i].node + 1]] = i;
	/* Each entry is now the beginning of its node, but stored one place too late. */
	memmove(first, first + 1, (size_t)c->n_nodes * sizeof *first);
	first[c->n_nodes] = p->world;
}

/* An agent's equal share of the cores of the node with the most ranks. */
static int cores_each(const struct cluster *c, const int *first)
{
	int least = 0;
	for (int n = 0; n < c->n_nodes; n++) {
		int agents = first[n + 1] - first[n];
		if (agents && (!least || topo_cluster_kind(c, n)->cores / agents < least))
			least = topo_cluster_kind(c, n)->cores / agents;
	}
	return least > 0 ? least : 1;
}

/* Counts the ranks that share a node: node_ranks and node_replicas. */
static void count_node_ranks(struct plan *p, const int *ranks, int n)
{
	for (int i = 0; i < n; i++) {
		struct plan_rank *r = &p->ranks[ranks[i]];
		r->node_ranks = n;
		for (int k = 0; k < n; k++) {
			const struct coords *other = &p->ranks[ranks[k]].at;
			r->node_replicas += other->tp == r->at.tp && other->pp == r->at.pp;
		}
	}
}

static int set_threads(const struct job *job, const struct cluster *c, struct plan *p,
		       struct err *e)
{
	int *first = calloc((size_t)c->n_nodes + 2, sizeof *first),
	    *order = calloc((size_t)p->world, sizeof *order);
	if (!first || !order) {
		free(first);
		free(order);
		return err_set(e, ERR_NOMEM, "no memory for %d nodes; close other programs",
			       c->n_nodes);
	}
	plan_ranks_by_node(c, p, first, order);
	int each = cores_each(c, first);
	for (int i = 0; i < p->world; i++) {
		int asked = speeds_threads(job, i);
		p->ranks[i].threads = asked ? asked : each;
		p->threads = p->ranks[i].threads > p->threads ? p->ranks[i].threads : p->threads;
	}
	for (int n = 0; n < c->n_nodes; n++)
		count_node_ranks(p, order + first[n], first[n + 1] - first[n]);
	free(order);
	free(first);
	return 0;
}

int plan_assign_devices(const struct job *job, const struct cluster *c, struct plan *p,
			struct err *e)
{
	p->ranks = calloc((size_t)p->world, sizeof *p->ranks);
	if (!p->ranks)
		return err_set(e, ERR_NOMEM,
			       "no memory for a plan of %d ranks; close other programs", p->world);
	return map_ranks(job, c, p, e) || set_threads(job, c, p, e) ? -1 : 0;
}
