#include "plan/plan.h"

#include "base/human.h"
#include "plan/unaligned.h"
#include "plan/search/fit.h"
#include "plan/parts.h"
#include "plan/rank_devices.h"
#include "plan/spec/speeds.h"
#include "plan/capacity.h"
#include "plan/cost/cost.h"
#include "plan/cost/devices.h"
#include "plan/cost/engine.h"
#include "plan/memory.h"
#include "plan/memory_programs.h"
#include "plan/layout_text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void plan_warn(struct plan *p, const char *fmt, ...)
{
	size_t used = strlen(p->warning);
	if (used)
		used += (size_t)snprintf(p->warning + used, sizeof p->warning - used, "; ");
	va_list ap;
	va_start(ap, fmt);
	if (used < sizeof p->warning)
		vsnprintf(p->warning + used, sizeof p->warning - used, fmt, ap);
	va_end(ap);
}

static void warn_crossing(struct plan *p, const struct cluster *c)
{
	int groups = p->world / p->layout.tp, room = plan_groups(c, p->layout.tp);
	if (p->place.links[GROUP_TP].hops && room < groups)
		plan_warn(
			p,
			"tensor-parallel groups of %d cross nodes, as %s has room for %d of the %d "
			"groups inside its nodes: expect slow steps; lower parallel.tp",
			p->layout.tp, c->name, room, groups);
}

static bool has_room(const struct cluster *c, const struct layout *l)
{
	return (int64_t)l->tp * l->cp * l->dp * l->pp <= plan_devices(c);
}

static int refuse_world(const struct job *job, const struct cluster *c, const struct layout *l,
			struct err *e)
{
	struct buf hint = BUF_INIT;
	if (!e)
		return -1;
	if (job_has_program(job)) {
		buf_puts(&hint, "; use fewer tasks or more nodes");
	} else if (!e->brief) {
		buf_puts(&hint, "; ");
		search_fit_hint(job, c, l, &hint);
	}
	struct buf degrees = BUF_INIT;
	plan_print_degrees(l, " × ", &degrees);
	err_set(e, ERR_NOFIT, "%s = %lld ranks, and %s has %d device%s%s", buf_str(&degrees),
		(long long)l->tp * l->cp * l->dp * l->pp, c->name, plan_devices(c),
		human_s(plan_devices(c)), buf_str(&hint));
	buf_fini(&degrees);
	buf_fini(&hint);
	return -1;
}

static int decide_layout(const struct job *job, const struct cluster *c, struct plan *p,
			 struct err *e)
{
	p->layout = layout_of(job, (int)job->parallel.dp);
	if (!p->layout.dp)
		p->layout.dp = plan_fill_dp(job, c, &p->layout);
	if (!has_room(c, &p->layout))
		return refuse_world(job, c, &p->layout, e);
	p->world = layout_world(&p->layout);
	int named = speeds_devices(job);
	if (named && named != p->world)
		return err_set(e, ERR_USAGE,
			       "[launch] %s names %d devices, and the job has %d ranks; name as "
			       "many, or set parallel.dp",
			       *job->launch.speeds ? "speeds" : "threads", named, p->world);
	return 0;
}

static int share_work(const struct job *job, struct plan *p, struct err *e)
{
	p->stages = calloc((size_t)layout_n_stages(&p->layout), sizeof *p->stages);
	p->shares = calloc((size_t)p->layout.dp, sizeof *p->shares);
	if (!p->stages || !p->shares)
		return err_set(e, ERR_NOMEM,
			       "no memory for a plan of %d replicas; close other programs",
			       p->layout.dp);
	if (speeds_stages(job, &p->shape, &p->layout, p->stages, e) ||
	    batch_split(job, &p->shape, &p->layout, p->stages, p->shares, e))
		return -1;
	for (int dp = 0; dp < p->layout.dp; dp++)
		p->micros = p->shares[dp].micros > p->micros ? p->shares[dp].micros : p->micros;
	return 0;
}

/* Refuses shards inside nodes if nodes hold different numbers of replicas. The replicas of a
 * parameter on one node share its state; every ep-th of them holds the same experts. */
static int check_node_replicas(const struct job *job, const struct cluster *c, const struct plan *p,
			       struct err *e)
{
	int ep = p->layout.ep;
	if (!job->parallel.zero || job->parallel.zero_shard != ZERO_SHARD_NODE)
		return 0;
	for (int i = 0; i < p->world; i++) {
		int mine = p->ranks[i].node_replicas;
		if (mine != p->ranks[0].node_replicas || (mine % ep && ep % mine))
			return err_set(e, ERR_USAGE,
				       "[parallel] zero_shard = node: %s holds %d replicas of a "
				       "parameter and %s %d, of whose experts ep = %d go to "
				       "different ranks; use zero_shard = all, or a dp that "
				       "spreads evenly",
				       c->nodes[p->ranks[0].node].name, p->ranks[0].node_replicas,
				       c->nodes[p->ranks[i].node].name, mine, ep);
	}
	return 0;
}

static void warn_guesses(struct plan *p, const struct cluster *c)
{
	for (int i = 0; i < c->n_kinds; i++) {
		const struct node_kind *k = &c->kinds[i];
		if (k->device_flops > 0 || k->measured || k->chip)
			continue;
		plan_warn(
			p,
			"nothing is known of how fast %.40s's devices (%.40s) compute: all times "
			"are guesses, good for comparing layouts at most; name the \"device\" in "
			"what muster topo --json prints of it (A100-SXM4-80GB), or its "
			"device_flops, device_bandwidth and device_memory, and plan for that file",
			k->name, k->device);
		return;
	}
}

static void warn_idle(const struct job *job, struct plan *p)
{
	if (job->parallel.zero && p->layout.dp * p->layout.cp == 1)
		plan_warn(p, "zero = %d has no replicas to shard over: dp × cp = 1",
			  (int)job->parallel.zero);
}

/* What processors do was measured of muster's own engine. */
static void warn_program(const struct job *job, struct plan *p, const struct cluster *c)
{
	if (plan_memory_foreign(job) && plan_on_cpu(topo_cluster_kind(c, p->ranks[0].node)))
		plan_warn(p,
			  "%s is known on GPUs only: here its times and memory are guesses; name "
			  "a cluster of GPUs (--cluster)",
			  cost_engines[job->plan.engine]->name);
}

/* Warns of types that a device has no products for; it converts them to a wider type first. For a
 * device that muster does not list, only its data sheet figures are known. */
static void warn_types_of(const struct job *job, struct plan *p, const struct node_kind *k)
{
	struct cost_machine m;
	if (plan_on_cpu(k) || k->device_flops <= 0)
		return;
	cost_machine_of(k, true, 1, &m);
	if (!m.listed && !k->chip) {
		plan_warn(
			p,
			"muster does not know %s: its products are taken to reach %.0f %% of its "
			"device_flops, in bf16 as in fp16 and no faster in 8 bits; if it is like a "
			"device that muster knows, name that one as \"device\" in the file of "
			"muster topo --json",
			k->device, 100 * cost_machine_pace(&m) / k->device_flops);
		return;
	}
	if (job->precision.fp8 != FP8_OFF && !(m.eight > 0))
		plan_warn(p,
			  "%s has no products of 8-bit numbers: [precision] fp8 only costs time "
			  "there; leave it out",
			  k->device);
	if (cost_device_lacks(job, k))
		plan_warn(
			p,
			"%s has no products in bf16, and computes them far slower than predicted; "
			"use precision.dtype = fp16",
			k->device);
}

/* Each kind once that has ranks. */
static void warn_types(const struct job *job, struct plan *p, const struct cluster *c)
{
	for (int kind = 0; kind < c->n_kinds; kind++) {
		int i = 0;
		while (i < p->world && c->nodes[p->ranks[i].node].kind != kind)
			i++;
		if (i < p->world)
			warn_types_of(job, p, &c->kinds[kind]);
	}
}

void plan_warn_machines(const struct job *job, const struct cluster *c, struct plan *p)
{
	warn_types(job, p, c);
	warn_program(job, p, c);
	warn_guesses(p, c);
}

static void warn_unaligned(const struct job *job, struct plan *p)
{
	struct buf sizes = BUF_INIT;
	plan_unaligned_print(job, &p->shape, &p->layout, &sizes);
	if (sizes.len)
		plan_warn(p, "%s", buf_str(&sizes));
	buf_fini(&sizes);
}

/* Sets the ranks' bytes, and takes smaller chunks of logits while some rank lacks memory. */
static void fit_logits(struct job *job, const struct cluster *c, struct plan *p)
{
	int64_t less;
	plan_memory(job, c, p);
	while (!search_fit_devices(c, p) && (less = plan_memory_logits_less(job)) > 0) {
		job->batch.logits = less;
		plan_memory(job, c, p);
	}
	p->logits = job->batch.logits;
}

/* Of a program muster knows the degrees only. It predicts neither its memory nor its steps. */
static int place_program(const struct job *job, const struct cluster *c, struct plan *p,
			 struct err *e)
{
	if (plan_assign_devices(job, c, p, e))
		return -1;
	p->logits = job->batch.logits;
	warn_crossing(p, c);
	return 0;
}

/* mine: a copy of the job, in which the plan decides what the job leaves to it. */
static int build_with(const struct job *job, struct job *mine, const struct cluster *c,
		      struct plan *p, struct err *e)
{
	if (job->open)
		return err_set(e, ERR_USAGE,
			       "the job leaves keys to muster ([parallel] auto, or = auto), and "
			       "nothing has decided them; decide them first");
	shape_of_job(job, &p->shape);
	if (decide_layout(job, c, p, e))
		return -1;
	if (job_has_program(job))
		return place_program(job, c, p, e);
	if (share_work(job, p, e) || plan_assign_devices(job, c, p, e) ||
	    cost_set_slowest(job, c, p, e) || check_node_replicas(job, c, p, e))
		return -1;
	warn_crossing(p, c);
	warn_idle(job, p);
	warn_unaligned(job, p);
	plan_warn_machines(job, c, p);
	if (schedule_build(job->parallel.schedule, &p->layout, p->shares[p->slowest_replica].micros,
			   &p->schedule, e) ||
	    schedule_check(&p->schedule, e))
		return -1;
	fit_logits(mine, c, p);
	if (search_fit_memory(job, c, p, e))
		return -1;
	return cost_of_plan(mine, c, p, e);
}

static int build(const struct job *job, const struct cluster *c, struct plan *p, struct err *e)
{
	struct job *mine = malloc(sizeof *mine); /* too large for a small stack */
	if (!mine)
		return err_set(e, ERR_NOMEM, "no memory for a plan; close other programs");
	*mine = *job;
	int rc = build_with(job, mine, c, p, e);
	free(mine);
	return rc;
}

/* --- Mixed clusters --- */

/* The nodes of the whole cluster that have no rank, instead of those of a part. */
static int list_spares(const struct cluster *all, struct plan *p, struct err *e)
{
	int *spares = calloc((size_t)all->n_nodes + 1, sizeof *spares), n = 0;
	if (!spares)
		return err_set(e, ERR_NOMEM, "no memory for %d nodes; close other programs",
			       all->n_nodes);
	for (int i = 0; i < p->world; i++)
		spares[p->ranks[i].node] = 1;
	for (int i = 0; i < all->n_nodes; i++)
		if (!spares[i])
			spares[n++] = i;
	free(p->place.spares);
	p->place.spares = spares;
	p->place.n_spares = n;
	return 0;
}

/* Builds the plan on a part of the cluster. */
static int build_on(const struct job *job, const struct plan_parts *parts, int i, struct plan *p,
		    struct err *e)
{
	struct plan_part part;
	if (plan_part_open(parts, i, &part, e))
		return -1;
	int rc = build(job, &part.cluster, p, e);
	for (int r = 0; !rc && r < p->world; r++)
		p->ranks[r].node = part.nodes[p->ranks[r].node];
	if (!rc && part.cluster.n_nodes < parts->all->n_nodes)
		rc = list_spares(parts->all, p, e);
	plan_part_close(&part);
	if (rc)
		plan_free(p);
	return rc;
}

/* Keeps the faster plan in `best`. Of equally fast ones the first stays. */
static void keep_faster(struct plan *best, struct plan *p)
{
	if (best->world && best->time.total <= p->time.total * (1 + 1e-9)) {
		plan_free(p);
		return;
	}
	plan_free(best);
	*best = *p;
}

int plan_build(const struct job *job, const struct cluster *cluster, struct plan *out,
	       struct err *e)
{
	struct plan_parts parts;
	struct plan best = { 0 }, p = { 0 };
	if (plan_parts_open(job, cluster, &parts, e))
		return -1;
	for (int i = 0; parts.n > 1 && i < parts.n; i++)
		if (!build_on(job, &parts, i, &p, NULL)) {
			keep_faster(&best, &p);
			p = (struct plan){ 0 };
		}
	plan_parts_close(&parts);
	/* What all parts lack is said of the whole cluster. */
	if (!best.world && build(job, cluster, &best, e)) {
		plan_free(&best);
		return -1;
	}
	*out = best;
	return 0;
}

void plan_free(struct plan *p)
{
	schedule_free(&p->schedule);
	free(p->seconds);
	free(p->ranks);
	place_placement_free(&p->place);
	free(p->shares);
	free(p->stages);
	*p = (struct plan){ 0 };
}
