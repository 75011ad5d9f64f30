#include "plan/plan.h"

#include "base/human.h"
#include "plan/fit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int devices_of(const struct cluster *c, int node)
{
	return c->kinds[c->nodes[node].kind].devices;
}

int plan_devices(const struct cluster *c)
{
	int n = 0;
	for (int i = 0; i < c->n_nodes; i++)
		n += devices_of(c, i);
	return n;
}

int plan_groups(const struct cluster *c, int tp)
{
	int n = 0;
	for (int i = 0; i < c->n_nodes; i++)
		n += devices_of(c, i) / tp;
	return n;
}

bool plan_room(const struct cluster *c, const struct layout *l)
{
	return (int64_t)l->tp * l->cp * l->dp * l->pp <= plan_devices(c);
}

int plan_fill_dp(const struct job *job, const struct cluster *c, const struct layout *l)
{
	int groups = plan_groups(c, l->tp), each = l->cp * l->pp;
	int most = groups >= each ? groups / each : plan_devices(c) / l->tp / each;
	int64_t shares = job->batch.global / job->batch.micro;
	for (int dp = most / l->ep * l->ep; dp > l->ep; dp -= l->ep)
		if (shares % dp == 0)
			return dp;
	return l->ep;
}

/* Ranks go to devices in order. `whole`: a node's last devices stay unused where no tp group fits any more. */
static void place(struct plan *p, const struct cluster *c, bool whole)
{
	int node = 0, slot = 0;
	for (int i = 0; i < p->world; i++) {
		int need = whole && i % p->layout.tp == 0 ? p->layout.tp : 1;
		while (devices_of(c, node) - slot < need) {
			node++;
			slot = 0;
		}
		p->ranks[i] = (struct plan_rank){ .at = layout_coords(&p->layout, i), .node = node, .slot = slot++ };
	}
}

static void place_all(struct plan *p, const struct cluster *c)
{
	int groups = p->world / p->layout.tp;
	bool whole = plan_groups(c, p->layout.tp) >= groups;
	place(p, c, whole);
	if (!whole)
		snprintf(p->warning, sizeof p->warning,
			 "tensor-parallel groups of %d cross nodes, as %s has room for %d of the %d groups inside its nodes: expect slow steps; lower parallel.tp",
			 p->layout.tp, c->name, plan_groups(c, p->layout.tp), groups);
}

/* Threads of an agent: an equal share of the cores of the fullest node. */
static int threads_of(const struct job *job, const struct cluster *c, const struct plan *p)
{
	int least = 0;
	if (job->launch.threads)
		return (int)job->launch.threads;
	for (int i = 0; i < p->world;) {
		int node = p->ranks[i].node, agents = 0;
		for (; i < p->world && p->ranks[i].node == node; i++)
			agents++;
		int share = c->kinds[c->nodes[node].kind].cores / agents;
		if (!least || share < least)
			least = share;
	}
	return least > 0 ? least : 1;
}

static int refuse_world(const struct job *job, const struct cluster *c, const struct layout *l, struct err *e)
{
	struct buf hint = BUF_INIT;
	fit_hint(job, c, l, &hint);
	struct buf degrees = BUF_INIT;
	plan_print_degrees(l, " × ", &degrees);
	err_set(e, ERR_NOFIT, "%s = %lld ranks, and %s has %d device%s; %s", buf_str(&degrees),
		(long long)l->tp * l->cp * l->dp * l->pp, c->name, plan_devices(c), human_s(plan_devices(c)), buf_str(&hint));
	buf_fini(&degrees);
	buf_fini(&hint);
	return -1;
}

static int decide_layout(const struct job *job, const struct cluster *c, struct plan *p, struct err *e)
{
	p->layout = layout_of(job, (int)job->parallel.dp);
	if (!p->layout.dp)
		p->layout.dp = plan_fill_dp(job, c, &p->layout);
	if (!plan_room(c, &p->layout))
		return refuse_world(job, c, &p->layout, e);
	p->world = layout_world(&p->layout);
	p->micros = (int)(job->batch.global / (job->batch.micro * p->layout.dp));
	return 0;
}

static int build(const struct job *job, const struct cluster *c, struct plan *p, struct err *e)
{
	model_shape(job, &p->shape);
	if (decide_layout(job, c, p, e))
		return -1;
	p->stages = calloc((size_t)layout_n_stages(&p->layout), sizeof *p->stages);
	p->ranks = calloc((size_t)p->world, sizeof *p->ranks);
	if (!p->stages || !p->ranks)
		return err_set(e, ERR_NOMEM, "no memory for a plan of %d ranks; close other programs", p->world);
	place_all(p, c);
	p->threads = threads_of(job, c, p);
	if (layout_stages(&p->shape, layout_n_stages(&p->layout), job->parallel.stages, NULL, p->stages, e) ||
	    schedule_build(job->parallel.schedule, &p->layout, p->micros, &p->schedule, e) ||
	    schedule_check(&p->schedule, e))
		return -1;
	plan_memory(job, c, p);
	if (fit_memory(job, c, p, e))
		return -1;
	return plan_cost(job, c, p, e);
}

int plan_build(const struct job *job, const struct cluster *cluster, struct plan *out, struct err *e)
{
	struct plan p = { 0 };
	if (build(job, cluster, &p, e)) {
		plan_free(&p);
		return -1;
	}
	*out = p;
	return 0;
}

void plan_free(struct plan *p)
{
	schedule_free(&p->schedule);
	free(p->seconds);
	free(p->ranks);
	free(p->stages);
	*p = (struct plan){ 0 };
}
