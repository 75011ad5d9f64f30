#include "plan/cost/devices.h"
#include "plan/cost/step.h"

#include "plan/capacity.h"
#include "plan/spec/speeds.h"

#include <math.h>
#include <stdlib.h>

/* A list of speeds may be rounded by this share. */
#define ROUNDED 0.03

static int alloc_costs(struct plan *p, struct err *e)
{
	size_t n = (size_t)layout_n_stages(&p->layout);
	p->seconds = calloc(3 * n, sizeof *p->seconds);
	if (!p->seconds)
		return err_set(e, ERR_NOMEM,
			       "no memory to predict %zu stages; close other programs", n);
	p->costs = (struct sched_costs){ .forward = p->seconds,
					 .input = p->seconds + n,
					 .weight = p->seconds + 2 * n,
					 .hop = 0 };
	return 0;
}

/* How much slower some rank's GPU is by its kind than the job's list of speeds says; 1: none is. */
static double overstated(const struct cost_case *x, const struct cluster *c, const struct plan *p,
			 double fastest)
{
	double most = 1, best = cost_machine_pace(x->machine);
	for (int i = 0; i < p->world && speeds_devices(x->job); i++) {
		const struct node_kind *k = topo_cluster_kind(c, p->ranks[i].node);
		struct cost_machine m;
		if (plan_on_cpu(k))
			continue;
		cost_machine_of_agents(k, x->job->precision.dtype != DTYPE_FP32, 1, 1, &m);
		double named = speeds_rank(x->job, i) / fastest;
		most = fmax(most, named * best / cost_machine_pace(&m));
	}
	return most < 1 + ROUNDED ? 1 : most;
}

/* Sets scale[pp] for each pipeline rank: its seconds in the slowest replica over its seconds on the
 * fastest device. */
static void set_scales(const struct cost_case *x, const struct cluster *c, const struct plan *p,
		       double *scale)
{
	const struct job *job = x->job;
	double fastest = speeds_fastest(job);
	double more = overstated(x, c, p, fastest);
	for (int pp = 0; pp < p->layout.pp; pp++)
		scale[pp] = more * fastest / speeds_holder(job, &p->layout, p->slowest_replica, pp);
}

/* Sets the passes of all stages, and the sum of each pipeline rank's passes. A transfer belongs to
 * the half of the backward pass that waits for it. */
static void set_costs(const struct cost_case *c, struct plan *p, struct cost_rank *ranks)
{
	int stages = layout_n_stages(&p->layout);
	double *forward = p->seconds, *input = forward + stages, *weight = input + stages,
	       wait = cost_wait(c);
	bool splits = schedule_splits(c->job->parallel.schedule);
	for (int s = 0; s < stages; s++) {
		int pp, chunk;
		layout_holder(&p->layout, s, &pp, &chunk);
		struct cost_pass t = cost_pass_of(c, &p->stages[s]);
		struct cost_rank *r = &ranks[pp];
		if (splits)
			cost_pass_halve(&t);
		cost_add(&r->pass, &t, 1);
		r->scale = c->scale[pp];
		r->layers += p->stages[s].layer_hi - p->stages[s].layer_lo;
		r->first |= p->stages[s].first;
		r->last |= p->stages[s].last;
		forward[s] = r->scale * cost_forward(&t) + wait;
		weight[s] = r->scale * t.weight;
		input[s] = r->scale * cost_backward(&t) - weight[s] + wait;
		forward[s] += cost_meeting(c, forward[s]);
		input[s] += cost_meeting(c, input[s] + (splits ? 0 : weight[s]));
	}
	p->costs.hop = cost_hop(c);
	struct cost_sharing sharing = cost_sharing(c);
	p->costs.load = sharing.load;
	p->costs.node_ranks = sharing.node_ranks;
}

/* ranks and scale have one entry for each pipeline rank. */
static int predict_step(const struct cost_case *c, struct plan *p, struct cost_rank *ranks,
			struct err *e)
{
	struct cost_sum sum = { 0 };
	set_costs(c, p, ranks);
	double whole = schedule_simulate(&p->schedule, &p->costs, NULL, NULL);
	if (whole < 0)
		return err_set(
			e, ERR_NOMEM,
			"no memory to simulate a schedule of %d stages; close other programs",
			layout_n_stages(&p->layout));
	for (int pp = 0; pp < p->layout.pp; pp++)
		cost_sum_add(c, &ranks[pp], &sum);
	cost_sum_parts(c, &sum, whole, &p->time);
	return 0;
}

int cost_of_plan(const struct job *job, const struct cluster *cluster, struct plan *p,
		 struct err *e)
{
	struct group_links group_links[GROUP_KINDS];
	struct cost_units units;
	struct cost_machine machine;
	struct cost_rank *ranks = calloc((size_t)p->layout.pp, sizeof *ranks);
	double *scale = calloc((size_t)p->layout.pp, sizeof *scale);
	struct cost_case c = {
		.job = job,
		.shape = &p->shape,
		.layout = &p->layout,
		.stages = p->stages,
		.units = &units,
		.group_links = group_links,
		.scale = scale,
		.machine = &machine,
		.engine = cost_engines[job->plan.engine],
		.micros = p->shares[p->slowest_replica].micros,
		.node_replicas = p->ranks[0].node_replicas,
	};
	int rc = ranks && scale ? 0
				: err_set(e, ERR_NOMEM,
					  "no memory to predict %d stages; close other programs",
					  p->layout.pp);
	if (!rc && !(rc = alloc_costs(p, e))) {
		for (int kind = 0; kind < GROUP_KINDS; kind++)
			group_links[kind] = p->place.links[kind].span;
		cost_machine_of_plan(job, cluster, p, &machine);
		cost_machine_links(&machine, group_links);
		cost_units_of(&p->shape, &p->layout, job->parallel.sp, &units);
		set_scales(&c, cluster, p, scale);
		rc = predict_step(&c, p, ranks, e);
	}
	free(scale);
	free(ranks);
	return rc;
}
