#include "plan/cost/layer.h"

#include "plan/cost/step.h"
#include "plan/memory.h"

#include <math.h>

enum { F32 = 4 };

/* Seconds that a layer's backward pass spends on recomputation. An engine that stops short leaves
 * out the layer's last all-reduce. It also leaves out the product before it, except in a mixture,
 * whose gates need the result. */
static double again_of(const struct cost_case *c, const struct cost_shard *h,
		       const struct cost_layer *y, double cp, double ep)
{
	double last = c->engine->stops_short
			      ? (h->dense ? y->linear[LINEAR_DOWN][RATE_PRODUCT_FWD] : 0) +
					(h->sp ? h->half : h->sum)
			      : 0;
	if (c->job->recompute.mode == RECOMPUTE_NONE)
		return 0;
	if (c->job->recompute.mode == RECOMPUTE_SELECTIVE)
		return y->attention + cost_layer_passes(c, h, PHASE_AGAIN) + cp;
	return cost_layer_products(y, RATE_PRODUCT_FWD) + y->attention +
	       cost_layer_passes(c, h, PHASE_FORWARD) + cost_tp_forward(c, h, y) + cp + 2 * ep -
	       last;
}

static double accumulated(const struct cost_case *c, const struct cost_shard *h)
{
	double linear = h->c * (2 * h->q + 2 * h->kv) + h->experts * h->c * (h->up + h->f);
	return cost_moved(c, c->engine->accumulate * linear);
}

/* The seconds that the ranks of a group lose if they wait for one another `times` times during
 * `work` seconds of work. */
static double meetings(const struct cost_case *c, enum group_kind kind, double times, double work)
{
	return times > 0 ? times * place_seconds_meeting(&c->group_links[kind], work / times) : 0;
}

static void add_meetings(const struct cost_case *c, const struct cost_layer *y, double layers,
			 struct cost_pass *t)
{
	int hops = c->layout->cp - 1;
	double met = layers * meetings(c, GROUP_TP, 2, t->bwd / layers);
	t->tp_fwd += layers * meetings(c, GROUP_TP, 2, t->fwd / layers);
	t->tp_bwd += met;
	t->tp_halves += met;
	t->ep_fwd += layers * meetings(c, GROUP_EP, 2, t->fwd / layers);
	t->ep_bwd += layers * meetings(c, GROUP_EP, 2, t->bwd / layers);
	t->cp_fwd += layers * meetings(c, GROUP_CP, hops, y->attention);
	t->cp_bwd += layers * meetings(c, GROUP_CP, 2 * hops, y->gradient);
}

/* Adds the time that the device waits for its host in the layers of a mixture. All other times are
 * set. */
static void add_starts(const struct cost_case *c, double layers, struct cost_pass *t)
{
	t->fwd += fmax(0, layers * c->engine->starts - cost_forward(t));
	t->bwd += fmax(0, layers * c->engine->starts - cost_backward(t));
}

static void add_layers(const struct cost_case *c, const struct cost_shard *h,
		       const struct stage *stage, struct cost_pass *t)
{
	double layers = stage->layer_hi - stage->layer_lo;
	int every = (int)c->job->recompute.every;
	double redone = (stage->layer_hi + every - 1) / every -
			(stage->layer_lo + every - 1) / every;
	struct cost_layer y;
	cost_layer_set(c, h, &y);
	double cp = cost_ring_left(c, h, y.attention, 1), ep = cost_route(c, h);
	double weight = cost_layer_products(&y, RATE_PRODUCT_WEIGHT) + accumulated(c, h);
	t->fwd = layers * (cost_layer_products(&y, RATE_PRODUCT_FWD) + y.attention +
			   cost_layer_passes(c, h, PHASE_FORWARD));
	t->bwd = layers * (cost_layer_products(&y, RATE_PRODUCT_INPUT) + weight + y.gradient +
			   cost_layer_passes(c, h, PHASE_BACKWARD));
	if (!h->dense) {
		t->fwd += layers * c->engine->routing;
		t->bwd += layers * c->engine->routing;
	}
	t->weight = layers * weight;
	t->tp_fwd = layers * cost_tp_forward(c, h, &y);
	t->tp_bwd = layers * cost_tp_backward(c, h, &y);
	t->tp_weight = layers * (h->sp ? LINEARS * h->half : 0);
	t->tp_halves = layers * cost_tp_input_half(c, h, &y) + t->tp_weight;
	t->cp_fwd = layers * cp;
	t->cp_bwd = layers * cost_ring_left(c, h, y.gradient, 2);
	t->ep_fwd = layers * 2 * ep;
	t->ep_bwd = t->ep_fwd;
	if (c->engine->hides_ep) {
		t->ep_fwd = cost_exposed(c, t->ep_fwd, t->fwd);
		t->ep_bwd = cost_exposed(c, t->ep_bwd, t->bwd);
	}
	if (layers > 0)
		add_meetings(c, &y, layers, t);
	t->again = redone * again_of(c, h, &y, cp, ep);
	if (!h->dense)
		add_starts(c, layers, t);
}

/* A layer's activations are copied to the host after its forward pass and back before its backward
 * pass. If the backward pass has two halves, they are copied out and back once more
 * (agent/engine/model/offload.c). Nothing is computed during the copies. */
static void add_offload(const struct cost_case *c, const struct stage *stage, struct cost_pass *t)
{
	struct memory_sizes sizes;
	bool split = schedule_splits(c->job->parallel.schedule);
	if (!c->job->offload.activations)
		return;
	plan_memory_sizes_of(c->job, c->shape, c->layout, 0, split, &sizes);
	double once = cost_machine_offload(c->machine, plan_memory_offloaded(&sizes, stage));
	t->fwd += once;
	t->bwd += split ? 3 * once : once;
	t->weight += split ? once : 0;
}

static void add_embedding(const struct cost_case *c, const struct cost_shard *h,
			  struct cost_pass *t)
{
	t->fwd += cost_moved(c, c->engine->embed_fwd * h->width * h->n * h->c);
	t->bwd += cost_moved(c, c->engine->embed_bwd * h->width * h->n * h->c) +
		  cost_moved(c, c->engine->accumulate * h->vocab * h->c);
	t->tp_fwd += h->sp ? h->half : h->sum;
	t->tp_bwd += h->sp ? h->half : 0;
	t->tp_halves += h->sp ? h->half : 0;
}

/* Seconds of muster's chunks of logits on a GPU (activations.h), besides those of a single product:
 * each chunk after the first reads and writes the fp32 gradient once more, and weights that do not
 * fill whole rows are copied. */
static double chunked(const struct cost_case *c, const struct cost_shard *h)
{
	int64_t n = (int64_t)h->n, vocab = (int64_t)ceil(h->vocab),
		rows = activations_logits_rows(c->job, n, vocab);
	double weights = h->vocab * h->c, more = (double)((n + rows - 1) / rows - 1);
	if (c->engine != &cost_engine_muster || c->job->job.device != DEVICE_CUDA)
		return 0;
	return cost_moved(c, 2 * F32 * more * weights) +
	       (activations_logits_row(c->job, vocab) > vocab
			? cost_moved(c, 2 * h->width * weights)
			: 0);
}

/* The products of the head's backward pass count as forward, because they run with the loss. */
static void add_head(const struct cost_case *c, const struct cost_shard *h, struct cost_pass *t)
{
	const struct cost_machine *m = c->machine;
	const struct group_links *tp = &c->group_links[GROUP_TP];
	double logits = h->n * h->vocab, stream = h->width * h->s * h->c;
	for (int form = 0; form < LINEAR_FORMS; form++)
		t->fwd += cost_machine_product(m, (enum rate_class)form, h->n, h->c, h->vocab,
					       h->width);
	if (c->engine->loss > 0)
		t->fwd += cost_moved(c, c->engine->loss * logits);
	else
		t->fwd += cost_machine_seconds(m, RATE_XENT, 5 * h->width * logits);
	t->fwd += chunked(c, h) + cost_machine_seconds(m, RATE_NORM_FWD, 4 * stream) +
		  cost_moved(c, c->engine->accumulate * h->vocab * h->c);
	t->bwd += cost_machine_seconds(m, RATE_NORM_BWD, 4 * stream);
	t->tp_fwd += (h->sp ? h->half : 0) + place_seconds_all_reduce(tp, F32 * h->n) +
		     place_seconds_all_reduce(tp, F32 * 2 * h->n);
	t->tp_bwd += h->sp ? h->half : h->sum;
	t->tp_halves += h->sp ? h->half : h->sum;
}

static void add_idle(const struct cost_case *c, struct cost_pass *t)
{
	double longer = c->engine->busy > 0 ? 1 / c->engine->busy : 1;
	t->fwd *= longer;
	t->bwd *= longer;
	t->weight *= longer;
	t->again *= longer;
}

struct cost_pass cost_pass_of(const struct cost_case *c, const struct stage *stage)
{
	struct cost_shard h = cost_shard_of(c);
	struct cost_pass t;
	add_layers(c, &h, stage, &t);
	if (stage->first)
		add_embedding(c, &h, &t);
	if (stage->last)
		add_head(c, &h, &t);
	add_idle(c, &t);
	add_offload(c, stage, &t);
	return t;
}

void cost_pass_slow(struct cost_pass *t, double scale)
{
	t->fwd *= scale;
	t->bwd *= scale;
	t->weight *= scale;
	t->again *= scale;
}

struct cost_device cost_device_at(const struct cost_case *c, int pp)
{
	return c->devices ? c->devices[pp] : (struct cost_device){ c->machine, 1, 1, NULL };
}

struct cost_pass cost_pass_on(const struct cost_case *c, const struct cost_device *d,
			      const struct stage *stage)
{
	struct cost_case mine = *c;
	mine.machine = d->machine;
	mine.group_links = d->links ? d->links : c->group_links;
	struct cost_pass t = cost_pass_of(&mine, stage);
	cost_pass_slow(&t, d->scale);
	return t;
}

void cost_pass_halve(struct cost_pass *t)
{
	t->tp_bwd = t->tp_halves;
	t->weight += t->tp_weight;
}
