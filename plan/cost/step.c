#include "plan/cost/step.h"

#include "plan/memory_programs.h"
#include "plan/spec/schedule/closed_form.h"
#include "plan/spec/model/zero.h"
#include "plan/place/traffic.h"

#include <math.h>
#include <string.h>

enum { F32 = 4 };

double cost_width(const struct cost_case *c)
{
	return c->job->precision.dtype == DTYPE_FP32 ? 4 : 2;
}

double cost_exposed(const struct cost_case *c, double transfer, double shade)
{
	double hides = c->engine->hides > 0 ? c->engine->hides : c->machine->hides;
	return transfer - hides * fmin(transfer, shade);
}

double cost_forward(const struct cost_pass *t)
{
	return t->fwd + t->tp_fwd + t->cp_fwd + t->ep_fwd;
}

double cost_backward(const struct cost_pass *t)
{
	return t->bwd + t->again + t->tp_bwd + t->cp_bwd + t->ep_bwd;
}

void cost_add(struct cost_pass *sum, const struct cost_pass *t, double n)
{
	sum->fwd += n * t->fwd;
	sum->bwd += n * t->bwd;
	sum->weight += n * t->weight;
	sum->again += n * t->again;
	sum->tp_fwd += n * t->tp_fwd;
	sum->tp_bwd += n * t->tp_bwd;
	sum->cp_fwd += n * t->cp_fwd;
	sum->cp_bwd += n * t->cp_bwd;
	sum->ep_fwd += n * t->ep_fwd;
	sum->ep_bwd += n * t->ep_bwd;
	sum->tp_halves += n * t->tp_halves;
	sum->tp_weight += n * t->tp_weight;
}

static double message_bytes(const struct cost_case *c)
{
	return place_traffic_sizes_of(c->job, c->shape, c->layout).message;
}

double cost_hop(const struct cost_case *c)
{
	return c->engine->waits ? 0
				: place_seconds_hop(&c->group_links[GROUP_PP], message_bytes(c));
}

double cost_wait(const struct cost_case *c)
{
	bool whole = !c->job->parallel.sp && c->engine->scatters;
	if (!c->engine->waits || c->layout->pp < 2)
		return 0;
	return place_seconds_hop(&c->group_links[GROUP_PP],
				 message_bytes(c) / (whole ? c->layout->tp : 1)) +
	       c->machine->sync +
	       (whole ? place_seconds_gather(&c->group_links[GROUP_TP], message_bytes(c)) : 0);
}

double cost_meeting(const struct cost_case *c, double pass)
{
	return c->layout->pp > 1 && c->machine->crowd > 1
		       ? place_seconds_meeting(&c->group_links[GROUP_PP], pass)
		       : 0;
}

/* --- The replicas' transfers, the optimizer --- */

void cost_units_of(const struct model_shape *m, const struct layout *l, int tp_rank,
		   struct cost_units *out)
{
	struct stage other = { 0, 1, false, true }; /* its tied head is a copy */
	struct share share = {
		.tp = l->tp, .tp_rank = tp_rank, .ep = l->ep, .chunks = &other, .n_chunks = 1
	};
	for (int kind = 0; kind < UNIT_KINDS; kind++) {
		out->elements[kind] = catalogue_unit_elements(m, &share, kind);
		out->hidden[kind] = optimizer_hidden_elements(m, &share, kind);
	}
}

/* Elements of a pipeline rank's units: of the experts, or of all others. unit: [UNIT_KINDS]
 * elements of a unit. */
static double elements_of(const struct cost_case *c, const struct cost_rank *r,
			  enum zero_class class, const int64_t *unit)
{
	if (class == ZERO_EXPERTS)
		return (double)unit[UNIT_EXPERTS] * r->layers;
	bool shared = c->shape->tied && r->first; /* the head uses the embedding of the same rank */
	return (double)unit[UNIT_LAYER] * r->layers +
	       (r->first ? (double)(unit[UNIT_TOKENS] + unit[UNIT_POSITIONS]) : 0) +
	       (r->last ? (double)unit[UNIT_NORM] + (shared ? 0 : (double)unit[UNIT_HEAD]) : 0);
}

/* How the replicas of a class divide its state: the group that shares one copy of it, and the group
 * of ranks that hold the same shard. */
struct replica_groups {
	struct group_links shards, copies;
	double each; /* number of shards */
};

static struct replica_groups replica_groups_of(const struct cost_case *c, enum zero_class class)
{
	struct group_links links = c->group_links[class == ZERO_EXPERTS ? GROUP_EDP : GROUP_DP],
			   *all = &links;
	int node_replicas = class == ZERO_EXPERTS ? c->node_replicas / c->layout->ep
						  : c->node_replicas;
	if (c->engine->one_rail > 0 && all->nodes > 1)
		all->inside.bandwidth = fmin(all->inside.bandwidth,
					     c->engine->one_rail * all->across.bandwidth);
	if (c->job->parallel.zero == 0)
		return (struct replica_groups){ { .ranks = 1 }, *all, 1 };
	if (c->job->parallel.zero_shard != ZERO_SHARD_NODE || node_replicas >= all->ranks)
		return (struct replica_groups){ *all, { .ranks = 1 }, all->ranks };
	node_replicas = node_replicas > 1 ? node_replicas : 1;
	struct replica_groups cut = { *all, *all, node_replicas };
	cut.shards.inside = c->group_links[class == ZERO_EXPERTS ? GROUP_EDP : GROUP_DP].inside;
	cut.shards.ranks = cut.shards.per_node = node_replicas;
	cut.shards.nodes = 1;
	cut.copies.ranks = all->ranks / node_replicas;
	cut.copies.per_node = 1;
	return cut;
}

/* Bytes of a pipeline rank's parameters as the replicas gather them. */
static double gathered_bytes(const struct cost_case *c, const struct cost_rank *r,
			     enum zero_class class, double elements)
{
	bool eight = c->engine->shards_eight && c->job->precision.fp8 != FP8_OFF &&
		     c->machine->eight > 0;
	int64_t layer = c->units->elements[class == ZERO_EXPERTS ? UNIT_EXPERTS : UNIT_LAYER];
	double width = cost_width(c);
	return width * elements - (eight ? (width - 1) * (double)layer * r->layers : 0);
}

/* Whether operations of whole buckets are launched on a device. Other programs are fitted with the
 * host's buckets. */
static bool launches_buckets(const struct cost_case *c)
{
	return c->job->job.device == DEVICE_CUDA && !plan_memory_foreign(c->job);
}

/* Elements of a bucket over the ranks that reduce it: before ZeRO 2 all replicas' gradients are
 * whole, and afterwards parameters may be. */
static double bucket_elements(const struct cost_case *c, const struct replica_groups *cut)
{
	int ranks = c->job->parallel.zero ? cut->shards.ranks : cut->copies.ranks;
	return (double)zero_bucket(launches_buckets(c), ranks);
}

/* In how many operations that many units are reduced, or gathered, once per step. */
static double count_buckets(const struct cost_case *c, const struct replica_groups *cut,
			    double elements, double units)
{
	return launches_buckets(c) ? fmin(units, fmax(1, ceil(elements / bucket_elements(c, cut))))
				   : units;
}

/* Seconds that a rank's replicas exchange data: gradients after each micro-batch (micro) and once
 * per step (once), one gather of all parameters (params), the last bucket of gradients (last), and
 * the gather of the first bucket of parameters (first). */
struct exchange {
	double micro, once, params, last, first;
};

static void add_exchange(const struct cost_case *c, const struct cost_rank *r,
			 enum zero_class class, struct exchange *x)
{
	struct replica_groups cut = replica_groups_of(c, class);
	int64_t zero = c->job->parallel.zero;
	double elements = elements_of(c, r, class, c->units->elements),
	       grads = c->engine->grad_width * elements,
	       last = zero < 2 ? bucket_elements(c, &cut) : (double)zero_bucket(false, 0),
	       bucket = fmin(grads, F32 * last);
	/* one operation for each layer, and one for each end; or one for each bucket */
	double units = fmax(1, r->layers + r->first + r->last),
	       buckets = count_buckets(c, &cut, elements, units);
	double scatters = zero < 2 ? buckets : units, sums = zero == 0 ? buckets : units,
	       gathers = zero < 3 ? buckets : units;
	double scatter = scatters * place_seconds_scatter(&cut.shards, grads / scatters),
	       sum = sums * place_seconds_all_reduce(&cut.copies, grads / cut.each / sums);
	if (elements <= 0)
		return;
	x->micro += zero < 2 ? 0 : scatter;
	x->once += zero < 2 ? scatter + sum : sum;
	double gather = place_seconds_gather(&cut.shards,
					     gathered_bytes(c, r, class, elements) / gathers);
	x->params += gathers * gather;
	x->first = fmax(x->first, launches_buckets(c) ? gather : 0);
	x->last = fmax(x->last, place_seconds_scatter(&cut.shards, bucket) +
					place_seconds_all_reduce(&cut.copies, bucket / cut.each));
}

/* How many micro-batches' passes hide the exchange of once per step. The interleaved schedule
 * runs its first and its last group of pp micro-batches chunk by chunk, so that the exchange of
 * one chunk hides behind the group's passes through the others, and behind one pass through the
 * chunk. */
static double passes_beside(const struct cost_case *c)
{
	double chunks = c->layout->chunks, group = fmin(c->layout->pp, c->micros);
	return c->job->parallel.schedule == SCHEDULE_INTERLEAVED
		       ? (group * (chunks - 1) + 1) / chunks
		       : 1;
}

/* Seconds of the replicas' exchange that are not hidden. All transfers that run during a backward
 * pass share the seconds of that pass. */
static double exposed_seconds(const struct cost_case *c, const struct cost_rank *r)
{
	struct exchange x = { 0 };
	for (int class = 0; class < ZERO_CLASSES; class ++)
		add_exchange(c, r, class, &x);
	bool hides = c->job->parallel.overlap,
	     sums = hides && (c->engine->hides_dp || c->layout->pp == 1);
	double forward = hides ? r->pass.fwd : 0,
	       backward = sums ? r->pass.bwd + r->pass.tp_bwd + r->pass.again : 0;
	double around = c->job->parallel.zero == 3 ? x.params : 0,
	       each = cost_exposed(c, around, forward),
	       beside = c->job->parallel.zero < 2 ? passes_beside(c) : 1;
	double after =
		c->job->parallel.zero == 3
			? 0
			: fmax(x.first,
			       cost_exposed(c, x.params,
					    c->engine->gathers_ahead ? beside * forward : 0));
	double most = cost_exposed(c, x.micro + around, backward),
	       last = cost_exposed(c, x.micro + around + x.once, beside * backward);
	return after + c->micros * each + (c->micros - 1) * most + fmax(x.last, last);
}

/* Seconds of the all-reduce between the two holders of a tied embedding. */
static double tied_sum(const struct cost_case *c, const struct cost_rank *r)
{
	if (!c->shape->tied || r->first == r->last)
		return 0;
	return place_seconds_all_reduce(&c->group_links[GROUP_TIE],
					c->engine->grad_width *
						(double)(c->shape->vocab * c->shape->hidden) /
						c->layout->tp);
}

/* The elements that the rank updates; unit: [UNIT_KINDS] elements of a unit. */
static double owned_by(const struct cost_case *c, const struct cost_rank *r, const int64_t *unit)
{
	bool node = c->job->parallel.zero_shard == ZERO_SHARD_NODE;
	double owned = 0;
	struct zero_cut cuts[ZERO_CLASSES];
	zero_cuts(c->layout, (struct coords){ 0 }, (int)c->job->parallel.zero,
		  node ? c->node_replicas : 0, cuts);
	for (int class = 0; class < ZERO_CLASSES; class ++)
		owned += elements_of(c, r, class, unit) / cuts[class].shards;
	return owned;
}

/* The factor by which everything takes longer while all agents are busy. */
static double crowded(const struct cost_case *c)
{
	return fmax(1, c->machine->crowd);
}

/* Seconds of the Newton-Schulz iterations on the hidden matrices, in fp32 whatever the job's type.
 * One iteration has three products. For a matrix [m, k], m <= k, that is 4 m m k + 2 m m m FLOPs;
 * each matrix counts as a square of the hidden size. Only one of the ranks that hold a part of a
 * matrix computes it. */
static double orthogonalizing(const struct cost_case *c, const struct cost_rank *r, int iterations)
{
	double side = (double)c->shape->hidden, each = 6 * side * side * side * iterations;
	if (!iterations)
		return 0;
	return owned_by(c, r, c->units->hidden) / (side * side) *
	       cost_machine_fp32_product(r->device.machine, each);
}

double cost_update(const struct cost_case *c, const struct cost_rank *r)
{
	const struct optimizer *o = optimizer_of(c->job->optimizer.kind);
	double owned = owned_by(c, r, c->units->elements);
	/* Moments, and masters if they are not the parameters themselves; copied in and out. Only
	 * element-wise optimizers can be offloaded. */
	double state = 2 * optimizer_full_states(c->job->optimizer.kind) +
		       (c->job->precision.dtype == DTYPE_FP32 ? 0 : 2);
	const struct cost_machine *m = r->device.machine;
	bool away = c->job->offload.optimizer && m->host > 0;
	double update = c->engine->update > 0
				? cost_machine_seconds(m, RATE_MOVED, c->engine->update * owned)
				: cost_machine_seconds(m, RATE_OPTIMIZER, o->words * F32 * owned);
	return crowded(c) * r->device.scale *
	       (update + orthogonalizing(c, r, o->iterations) +
		cost_machine_offload(m, away ? state * F32 * owned : 0));
}

/* Seconds that ranks wait for the slowest one after `seconds` of work. */
static double straggling(const struct cost_case *c, double seconds)
{
	return seconds * c->machine->spread * sqrt(2 * log((double)c->layout->dp * c->layout->cp));
}

/* --- Cores that agents share --- */

struct cost_sharing cost_sharing(const struct cost_case *c)
{
	const struct layout *l = c->layout;
	int each = l->tp * l->cp * l->dp, node_ranks = c->machine->agents / each;
	if (!(c->machine->crowd > 0))
		return (struct cost_sharing){ 0, 0 };
	node_ranks = node_ranks < 1 ? 1 : node_ranks > l->pp ? l->pp : node_ranks;
	return (struct cost_sharing){ c->machine->crowd / node_ranks, node_ranks };
}

double cost_shared(const struct cost_case *c, double busy, double alone)
{
	return fmax(alone * fmax(1, cost_sharing(c).load),
		    c->micros * busy / c->layout->pp * c->machine->crowd);
}

/* --- The parts of a step --- */

void cost_sum_add(const struct cost_case *c, const struct cost_rank *r, struct cost_sum *sum)
{
	double busy = cost_forward(&r->pass) + cost_backward(&r->pass),
	       dp = tied_sum(c, r) + exposed_seconds(c, r);
	if (busy > sum->busy) {
		sum->busy = busy;
		sum->slow = *r;
	}
	sum->dp = fmax(sum->dp, crowded(c) * dp);
	sum->optimizer = fmax(sum->optimizer, cost_update(c, r));
}

void cost_sum_parts(const struct cost_case *c, const struct cost_sum *sum, double whole,
		    struct plan_time *t)
{
	const struct cost_pass *s = &sum->slow.pass;
	double busy = c->micros * sum->busy,
	       stretch = c->layout->pp > 1 && busy > 0 ? fmax(1, fmin(crowded(c), whole / busy))
						       : crowded(c);
	double times = stretch * c->micros,
	       dp = sum->dp + straggling(c, c->micros * sum->busy + sum->dp + sum->optimizer);
	*t = (struct plan_time){
		.compute = times * (s->fwd + s->bwd),
		.recompute = times * s->again,
		.tp = times * (s->tp_fwd + s->tp_bwd),
		.cp = times * (s->cp_fwd + s->cp_bwd),
		.ep = times * (s->ep_fwd + s->ep_bwd),
		/* A negative value is a rounding error, and so is any value if there is only one
		 * stage. */
		.pp = c->layout->pp > 1 ? fmax(0, whole - stretch * busy) : 0,
		.dp = dp,
		.optimizer = sum->optimizer,
		.total = whole + dp + sum->optimizer,
	};
}

/* --- In closed form --- */

/* The passes of the kinds of stages that exist. There are few kinds, and many stages of each. */
struct passes {
	struct stage_kind {
		int layers, again;
		bool first, last;
		struct cost_device device;
	} kinds[16];
	struct cost_pass pass[16];
	int n;
};

static struct stage_kind kind_of(const struct cost_case *c, const struct cost_device *d,
				 const struct stage *s)
{
	int every = (int)c->job->recompute.every;
	return (struct stage_kind){ s->layer_hi - s->layer_lo,
				    (s->layer_hi + every - 1) / every -
					    (s->layer_lo + every - 1) / every,
				    s->first, s->last, *d };
}

static bool same_kind(const struct stage_kind *a, const struct stage_kind *b)
{
	return a->layers == b->layers && a->again == b->again && a->first == b->first &&
	       a->last == b->last && a->device.machine == b->device.machine &&
	       a->device.scale <= b->device.scale && a->device.scale >= b->device.scale;
}

static const struct cost_pass *pass_of(const struct cost_case *c, const struct cost_device *d,
				       const struct stage *s, struct passes *known)
{
	struct stage_kind k = kind_of(c, d, s);
	int most = (int)(sizeof known->kinds / sizeof *known->kinds), i = 0;
	while (i < known->n && !same_kind(&known->kinds[i], &k))
		i++;
	if (i == known->n) {
		i = known->n < most ? known->n++ : most - 1;
		known->kinds[i] = k;
		known->pass[i] = cost_pass_on(c, d, s);
	}
	return &known->pass[i];
}

static void take_rank(const struct cost_case *c, int pp, struct passes *known, struct cost_rank *r,
		      struct pipeline_rank_times *times)
{
	double wait = cost_wait(c), down = 0, up = 0;
	bool splits = schedule_splits(c->job->parallel.schedule);
	*r = (struct cost_rank){ .device = cost_device_at(c, pp) };
	for (int chunk = 0; chunk < c->layout->chunks; chunk++) {
		const struct stage *s = &c->stages[layout_stage(c->layout, pp, chunk)];
		struct cost_pass whole = *pass_of(c, &r->device, s, known), *t = &whole;
		if (splits)
			cost_pass_halve(t);
		double forward = cost_forward(t), backward = cost_backward(t);
		double first = cost_meeting(c, forward),
		       second = cost_meeting(c, backward - (splits ? t->weight : 0));
		double both = forward + backward + first + second;
		down += first;
		up += second;
		cost_add(&r->pass, t, 1);
		r->layers += s->layer_hi - s->layer_lo;
		r->first |= s->first;
		r->last |= s->last;
		if (chunk == 0)
			times->first = both;
		times->last = both;
	}
	times->first += 2 * wait;
	times->last += 2 * wait;
	times->forward = cost_forward(&r->pass) + c->layout->chunks * wait + down;
	times->weight = r->pass.weight;
	times->input = cost_backward(&r->pass) - times->weight + c->layout->chunks * wait + up;
}

void cost_step(const struct cost_case *c, struct plan_time *out)
{
	struct passes known = { .n = 0 };
	struct pipeline_times pipe = { 0 };
	struct cost_sum sum = { 0 };
	for (int pp = 0; pp < c->layout->pp; pp++) {
		struct cost_rank r;
		struct pipeline_rank_times times;
		take_rank(c, pp, &known, &r, &times);
		schedule_times_add(&pipe, &times);
		cost_sum_add(c, &r, &sum);
	}
	double alone = schedule_seconds(&pipe, c->job->parallel.schedule, c->layout->chunks,
					c->micros, cost_hop(c));
	cost_sum_parts(c, &sum,
		       cost_shared(c, pipe.sum.forward + pipe.sum.input + pipe.sum.weight, alone),
		       out);
}
