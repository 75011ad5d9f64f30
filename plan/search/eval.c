#include "plan/search/eval_levels.h"

#include "plan/spec/batch.h"
#include "plan/cost/devices.h"
#include "plan/cost/engine.h"
#include "plan/cost/unlike.h"
#include "plan/memory_library.h"
#include "plan/search/fit.h"
#include "plan/spec/speeds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- Computed once --- */

static int largest_box(const struct cluster *c)
{
	int most = 1;
	for (int i = 0; i < c->n_kinds; i++)
		most = c->kinds[i].devices > most ? c->kinds[i].devices : most;
	return most;
}

/* Lists the machines of unlike devices. */
static bool open_own(struct eval *v, const struct space *s)
{
	struct eval_devices *own = &v->own;
	own->n = s->named ? s->cluster->n_kinds : 0;
	own->machines = calloc((size_t)own->n + 1, sizeof *own->machines);
	own->rates = calloc((size_t)own->n + 1, sizeof *own->rates);
	own->nodes = calloc((size_t)own->n + 1, sizeof *own->nodes);
	own->linked = calloc((size_t)own->n + 1, sizeof *own->linked);
	own->links = calloc((size_t)own->n + 1, sizeof *own->links);
	own->kinds = calloc((size_t)s->named + 1, sizeof *own->kinds);
	own->slots = calloc((size_t)s->named + 1, sizeof *own->slots);
	own->holders = calloc((size_t)s->named + 1, sizeof *own->holders);
	own->speeds = calloc((size_t)s->named + 1, sizeof *own->speeds);
	v->n_own = own->n + 1; /* the first one is the case's */
	v->passes = calloc((size_t)STREAMS * (size_t)v->n_own, sizeof *v->passes);
	if (!own->nodes || !own->linked || !own->links || !own->machines || !own->rates ||
	    !own->kinds || !own->slots || !own->holders || !own->speeds || !v->passes)
		return false;
	for (int i = 0; i < own->n; i++) {
		const struct node_kind *k = &s->cluster->kinds[i];
		if (plan_on_cpu(k))
			continue;
		cost_machine_of_agents(k, s->job->precision.dtype != DTYPE_FP32, 1, 1,
				       &own->machines[i]);
		own->rates[i] = cost_unlike_rate(s->job, &s->shape, &own->machines[i]);
		own->linked[i] = own->rates[i] > 0 && cost_unlike_node(k, &own->nodes[i]);
	}
	return true;
}

const struct cost_machine *search_eval_machine(const struct eval *v, int i)
{
	return i && v->own.rates[i - 1] > 0 ? &v->own.machines[i - 1] : v->cost.machine;
}

const struct group_links *search_eval_links(const struct eval *v, int i)
{
	return i && v->own.linked[i - 1] ? v->own.links[i - 1] : NULL;
}

struct eval *search_eval_open(const struct space *s, struct err *e)
{
	struct eval *v = calloc(1, sizeof *v);
	size_t stages = (size_t)search_space_stages(s) + 1,
	       most = (size_t)(s->devices < 1024 ? s->devices : 1024) + 1;
	if (v && place_regular_cluster_of(s->cluster, &v->regular, e)) {
		free(v);
		return NULL;
	}
	if (v) {
		v->space = s;
		v->job = *s->job;
		v->box = largest_box(s->cluster);
		v->machines = calloc((size_t)v->box + 1, sizeof *v->machines);
		v->machine_set = calloc((size_t)v->box + 1, sizeof *v->machine_set);
		v->limits = calloc((size_t)v->box + 1, sizeof *v->limits);
		v->host_limits = calloc((size_t)v->box + 1, sizeof *v->host_limits);
		v->stages = calloc(stages, sizeof *v->stages);
		v->uncut = calloc(stages, sizeof *v->uncut);
		v->own_stages = calloc(stages, sizeof *v->own_stages);
		v->shares = calloc((size_t)s->named + 1, sizeof *v->shares);
		v->streams = calloc(STREAMS, sizeof *v->streams);
		v->kinds = calloc(most, sizeof *v->kinds);
		v->kind_of = calloc(most, sizeof *v->kind_of);
		v->away = calloc(most, sizeof *v->away);
		v->live = search_live_open();
	}
	if (!v || !open_own(v, s) || !v->machines || !v->machine_set || !v->limits ||
	    !v->host_limits || !v->stages || !v->uncut || !v->own_stages || !v->shares ||
	    !v->streams || !v->kinds || !v->kind_of || !v->away || !v->live) {
		search_eval_close(v);
		err_set(e, ERR_NOMEM, "no memory to search layouts on %s; close other programs",
			s->cluster->name);
		return NULL;
	}
	for (int i = 0; i < s->cluster->n_kinds; i++)
		v->on_cpu |= plan_on_cpu(&s->cluster->kinds[i]);
	v->job.open = 0;
	if (s->job->open & OPEN_STAGES)
		memset(v->job.parallel.stages, 0, sizeof v->job.parallel.stages);
	v->cost = (struct cost_case){ .job = &v->job,
				      .shape = &s->shape,
				      .layout = &v->layout,
				      .units = &v->units[0],
				      .group_links = v->group_links,
				      .engine = cost_engines[s->job->plan.engine] };
	return v;
}

void search_eval_close(struct eval *v)
{
	if (!v)
		return;
	for (int64_t n = 0; v->stages && n <= search_space_stages(v->space); n++)
		free(v->stages[n]);
	free(v->machines);
	free(v->machine_set);
	free(v->limits);
	free(v->host_limits);
	free(v->stages);
	free(v->uncut);
	free(v->own_stages);
	free(v->own.machines);
	free(v->own.rates);
	free(v->own.nodes);
	free(v->own.linked);
	free(v->own.links);
	free(v->own.kinds);
	free(v->own.slots);
	free(v->own.holders);
	free(v->own.speeds);
	free(v->passes);
	free(v->shares);
	free(v->streams);
	free(v->kinds);
	free(v->kind_of);
	free(v->away);
	free(v->states);
	search_live_close(v->live);
	free(v);
}

/* --- Grid --- */

/* The number of agents on the fullest node. */
int search_eval_agents(const struct eval *v)
{
	int world = layout_world(&v->layout);
	return world < v->box ? world : v->box;
}

/* Sets the machine of the slowest kind of node with so many agents on a node; of the fastest
 * kind if the job names speeds. */
static void set_machine(struct eval *v, int agents)
{
	const struct cluster *c = v->space->cluster;
	double limit = 0, host = INFINITY, found = 0;
	for (int i = 0; i < c->n_kinds; i++) {
		const struct node_kind *k = &c->kinds[i];
		int here = agents < k->devices ? agents : k->devices,
		    asked = speeds_threads(&v->job, 0), share = k->cores / here;
		struct cost_machine m;
		cost_machine_of_agents(k, v->job.precision.dtype != DTYPE_FP32, here,
				       asked       ? asked
				       : share > 0 ? share
						   : 1,
				       &m);
		double has = search_fit_limit(k, here), rate = cost_machine_pace(&m);
		limit = has > 0 && (limit <= 0 || has < limit) ? has : limit;
		/* What an unknown host holds is not judged, but it is no room to spare. */
		if (k->memory > 0 || v->space->roomy)
			host = fmin(host, search_fit_host(k, here));
		if (i == 0 || (v->space->named ? rate > found : rate < found)) {
			found = rate;
			v->machines[agents] = m;
		}
	}
	v->limits[agents] = limit;
	v->host_limits[agents] = host;
	v->machine_set[agents] = true;
}

/* The first tp rank whose piece of the vocabulary has a grain less than the first rank's. */
static int shorter_vocab(const struct eval *v)
{
	int64_t n = v->space->shape.vocab;
	int tp = v->layout.tp;
	return (int)(n / layout_partition_grain(n, tp, CATALOGUE_VOCAB_GRAIN) % tp);
}

static void set_units(struct eval *v)
{
	if (v->units_tp == v->layout.tp && v->units_ep == v->layout.ep)
		return;
	v->tp_ranks[0] = 0;
	v->tp_ranks[1] = v->layout.tp - 1;
	v->tp_ranks[2] = shorter_vocab(v);
	for (int end = 0; end < TP_KINDS; end++)
		cost_units_of(&v->space->shape, &v->layout, v->tp_ranks[end], &v->units[end]);
	v->units_tp = v->layout.tp;
	v->units_ep = v->layout.ep;
}

/* Whether the last tp rank has the same share as the first one in everything that counts. */
static bool tp_ranks_equal(const struct eval *v)
{
	const struct model_shape *m = &v->space->shape;
	int tp = v->layout.tp;
	return tp == 1 ||
	       (!memcmp(&v->units[0], &v->units[1], sizeof v->units[0]) && m->kv_heads % tp == 0 &&
		m->ffn % tp == 0 && m->vocab % tp == 0 && !v->on_cpu);
}

bool search_eval_grid(struct eval *v, int tp, int cp, int ep, int pp, int dp)
{
	struct search_config *c = &v->config;
	*c = (struct search_config){ .tp = tp,
				     .cp = cp,
				     .ep = ep,
				     .pp = pp,
				     .dp = dp,
				     .every = 1,
				     .chunks = 1,
				     .micro = 1 };
	memcpy(c->speeds, v->space->job->launch.speeds, sizeof c->speeds);
	search_config_apply(c, &v->job);
	v->layout = search_config_layout(c);
	if ((int64_t)tp * cp * dp * pp > v->space->devices)
		return false;
	int agents = search_eval_agents(v);
	if (!v->machine_set[agents])
		set_machine(v, agents);
	v->cost.machine = &v->machines[agents];
	v->fold = place_block_box(&v->regular, &v->layout);
	place_group_links_regular(&v->regular, &v->layout, &v->fold, v->group_links);
	cost_machine_links(v->cost.machine, v->group_links);
	for (int i = 0; i < v->own.n; i++)
		if (v->own.linked[i])
			cost_unlike_links(&v->own.nodes[i], &v->own.machines[i], &v->layout,
					  v->group_links, v->own.links[i]);
	v->cost.node_replicas = v->fold.dp * v->fold.cp;
	set_units(v);
	v->tp_kinds = tp_ranks_equal(v) ? 1 : v->tp_ranks[2] ? TP_KINDS : TP_KINDS - 1;
	v->n_states = 0;
	v->own.set = false;
	return true;
}

/* --- Stream --- */

static struct cost_pass less(struct cost_pass a, const struct cost_pass *b)
{
	cost_add(&a, b, -1);
	return a;
}

/* All layers have the same cost, so a stage's pass is the sum of its layers and of its ends. */
static void set_passes_on(const struct eval *v, const struct cost_machine *machine,
			  const struct group_links *links, struct eval_passes *s)
{
	struct stage recomputed = { 0, 1, false, false }, kept = { 1, 2, false, false },
		     first = { 0, 1, true, false }, last = { 0, 1, false, true };
	struct cost_device d = { machine, 1, 1, links };
	s->recomputed = cost_pass_on(&v->cost, &d, &recomputed);
	s->kept = v->config.every > 1 ? cost_pass_on(&v->cost, &d, &kept) : s->recomputed;
	s->first = less(cost_pass_on(&v->cost, &d, &first), &s->recomputed);
	s->last = less(cost_pass_on(&v->cost, &d, &last), &s->recomputed);
}

static void set_passes(struct eval *v, struct eval_stream *s)
{
	v->job.offload.activations = false; /* the line adds them */
	for (int i = 0; i < v->n_own; i++)
		set_passes_on(v, search_eval_machine(v, i), search_eval_links(v, i), &s->passes[i]);
	s->links[0] = v->group_links[GROUP_TP];
	s->links[1] = v->group_links[GROUP_CP];
	s->links[2] = v->group_links[GROUP_EP];
	s->machine = v->cost.machine;
}

static bool same_links(const struct eval *v, const struct eval_stream *s)
{
	return s->machine == v->cost.machine &&
	       !memcmp(&s->links[0], &v->group_links[GROUP_TP], sizeof s->links[0]) &&
	       !memcmp(&s->links[1], &v->group_links[GROUP_CP], sizeof s->links[0]) &&
	       !memcmp(&s->links[2], &v->group_links[GROUP_EP], sizeof s->links[0]);
}

static unsigned mix(unsigned h, int x)
{
	return (h ^ (unsigned)x) * 2654435761u;
}

bool search_eval_stream(struct eval *v, int micro, bool sp, const struct space_recompute *again)
{
	struct search_config *c = &v->config;
	unsigned h = mix(mix(mix(mix(mix(mix(mix(7, c->tp), c->cp), c->ep), micro), sp),
			     (int)again->mode),
			 again->every);
	struct eval_stream *s = &v->streams[(h >> 12) % STREAMS];
	c->micro = micro;
	c->sp = sp;
	c->mode = again->mode;
	c->every = again->every;
	v->job.batch.micro = micro;
	v->job.parallel.sp = sp;
	v->job.recompute.mode = again->mode;
	v->job.recompute.every = again->every;
	v->stream = s;
	v->cost.micros = (int)(v->job.batch.global / micro / c->dp);
	bool known = s->set && s->tp == c->tp && s->cp == c->cp && s->ep == c->ep &&
		     s->micro == micro && s->sp == sp && s->again.mode == again->mode &&
		     s->again.every == again->every;
	if (!known) {
		*s = (struct eval_stream){ .set = true,
					   .passes = v->passes + (s - v->streams) * v->n_own,
					   .tp = c->tp,
					   .cp = c->cp,
					   .ep = c->ep,
					   .micro = micro,
					   .sp = sp,
					   .again = *again };
		set_passes(v, s);
	} else if (!same_links(v, s)) {
		set_passes(v, s);
	}
	return v->cost.micros > 0;
}

static double busy_of(const struct cost_pass *t)
{
	return cost_forward(t) + cost_backward(t);
}

/* The work of all layers and of both ends on the fastest machine. */
static double least_work(const struct eval *v)
{
	double layers = (double)v->space->shape.layers,
	       again = v->config.every > 1 ? floor((layers + v->config.every - 1) / v->config.every)
					   : layers;
	double kept = INFINITY, redone = INFINITY, first = INFINITY, last = INFINITY;
	for (int i = 0; i < v->n_own; i++) {
		const struct eval_passes *s = &v->stream->passes[i];
		kept = fmin(kept, busy_of(&s->kept));
		redone = fmin(redone, busy_of(&s->recomputed));
		first = fmin(first, busy_of(&s->first));
		last = fmin(last, busy_of(&s->last));
	}
	return again * redone + (layers - again) * kept + first + last;
}

/* The busiest rank has at least the mean work of all ranks. */
double search_eval_stream_bound(const struct eval *v)
{
	return (double)v->job.batch.global / v->config.micro / v->config.dp / v->config.pp *
	       least_work(v) * (1 - 1e-9);
}

/* --- Leaf --- */

bool search_eval_zero(const struct eval *v, const struct space_zero *z)
{
	int replicas = v->layout.dp * v->layout.cp, node_replicas = v->cost.node_replicas,
	    ep = v->layout.ep;
	if (z->stage == 0)
		return true;
	if (replicas == 1)
		return false;
	for (int d = 1; z->stage >= 2 && v->space->named && d < v->layout.dp; d++)
		if (v->shares[d].micros != v->shares[0].micros)
			return false;
	return z->shard == ZERO_SHARD_ALL || (node_replicas > 1 && node_replicas < replicas &&
					      (node_replicas % ep == 0 || ep % node_replicas == 0));
}

/* Adds up the line's ranks, each kind once. If ZeRO is that of the previous leaf, only the place of
 * the optimizer state may differ. */
static void set_sum(struct eval *v, const struct space_zero *z)
{
	if (v->has_sum && v->summed.stage == z->stage && v->summed.shard == z->shard) {
		v->sum.optimizer = 0;
		for (int k = 0; k < v->n_kinds; k++)
			v->sum.optimizer = fmax(v->sum.optimizer,
						cost_update(&v->cost, &v->kinds[k].cost));
		return;
	}
	v->sum = (struct cost_sum){ 0 };
	for (int k = 0; k < v->n_kinds; k++)
		cost_sum_add(&v->cost, &v->kinds[k].cost, &v->sum);
	v->summed = *z;
	v->has_sum = true;
}

/* Sets the leaf's bytes with this chunk of logits. Returns whether the largest rank fits. */
static bool set_bytes(struct eval *v, int64_t logits, double most, struct eval_leaf *out)
{
	if (logits != v->job.batch.logits) {
		v->job.batch.logits = logits;
		v->counted = false;
	}
	v->counted = v->counted || search_eval_activations(v);
	out->rank = (struct plan_rank){ .total = INFINITY };
	out->host = v->counted ? search_eval_largest(v, &out->rank) : 0;
	return v->counted && (out->limit <= 0 || out->rank.total <= most);
}

static int64_t smaller_logits(struct eval *v, int64_t logits)
{
	struct job *job = &v->job;
	int64_t now = job->batch.logits;
	job->batch.logits = logits;
	int64_t less = plan_memory_logits_less(job);
	job->batch.logits = now;
	return less;
}

/* The most that smaller chunks of logits can save: a chunk, and for each of its rows, which have at
 * least 256 bytes, a maximum and two sums in fp32. */
static double logits_bytes(int64_t logits)
{
	return (1 + 12.0 / 256) * (double)(logits << 20);
}

/* Takes the largest chunk of logits with which the largest rank fits, as a plan does. The smallest
 * one is tried first, because most leaves that do not fit do not fit with it either. */
static bool fit_bytes(struct eval *v, double most, struct eval_leaf *out)
{
	int64_t asked = v->job.batch.logits, least = asked, less;
	if (set_bytes(v, asked, most, out))
		return true;
	if (out->rank.total - logits_bytes(asked) > EVAL_NEARLY * most)
		return false;
	while ((less = smaller_logits(v, least)) > 0)
		least = less;
	if (least == asked)
		return false;
	bool fits = set_bytes(v, least, most, out);
	less = smaller_logits(v, asked);
	while (fits && !set_bytes(v, less, most, out))
		less = smaller_logits(v, less);
	v->job.batch.logits = asked; /* that of the times, and of the next leaf */
	v->counted = false;
	return fits;
}

void search_eval_leaf(struct eval *v, const struct space_zero *z, bool optimizer,
		      struct eval_leaf *out)
{
	struct search_config *c = &v->config;
	c->zero = z->stage;
	c->shard = z->shard;
	c->optimizer = optimizer;
	v->job.parallel.zero = z->stage;
	v->job.parallel.zero_shard = z->shard;
	v->job.offload.optimizer = optimizer;
	set_sum(v, z);
	cost_sum_parts(&v->cost, &v->sum, v->whole, &out->time);
	out->config = *c;
	out->limit = search_fit_beside(v->limits[search_eval_agents(v)],
				       plan_memory_library(&v->job, &v->space->shape, &v->layout));
	out->host_limit = v->host_limits[search_eval_agents(v)];
	bool away = c->optimizer || c->activations;
	double most = out->limit * (v->space->roomy && !v->on_cpu ? SPACE_ROOMY : 1);
	out->fits = fit_bytes(v, most, out) && (!away || v->on_cpu || out->host <= out->host_limit);
}

bool search_eval_config(struct eval *v, const struct search_config *c, struct eval_leaf *out)
{
	struct space_recompute again = { c->mode, c->every };
	struct space_zero zero = { c->zero, c->shard };
	int64_t share = (int64_t)c->micro * c->dp;
	bool batch = v->space->named || v->job.batch.global % share == 0;
	if (!batch || !search_eval_grid(v, c->tp, c->cp, c->ep, c->pp, c->dp) ||
	    !search_eval_stream(v, c->micro, c->sp, &again) ||
	    !search_eval_line(v, c->schedule, c->chunks, c->activations) ||
	    !search_eval_zero(v, &zero))
		return false;
	search_eval_leaf(v, &zero, c->optimizer, out);
	return true;
}
