#include "plan/cost/cost.h"

#include "plan/cost/step.h"
#include "plan/memory.h"
#include "plan/place/traffic.h"

#include <math.h>

enum { F32 = 4 };

/* The mean shard of a micro-batch. Uneven shards differ from it by less than the error of the
 * model. */
struct shard {
	/* tokens, rows of the residual stream, hidden size, bytes of an element */
	double n, s, c, width;
	double q, kv, f, up, vocab;
	double heads;   /* of all sequences */
	double rows;    /* rows that go through a feed-forward part; in a mixture top × n */
	double experts; /* experts on this rank; 1 in a dense layer */
	/* sum: seconds of an all-reduce of [n, c] over tp; half: of a reduce-scatter, or a gather;
	 * gather: of the gather of a linear's input or of its output's gradient */
	double sum, half, gather;
	struct traffic_sizes size;
	bool sp, hides; /* hides: transfers hide behind the backward products */
	/* false: a mixture; its rows are gathered and summed whole, and nothing hides that */
	bool dense;
};

/* Bytes of an element that a linear's ranks gather. */
static double gathered(const struct cost_case *c)
{
	return c->engine->gathers_eight && c->job->precision.fp8 != FP8_OFF && c->machine->eight > 0
		       ? 1
		       : cost_width(c);
}

static struct shard shard_of(const struct cost_case *c)
{
	const struct job *job = c->job;
	const struct model_shape *m = c->shape;
	const struct layout *l = c->layout;
	double n = (double)job->batch.micro * (double)m->seq / l->cp, f = (double)m->ffn / l->tp,
	       width = cost_width(c);
	/* Ranks that share a key-value head hold a copy each. */
	double kv = fmax(1, (double)m->kv_heads / l->tp);
	bool sp = job->parallel.sp && l->tp > 1;
	struct traffic_sizes size = place_traffic_sizes_of(job, m, l);
	return (struct shard){
		.n = n,
		.s = sp ? n / l->tp : n,
		.c = (double)m->hidden,
		.width = width,
		.q = (double)(m->heads * m->head_dim) / l->tp,
		.kv = kv * (double)m->head_dim,
		.f = f,
		.up = m->gated ? 2 * f : f,
		.vocab = (double)m->vocab / l->tp,
		.heads = (double)job->batch.micro * (double)m->heads / l->tp,
		.rows = m->experts ? n * (double)m->top : n,
		.experts = m->experts ? (double)m->experts / l->ep : 1,
		.sum = place_seconds_all_reduce(&c->group_links[GROUP_TP], size.stream),
		.half = place_seconds_gather(&c->group_links[GROUP_TP], size.stream),
		.gather = place_seconds_gather(&c->group_links[GROUP_TP],
					       size.stream * gathered(c) / width),
		.size = size,
		.sp = sp,
		.hides = c->engine->hides_tp && job->parallel.overlap && l->tp > 1,
		.dense = !m->experts,
	};
}

/* --- Passes over tensors --- */

/* Whether the tp ranks route their own rows of a mixture; the gathers of its rows then belong to the
 * routes. */
static bool routes_own(const struct cost_case *c, const struct shard *h)
{
	return !h->dense && h->sp && c->engine->routes_own;
}

static bool needed(const struct cost_case *c, enum engine_need need)
{
	switch (need) {
	case NEED_DROPOUT:
		return c->job->model.dropout > 0;
	case NEED_NO_DROPOUT:
		return c->job->model.dropout <= 0;
	case NEED_ATTN_DROPOUT:
		return c->job->model.attn_dropout > 0;
	case NEED_GELU:
		return !c->shape->gated;
	case NEED_SWIGLU:
		return c->shape->gated;
	case NEED_ROPE:
		return c->shape->rope;
	case NEED_BIAS:
		return c->shape->bias;
	case NEED_QKV_BIAS:
		return c->shape->qkv_bias;
	case NEED_QK_NORM:
		return c->shape->qk_norm;
	default:
		return true;
	}
}

static double passes_of(const struct cost_case *c, const struct shard *h, enum engine_phase phase)
{
	/* Selective recomputation does not recompute a mixture. */
	double feeds = phase == PHASE_AGAIN && !h->dense ? 0 : h->rows,
	       routed = h->dense ? 0 : h->rows * h->c;
	const double elements[TENSORS] = {
		[TENSOR_STREAM] = h->s * h->c,
		[TENSOR_ROWS] = h->n * h->c,
		[TENSOR_QKV] = h->n * (h->q + 2 * h->kv),
		[TENSOR_ROTATED] = h->n * (h->q + h->kv),
		[TENSOR_HEADS] = h->n * h->q,
		[TENSOR_UP] = feeds * h->up,
		[TENSOR_ACT] = feeds * h->f,
		[TENSOR_ROUTED] = routed / (routes_own(c, h) ? c->layout->tp : 1),
		[TENSOR_SORTED] = h->experts > 1 && c->layout->ep > 1 ? routed : 0,
		[TENSOR_SCORES] = h->heads * (double)c->shape->seq * (double)c->shape->seq /
				  c->layout->cp,
	};
	double seconds = 0;
	for (const struct cost_engine_pass *p = c->engine->passes; p->times; p++) {
		double moved = 0;
		if (p->phase != phase || !needed(c, p->need))
			continue;
		for (int t = 0; t < TENSORS; t++)
			moved += p->moves[t] * elements[t];
		seconds += p->times * cost_machine_seconds(c->machine, p->class, h->width * moved);
	}
	return seconds;
}

static double moved(const struct cost_case *c, double bytes)
{
	return cost_machine_seconds(c->machine, RATE_MOVED, bytes);
}

/* --- A layer's products and attention --- */

enum linear { LINEAR_QKV, LINEAR_OUT, LINEAR_UP, LINEAR_DOWN, LINEARS };
enum { FORMS = RATE_PRODUCT_WEIGHT + 1 };

/* Seconds of each linear in each form. */
struct layer {
	double linear[LINEARS][FORMS];
	double router[FORMS];       /* 0 in a dense layer */
	double attention, gradient; /* seconds, forward and backward */
};

static double products(const struct layer *y, enum rate_class form)
{
	double sum = y->router[form];
	for (int i = 0; i < LINEARS; i++)
		sum += y->linear[i][form];
	return sum;
}

/* Attention that stores scores and weights of the whole square. It has two products in the forward
 * pass and four in the backward pass. */
static void stored_attention(const struct cost_case *c, const struct shard *h, struct layer *y)
{
	double keys = (double)c->shape->seq, queries = keys / c->layout->cp,
	       dim = (double)c->shape->head_dim;
	double score = cost_machine_products(c->machine, RATE_PRODUCT_FWD, h->heads, queries, keys,
					     dim, h->width);
	double weighted = cost_machine_products(c->machine, RATE_PRODUCT_FWD, h->heads, queries,
						dim, keys, h->width);
	y->attention = score + weighted;
	y->gradient = score + 3 * weighted;
}

/* Two products, of which half is masked. With context parallelism each rank attends to one piece of
 * the keys after the other, and merges the results: it reads both and writes one
 * (agent/engine/parallel/cp.c). */
static void fused_attention(const struct cost_case *c, const struct shard *h, struct layer *y)
{
	const struct cost_machine *m = c->machine;
	enum attention_kernel kernel = c->engine->attention;
	int cp = c->layout->cp;
	double pieces = cp > 1 && c->engine->ring > 0 ? cp * c->engine->ring : cp,
	       dim = (double)c->shape->head_dim, keys = (double)c->shape->seq / cp,
	       flops = 2 * h->n * h->q * keys;
	double merge = cost_machine_seconds(m, RATE_MOVED, 3 * h->width * h->n * h->q);
	y->attention = pieces * cost_machine_attention(m, kernel, RATE_ATTENTION_FWD, flops, keys,
						       dim) +
		       (cp - 1) * merge;
	y->gradient = pieces * cost_machine_attention(m, kernel, RATE_ATTENTION_BWD, 2.5 * flops,
						      keys, dim) +
		      (cp - 1) * merge;
}

/* Whether a linear's products are in 8 bits. The router's and the head's never are. */
static bool in_eight(const struct cost_case *c, enum linear linear)
{
	bool expert = c->shape->experts && (linear == LINEAR_UP || linear == LINEAR_DOWN);
	return c->job->precision.fp8 != FP8_OFF && c->machine->units > 0 &&
	       (!expert || c->engine->eight_experts);
}

/* `times` equal products of a linear in one form: on a GPU one operation. In 8 bits it casts its operands first: the input and the
 * weights in the forward pass, the gradient in the backward pass, each also transposed. Weights are
 * cast with every micro-batch. */
static double linear_seconds(const struct cost_case *c, const struct shard *h, enum linear linear,
			     int form, double times, double n, double in, double out)
{
	const struct cost_machine *m = c->machine;
	bool eight = in_eight(c, linear);
	double operands = form == RATE_PRODUCT_FWD     ? n * in + in * out
			  : form == RATE_PRODUCT_INPUT ? n * out
						       : 0;
	double width = eight ? 1 : h->width,
	       cast = eight ? cost_machine_seconds(m, RATE_MOVED,
						   c->engine->cast * times * operands)
			    : 0;
	if (m->units < 1)
		return times * cost_machine_product(m, (enum rate_class)form, n, in, out, width);
	return cast + (form == RATE_PRODUCT_WEIGHT
			       ? cost_machine_products(m, form, times, out, in, n, width)
			       : cost_machine_products(m, (enum rate_class)form, times, n,
						       form == RATE_PRODUCT_FWD ? out : in,
						       form == RATE_PRODUCT_FWD ? in : out, width));
}

static void set_layer(const struct cost_case *c, const struct shard *h, struct layer *y)
{
	for (int form = 0; form < FORMS; form++) {
		double each = h->rows / h->experts;
		y->linear[LINEAR_QKV][form] = linear_seconds(c, h, LINEAR_QKV, form, 1, h->n, h->c,
							     h->q + 2 * h->kv);
		y->linear[LINEAR_OUT][form] = linear_seconds(c, h, LINEAR_OUT, form, 1, h->n, h->q,
							     h->c);
		y->linear[LINEAR_UP][form] = linear_seconds(c, h, LINEAR_UP, form, h->experts, each,
							    h->c, h->up);
		y->linear[LINEAR_DOWN][form] = linear_seconds(c, h, LINEAR_DOWN, form, h->experts,
							      each, h->f, h->c);
		y->router[form] = cost_machine_product(c->machine, (enum rate_class)form, h->n,
						       h->c, (double)c->shape->experts, h->width);
	}
	if (c->engine->attention == ATTENTION_STORED)
		stored_attention(c, h, y);
	else
		fused_attention(c, h, y);
}

/* --- A layer's transfers --- */

/* Seconds that attention does not hide of sending keys and values round the ring. factor: how much
 * more data goes round in the backward pass. */
static double ring_left(const struct cost_case *c, const struct shard *h, double attention,
			double factor)
{
	int cp = c->layout->cp;
	double all = (cp - 1) * place_seconds_hop(&c->group_links[GROUP_CP], factor * h->size.keys);
	return cp > 1 ? cost_exposed(c, all, attention * (cp - 1) / cp) : 0;
}

/* Seconds that are not hidden of a gather. If the engine supports it, a rank multiplies its own
 * rows meanwhile. */
static double gather_beside(const struct cost_case *c, double gather, bool hides, double product)
{
	return hides && c->engine->own_rows_first ? cost_exposed(c, gather, product / c->layout->tp)
						  : gather;
}

/* A mixture's router needs its input in 2 bytes. */
static double fed(const struct shard *h)
{
	return h->dense ? h->gather : h->half;
}

static double tp_forward(const struct cost_case *c, const struct shard *h, const struct layer *y)
{
	if (!h->sp)
		return 2 * h->sum;
	double attention = h->half + gather_beside(c, h->gather, h->hides,
						   y->linear[LINEAR_QKV][RATE_PRODUCT_FWD]);
	if (routes_own(c, h))
		return attention;
	return attention + h->half +
	       gather_beside(c, fed(h), h->hides && h->dense,
			     y->linear[LINEAR_UP][RATE_PRODUCT_FWD]);
}

/* Seconds of the transfers in the backward pass of a column-parallel linear. The input's gradient
 * is all-reduced behind the weights' product. With sequence parallelism the input is also gathered
 * again, behind the input's product. */
static double column_backward_seconds(const struct cost_case *c, const struct shard *h,
				      double gather, bool hides, const double linear[FORMS])
{
	double shade = hides ? 1 : 0;
	if (!h->sp)
		return cost_exposed(c, h->sum, shade * linear[RATE_PRODUCT_WEIGHT]);
	return cost_exposed(c, gather, shade * linear[RATE_PRODUCT_INPUT]) +
	       cost_exposed(c, h->half, shade * linear[RATE_PRODUCT_WEIGHT]);
}

static double tp_backward(const struct cost_case *c, const struct shard *h, const struct layer *y)
{
	bool hides = h->hides && h->dense;
	double seconds = column_backward_seconds(c, h, h->gather, h->hides, y->linear[LINEAR_QKV]);
	if (h->sp)
		seconds += gather_beside(c, h->gather, h->hides,
					 y->linear[LINEAR_OUT][RATE_PRODUCT_INPUT]);
	if (routes_own(c, h))
		return seconds;
	if (h->sp)
		seconds += gather_beside(c, fed(h), hides,
					 y->linear[LINEAR_DOWN][RATE_PRODUCT_INPUT]);
	return seconds + column_backward_seconds(c, h, fed(h), hides, y->linear[LINEAR_UP]);
}

/* The half of the backward pass for the inputs' gradients, on its own. Their reductions no longer
 * hide behind the weights' products. The other half gathers the inputs of the column-parallel
 * linears, and the gradients of the row-parallel ones once more; nothing is computed meanwhile
 * (agent/engine/model/linear.c). */
static double tp_input_half(const struct cost_case *c, const struct shard *h, const struct layer *y)
{
	bool hides = h->hides && h->dense;
	if (!h->sp)
		return 2 * h->sum;
	return 2 * h->half +
	       gather_beside(c, h->gather, h->hides, y->linear[LINEAR_OUT][RATE_PRODUCT_INPUT]) +
	       gather_beside(c, fed(h), hides, y->linear[LINEAR_DOWN][RATE_PRODUCT_INPUT]);
}

/* Seconds of an all-to-all of rows, each of which goes to `top` experts. Rows that cross once per node
 * reach each other node with the probability that one of their experts is there; inside the node they
 * are copied. */
static double all_to_all(const struct cost_case *c, double bytes)
{
	const struct group_links *ep = &c->group_links[GROUP_EP];
	struct group_links inside = *ep;
	if (!c->engine->routes_once || ep->nodes < 2)
		return place_seconds_all_to_all(ep, bytes);
	double top = (double)c->shape->top, share = 1.0 / ep->nodes,
	       nodes = (ep->nodes - 1) * (1 - pow(1 - share, top));
	inside.nodes = 1;
	inside.ranks = inside.per_node;
	return bytes / top * nodes / ep->across.bandwidth + (ep->nodes - 1) * ep->across.latency +
	       place_seconds_all_to_all(&inside, bytes);
}

/* Seconds in which rows travel to their experts, or back. */
static double route(const struct cost_case *c, const struct shard *h)
{
	if (!c->shape->experts || c->layout->ep < 2)
		return 0;
	if (!routes_own(c, h))
		return all_to_all(c, h->size.rows);
	return all_to_all(c, h->size.rows / c->layout->tp) +
	       place_seconds_gather(&c->group_links[GROUP_TP], h->size.rows);
}

/* --- A stage --- */

/* Seconds that a layer's backward pass spends on recomputation. An engine that stops short leaves
 * out the layer's last all-reduce. It also leaves out the product before it, except in a mixture,
 * whose gates need the result. */
static double again_of(const struct cost_case *c, const struct shard *h, const struct layer *y,
		       double cp, double ep)
{
	double last = c->engine->stops_short
			      ? (h->dense ? y->linear[LINEAR_DOWN][RATE_PRODUCT_FWD] : 0) +
					(h->sp ? h->half : h->sum)
			      : 0;
	if (c->job->recompute.mode == RECOMPUTE_NONE)
		return 0;
	if (c->job->recompute.mode == RECOMPUTE_SELECTIVE)
		return y->attention + passes_of(c, h, PHASE_AGAIN) + cp;
	return products(y, RATE_PRODUCT_FWD) + y->attention + passes_of(c, h, PHASE_FORWARD) +
	       tp_forward(c, h, y) + cp + 2 * ep - last;
}

static double accumulated(const struct cost_case *c, const struct shard *h)
{
	double linear = h->c * (2 * h->q + 2 * h->kv) + h->experts * h->c * (h->up + h->f);
	return moved(c, c->engine->accumulate * linear);
}

/* The seconds that the ranks of a group lose if they wait for one another `times` times during
 * `work` seconds of work. */
static double meetings(const struct cost_case *c, enum group_kind kind, double times, double work)
{
	return times > 0 ? times * place_seconds_meeting(&c->group_links[kind], work / times) : 0;
}

static void add_meetings(const struct cost_case *c, const struct layer *y, double layers,
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

static void add_layers(const struct cost_case *c, const struct shard *h, const struct stage *stage,
		       struct cost_pass *t)
{
	double layers = stage->layer_hi - stage->layer_lo;
	int every = (int)c->job->recompute.every;
	double redone = (stage->layer_hi + every - 1) / every -
			(stage->layer_lo + every - 1) / every;
	struct layer y;
	set_layer(c, h, &y);
	double cp = ring_left(c, h, y.attention, 1), ep = route(c, h);
	double weight = products(&y, RATE_PRODUCT_WEIGHT) + accumulated(c, h);
	t->fwd = layers *
		 (products(&y, RATE_PRODUCT_FWD) + y.attention + passes_of(c, h, PHASE_FORWARD));
	t->bwd = layers * (products(&y, RATE_PRODUCT_INPUT) + weight + y.gradient +
			   passes_of(c, h, PHASE_BACKWARD));
	if (!h->dense) {
		t->fwd += layers * c->engine->routing;
		t->bwd += layers * c->engine->routing;
	}
	t->weight = layers * weight;
	t->tp_fwd = layers * tp_forward(c, h, &y);
	t->tp_bwd = layers * tp_backward(c, h, &y);
	t->tp_weight = layers * (h->sp ? LINEARS * h->half : 0);
	t->tp_halves = layers * tp_input_half(c, h, &y) + t->tp_weight;
	t->cp_fwd = layers * cp;
	t->cp_bwd = layers * ring_left(c, h, y.gradient, 2);
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

static void add_embedding(const struct cost_case *c, const struct shard *h, struct cost_pass *t)
{
	t->fwd += moved(c, c->engine->embed_fwd * h->width * h->n * h->c);
	t->bwd += moved(c, c->engine->embed_bwd * h->width * h->n * h->c) +
		  moved(c, c->engine->accumulate * h->vocab * h->c);
	t->tp_fwd += h->sp ? h->half : h->sum;
	t->tp_bwd += h->sp ? h->half : 0;
	t->tp_halves += h->sp ? h->half : 0;
}

/* Seconds of muster's chunks of logits on a GPU (activations.h), besides those of a single product:
 * each chunk after the first reads and writes the fp32 gradient once more, and weights that do not
 * fill whole rows are copied. */
static double chunked(const struct cost_case *c, const struct shard *h)
{
	int64_t n = (int64_t)h->n, vocab = (int64_t)ceil(h->vocab),
		rows = activations_logits_rows(c->job, n, vocab);
	double weights = h->vocab * h->c, more = (double)((n + rows - 1) / rows - 1);
	if (c->engine != &cost_engine_muster || c->job->job.device != DEVICE_CUDA)
		return 0;
	return moved(c, 2 * F32 * more * weights) + (activations_logits_row(c->job, vocab) > vocab
							     ? moved(c, 2 * h->width * weights)
							     : 0);
}

/* The products of the head's backward pass count as forward, because they run with the loss. */
static void add_head(const struct cost_case *c, const struct shard *h, struct cost_pass *t)
{
	const struct cost_machine *m = c->machine;
	const struct group_links *tp = &c->group_links[GROUP_TP];
	double logits = h->n * h->vocab, stream = h->width * h->s * h->c;
	for (int form = 0; form < FORMS; form++)
		t->fwd += cost_machine_product(m, (enum rate_class)form, h->n, h->c, h->vocab,
					       h->width);
	if (c->engine->loss > 0)
		t->fwd += moved(c, c->engine->loss * logits);
	else
		t->fwd += cost_machine_seconds(m, RATE_XENT, 5 * h->width * logits);
	t->fwd += chunked(c, h) + cost_machine_seconds(m, RATE_NORM_FWD, 4 * stream) +
		  moved(c, c->engine->accumulate * h->vocab * h->c);
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
	struct shard h = shard_of(c);
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
