#include "plan/cost/layer.h"

#include "plan/cost/step.h"

#include <math.h>

/* Bytes of an element that a linear's ranks gather. */
static double gathered(const struct cost_case *c)
{
	return c->engine->gathers_eight && c->job->precision.fp8 != FP8_OFF && c->machine->eight > 0
		       ? 1
		       : cost_width(c);
}

struct cost_shard cost_shard_of(const struct cost_case *c)
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
	return (struct cost_shard){
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
		.half = (place_seconds_gather(&c->group_links[GROUP_TP], size.stream) +
			 place_seconds_scatter(&c->group_links[GROUP_TP], size.stream)) /
			2,
		.gather = place_seconds_gather(&c->group_links[GROUP_TP],
					       size.stream * gathered(c) / width),
		.size = size,
		.sp = sp,
		.hides = c->engine->hides_tp && job->parallel.overlap && l->tp > 1,
		.dense = !m->experts,
	};
}

/* --- Passes over tensors --- */

bool cost_layer_routes_own(const struct cost_case *c, const struct cost_shard *h)
{
	return !h->dense && h->sp && c->engine->routes_own;
}

static bool multiplies_eight(const struct cost_case *c)
{
	return c->job->precision.fp8 != FP8_OFF && c->machine->units > 0;
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
	case NEED_BIAS_SUMS:
		return c->shape->bias && !multiplies_eight(c);
	case NEED_QKV_BIAS_SUMS:
		return c->shape->qkv_bias && !multiplies_eight(c);
	case NEED_QK_NORM:
		return c->shape->qk_norm;
	default:
		return true;
	}
}

double cost_layer_passes(const struct cost_case *c, const struct cost_shard *h,
			 enum engine_phase phase)
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
		[TENSOR_ROUTED] = routed / (cost_layer_routes_own(c, h) ? c->layout->tp : 1),
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

double cost_moved(const struct cost_case *c, double bytes)
{
	return cost_machine_seconds(c->machine, RATE_MOVED, bytes);
}

/* --- A layer's products and attention --- */

double cost_layer_products(const struct cost_layer *y, enum rate_class form)
{
	double sum = y->router[form];
	for (int i = 0; i < LINEARS; i++)
		sum += y->linear[i][form];
	return sum;
}

/* Attention that stores scores and weights of the whole square. It has two products in the forward
 * pass and four in the backward pass. */
static void stored_attention(const struct cost_case *c, const struct cost_shard *h,
			     struct cost_layer *y)
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

static enum attention_kernel kernel_of(const struct cost_case *c)
{
	enum attention_kernel kernel = c->engine->attention;
	return kernel == ATTENTION_MUSTER &&
			       !shape_attention_by_cudnn(c->job, c->shape, c->layout->cp)
		       ? ATTENTION_MUSTER_OWN
		       : kernel;
}

/* The backward pass. muster measures cuDNN's, whose sums have any order, beside the other kernels. */
static double attention_backward(const struct cost_case *c, enum attention_kernel kernel,
				 double flops, double keys, double dim)
{
	const struct cost_machine *m = c->machine;
	double seconds = cost_machine_attention(m, kernel, RATE_ATTENTION_BWD, flops, keys, dim);
	if (kernel != ATTENTION_MUSTER || c->job->job.deterministic != DETERMINISTIC_ANY_ORDER)
		return seconds;
	return fmin(seconds, cost_machine_attention(m, ATTENTION_CUDNN, RATE_ATTENTION_BWD, flops,
						    keys, dim));
}

/* Two products, of which half is masked. With context parallelism each rank attends to one piece of
 * the keys after the other, and merges the results: it reads both and writes one
 * (agent/engine/parallel/cp.c). */
static void fused_attention(const struct cost_case *c, const struct cost_shard *h,
			    struct cost_layer *y)
{
	const struct cost_machine *m = c->machine;
	enum attention_kernel kernel = kernel_of(c);
	int cp = c->layout->cp;
	double pieces = cp > 1 && c->engine->ring > 0 ? cp * c->engine->ring : cp,
	       dim = (double)c->shape->head_dim, keys = (double)c->shape->seq / cp,
	       flops = 2 * h->n * h->q * keys;
	double merge = cost_machine_seconds(m, RATE_MOVED, 3 * h->width * h->n * h->q);
	y->attention = pieces * cost_machine_attention(m, kernel, RATE_ATTENTION_FWD, flops, keys,
						       dim) +
		       (cp - 1) * merge;
	y->gradient = pieces * attention_backward(c, kernel, 2.5 * flops, keys, dim) +
		      (cp - 1) * merge;
}

/* Whether a linear's products are in 8 bits. The router's and the head's never are. */
static bool in_eight(const struct cost_case *c, enum linear linear)
{
	bool expert = c->shape->experts && (linear == LINEAR_UP || linear == LINEAR_DOWN);
	return multiplies_eight(c) && (!expert || c->engine->eight_experts);
}

/* Bytes that casts move for an input [n, in] or a gradient [n, out], per element. */
static double input_cast(const struct engine_casts *t, const struct cost_shard *h,
			 enum linear linear, int form)
{
	bool gathers = h->sp && (linear == LINEAR_QKV || linear == LINEAR_UP);
	if (form == RATE_PRODUCT_FWD)
		return gathers ? t->gathered : t->input[linear];
	return form == RATE_PRODUCT_WEIGHT && (gathers || linear == LINEAR_OUT) ? t->again : 0;
}

static double gradient_cast(const struct cost_case *c, const struct engine_casts *t,
			    const struct cost_shard *h, enum linear linear, int form)
{
	bool row = linear == LINEAR_OUT || linear == LINEAR_DOWN,
	     changed = row && (h->sp || needed(c, NEED_DROPOUT));
	return form == RATE_PRODUCT_INPUT ? t->gradient[linear] + (changed ? t->changed : 0) : 0;
}

/* Bytes that casts move for a product in 8 bits: for the input and the weights in the forward pass,
 * for the gradient in the backward pass. Weights that are cast once per step count in equal parts for
 * each micro-batch. */
static double cast_bytes(const struct cost_case *c, const struct cost_shard *h, enum linear linear,
			 int form, double n, double in, double out)
{
	const struct cost_engine *e = c->engine;
	bool once = e->casts_once && c->job->parallel.zero < 3, fwd = form == RATE_PRODUCT_FWD;
	double weights = in * out / (once ? fmax(1, c->micros) : 1), each = fwd ? e->cast : 0;
	if (!e->casts)
		return each * (n * in + weights) +
		       (form == RATE_PRODUCT_INPUT ? e->cast * n * out : 0);
	const struct engine_casts *t = &e->casts[c->job->precision.fp8_scaling];
	if (!once)
		each = form == RATE_PRODUCT_WEIGHT ? 0 : t->weights_pass;
	else
		each = fwd ? t->weights : 0;
	return input_cast(t, h, linear, form) * n * in +
	       gradient_cast(c, t, h, linear, form) * n * out + each * weights;
}

/* `times` equal products of a linear in one form: on a GPU one operation. In 8 bits, casts come
 * first. */
static double linear_seconds(const struct cost_case *c, const struct cost_shard *h,
			     enum linear linear, int form, double times, double n, double in,
			     double out)
{
	const struct cost_machine *m = c->machine;
	bool eight = in_eight(c, linear);
	double width = eight ? 1 : h->width,
	       cast = eight ? cost_machine_seconds(m, RATE_MOVED,
						   times * cast_bytes(c, h, linear, form, n, in,
								      out))
			    : 0;
	if (m->units < 1)
		return times * cost_machine_product(m, (enum rate_class)form, n, in, out, width);
	return cast + (form == RATE_PRODUCT_WEIGHT
			       ? cost_machine_products(m, form, times, out, in, n, width)
			       : cost_machine_products(m, (enum rate_class)form, times, n,
						       form == RATE_PRODUCT_FWD ? out : in,
						       form == RATE_PRODUCT_FWD ? in : out, width));
}

void cost_layer_set(const struct cost_case *c, const struct cost_shard *h, struct cost_layer *y)
{
	for (int form = 0; form < LINEAR_FORMS; form++) {
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
