#include "plan/cost/devices.h"
#include "plan/cost/step.h"
#include "plan/cost/unlike.h"

#include "plan/capacity.h"
#include "plan/spec/speeds.h"

#include <math.h>
#include <stdlib.h>

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

/* The kinds of nodes of a plan's ranks: their machines, and their rates (unlike.h). */
struct kinds {
	struct cost_machine *machines;
	double *rates, best; /* 0: unused, or processors */
	/* their own links, or NULL */
	struct group_links (*links)[GROUP_KINDS];
	bool *linked;
};

static int open_kinds(const struct job *job, const struct cluster *c, const struct plan *p,
		      struct kinds *out, struct err *e)
{
	*out = (struct kinds){ calloc((size_t)c->n_kinds, sizeof *out->machines),
			       calloc((size_t)c->n_kinds, sizeof *out->rates), 0,
			       calloc((size_t)c->n_kinds, sizeof *out->links),
			       calloc((size_t)c->n_kinds, sizeof *out->linked) };
	if (!out->machines || !out->rates || !out->links || !out->linked)
		return err_set(e, ERR_NOMEM,
			       "no memory for %d kinds of nodes; close other programs", c->n_kinds);
	for (int i = 0; i < p->world && speeds_devices(job); i++) {
		int kind = c->nodes[p->ranks[i].node].kind;
		if (out->rates[kind] > 0 || plan_on_cpu(&c->kinds[kind]))
			continue;
		cost_machine_of_agents(&c->kinds[kind], job->precision.dtype != DTYPE_FP32, 1, 1,
				       &out->machines[kind]);
		out->rates[kind] = cost_unlike_rate(job, &p->shape, &out->machines[kind]);
		out->best = fmax(out->best, out->rates[kind]);
	}
	return 0;
}

/* Sets the links of each kind from those of all. */
static int set_links(const struct cluster *c, const struct layout *l,
		     const struct group_links all[GROUP_KINDS], struct kinds *k, struct err *e)
{
	struct regular_cluster *node = malloc(sizeof *node);
	if (!node)
		return err_set(e, ERR_NOMEM,
			       "no memory for the links of %d kinds of nodes; close "
			       "other programs",
			       c->n_kinds);
	for (int kind = 0; kind < c->n_kinds; kind++) {
		k->linked[kind] = k->rates[kind] > 0 && cost_unlike_node(&c->kinds[kind], node);
		if (k->linked[kind])
			cost_unlike_links(node, &k->machines[kind], l, all, k->links[kind]);
	}
	free(node);
	return 0;
}

/* The slowest device of a pipeline rank. machine: of processors. */
static struct cost_device holder_of(const struct job *job, const struct cluster *c,
				    const struct plan *p, const struct kinds *k,
				    const struct cost_machine *machine, struct coords at)
{
	const struct layout *l = &p->layout;
	double fastest = speeds_fastest(job);
	struct cost_device slowest = { 0 };
	for (int i = 0, rank = layout_rank(l, at); i < l->tp * l->cp; i++, rank++) {
		int kind = c->nodes[p->ranks[rank].node].kind;
		bool on_cpu = k->rates[kind] <= 0;
		struct cost_device mine =
			cost_unlike_device(on_cpu ? machine : &k->machines[kind], k->rates[kind],
					   k->best, speeds_rank(job, rank) / fastest, on_cpu);
		mine.links = k->linked[kind] ? k->links[kind] : NULL;
		slowest = i ? cost_unlike_slower(slowest, mine) : mine;
	}
	return slowest;
}

static void close_kinds(struct kinds *k)
{
	free(k->machines);
	free(k->links);
	free(k->linked);
	free(k->rates);
}

int cost_set_slowest(const struct job *job, const struct cluster *c, struct plan *p, struct err *e)
{
	struct kinds kinds;
	int n = p->layout.dp * p->layout.pp;
	if (!speeds_devices(job))
		return 0;
	double *speeds = calloc((size_t)n, sizeof *speeds);
	int rc = open_kinds(job, c, p, &kinds, e);
	if (!rc && !speeds)
		rc = err_set(e, ERR_NOMEM, "no memory to compare %d stages; close other programs",
			     n);
	for (int i = 0; !rc && i < n; i++) {
		struct cost_device d = holder_of(job, c, p, &kinds, NULL,
						 (struct coords){ .dp = i / p->layout.pp,
								  .pp = i % p->layout.pp });
		speeds[i] = d.rate / d.scale;
	}
	if (!rc)
		p->slowest_replica = batch_slowest(&p->shape, &p->layout, p->stages, p->shares,
						   speeds);
	close_kinds(&kinds);
	free(speeds);
	return rc;
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
		struct cost_rank *r = &ranks[pp];
		r->device = cost_device_at(c, pp);
		struct cost_pass t = cost_pass_on(c, &r->device, &p->stages[s]);
		if (splits)
			cost_pass_halve(&t);
		cost_add(&r->pass, &t, 1);
		r->layers += p->stages[s].layer_hi - p->stages[s].layer_lo;
		r->first |= p->stages[s].first;
		r->last |= p->stages[s].last;
		forward[s] = cost_forward(&t) + wait;
		weight[s] = t.weight;
		input[s] = cost_backward(&t) - weight[s] + wait;
		forward[s] += cost_meeting(c, forward[s]);
		input[s] += cost_meeting(c, input[s] + (splits ? 0 : weight[s]));
	}
	p->costs.hop = cost_hop(c);
	struct cost_sharing sharing = cost_sharing(c);
	p->costs.load = sharing.load;
	p->costs.node_ranks = sharing.node_ranks;
}

/* ranks has one entry for each pipeline rank. */
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
	struct cost_device *devices = calloc((size_t)p->layout.pp, sizeof *devices);
	struct kinds kinds = { 0 };
	struct cost_case c = {
		.job = job,
		.shape = &p->shape,
		.layout = &p->layout,
		.stages = p->stages,
		.units = &units,
		.group_links = group_links,
		.machine = &machine,
		.engine = cost_engines[job->plan.engine],
		.micros = p->shares[p->slowest_replica].micros,
		.node_replicas = p->ranks[0].node_replicas,
	};
	int rc = ranks && devices ? 0
				  : err_set(e, ERR_NOMEM,
					    "no memory to predict %d stages; close other programs",
					    p->layout.pp);
	if (!rc && !(rc = alloc_costs(p, e)) && !(rc = open_kinds(job, cluster, p, &kinds, e))) {
		for (int kind = 0; kind < GROUP_KINDS; kind++)
			group_links[kind] = p->place.links[kind].span;
		cost_machine_of_plan(job, cluster, p, &machine);
		cost_machine_links(&machine, group_links);
		cost_units_of(&p->shape, &p->layout, 0, &units);
		rc = set_links(cluster, &p->layout, group_links, &kinds, e);
		for (int pp = 0; pp < p->layout.pp && speeds_devices(job); pp++) {
			devices[pp] =
				holder_of(job, cluster, p, &kinds, &machine,
					  (struct coords){ .dp = p->slowest_replica, .pp = pp });
			c.devices = devices;
		}
		rc = rc ? rc : predict_step(&c, p, ranks, e);
	}
	close_kinds(&kinds);
	free(devices);
	free(ranks);
	return rc;
}
