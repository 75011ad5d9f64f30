#include "plan/cost/cost.h"

#include <math.h>
#include <string.h>

#define MATRIX_SHARE 0.70
#define GPU_FP32 0.5 /* of the 2-byte types' rate: TF32 */
#define MEMORY_SHARE 0.80
#define OP_COST 5e-6
#define UNKNOWN_FLOPS 20e9
#define UNKNOWN_BANDWIDTH 5e9

enum { F32 = 4 };

static double known(double x, double otherwise)
{
	return x > 0 ? x : otherwise;
}

/* The slowest node that is used sets the pace. */
static void slowest(double *rate, double x)
{
	if (*rate <= 0 || x < *rate)
		*rate = x;
}

struct cost_rates cost_rates_of(const struct job *job, const struct cluster *c, const struct plan *p)
{
	struct cost_rates r = { 0 };
	double type = job->precision.dtype == DTYPE_FP32 ? GPU_FP32 : 1;
	for (int i = 0; i < p->world;) {
		int node = p->ranks[i].node, threads = 0;
		for (; i < p->world && p->ranks[i].node == node; i++)
			threads += p->ranks[i].threads;
		const struct node_kind *k = &c->kinds[c->nodes[node].kind];
		double share = type;
		if (!strcmp(k->device, "cpu"))
			share = (double)p->threads / fmax(threads, k->cores) * k->devices;
		slowest(&r.flops, known(k->device_flops, UNKNOWN_FLOPS) * share);
		slowest(&r.bandwidth, known(k->device_bandwidth, UNKNOWN_BANDWIDTH) * share);
	}
	return r;
}

double cost_moved(const struct cost_rates *r, double bytes)
{
	return bytes / (MEMORY_SHARE * r->bandwidth) + OP_COST;
}

/* --- A layer --------------------------------------------------------------------- */

/* The mean shard of a micro-batch; uneven cuts differ by less than the model errs. */
struct shard {
	double n, s, c, width; /* tokens, rows of the residual stream, hidden, bytes of an element */
	double q, kv, f, up, vocab;
	double rows;           /* that go through a feed-forward part: of a mixture top × n */
	int experts;           /* here; 1 of a dense layer */
};

static struct shard shard_of(const struct cost_case *c)
{
	const struct job *job = c->job;
	const struct model_shape *m = c->shape;
	const struct layout *l = c->layout;
	double n = (double)job->batch.micro * (double)m->seq / l->cp, f = (double)m->ffn / l->tp;
	return (struct shard){
		.n = n, .s = job->parallel.sp ? n / l->tp : n, .c = (double)m->hidden, .width = job->precision.dtype == DTYPE_FP32 ? 4 : 2,
		.q = (double)(m->heads * m->head_dim) / l->tp, .kv = (double)(m->kv_heads * m->head_dim) / l->tp,
		.f = f, .up = m->gated ? 2 * f : f, .vocab = (double)m->vocab / l->tp,
		.rows = m->experts ? n * (double)m->top : n, .experts = m->experts ? (int)(m->experts / l->ep) : 1,
	};
}

static double product(const struct cost_rates *r, double n, double in, double out)
{
	return 2 * n * in * out / (MATRIX_SHARE * r->flops) + OP_COST;
}

/* Compute of a layer's forward pass by part. */
struct layer {
	double products, attention, between; /* between: norms, activation functions, rotation */
};

static struct layer layer_of(const struct cost_case *c, const struct shard *h)
{
	const struct model_shape *m = c->shape;
	const struct cost_rates *r = &c->rates;
	struct layer y = {
		.products = product(r, h->n, h->c, h->q + 2 * h->kv) + product(r, h->n, h->q, h->c) + product(r, h->rows, h->c, h->up) +
			    product(r, h->rows, h->f, h->c) + 2 * (h->experts - 1) * OP_COST,
		.attention = 2 * h->n * h->q * (double)m->seq / (MATRIX_SHARE * r->flops) + OP_COST, /* two products, half masked */
		.between = 2 * cost_moved(r, h->width * 4 * h->s * h->c) + cost_moved(r, h->width * h->rows * (h->up + h->f)) +
			   (m->rope ? cost_moved(r, h->width * 2 * h->n * (h->q + h->kv)) : 0),
	};
	if (m->experts) {
		y.products += product(r, h->n, h->c, (double)m->experts);
		y.between += cost_moved(r, h->width * 4 * h->rows * h->c); /* rows gathered, and summed again */
	}
	return y;
}

/* Keys and values round the ring, beside attention's time. factor: how much more goes round in the backward pass. */
static double ring_left(const struct cost_case *c, const struct shard *h, double attention, double factor)
{
	int cp = c->layout->cp;
	double all = (cp - 1) * span_hop(&c->spans[GROUP_CP], factor * 2 * h->kv * h->n * h->width), shade = attention * (cp - 1) / cp;
	return cp > 1 ? fmax(0, all - shade) : 0;
}

static void add_layers(const struct cost_case *c, const struct shard *h, const struct stage *stage, struct cost_pass *t)
{
	const struct job *job = c->job;
	double layers = stage->layer_hi - stage->layer_lo, sum = span_all_reduce(&c->spans[GROUP_TP], h->width * h->n * h->c);
	int every = (int)job->recompute.every;
	double again = job->recompute.mode == RECOMPUTE_NONE ? 0 : (stage->layer_hi + every - 1) / every - (stage->layer_lo + every - 1) / every;
	struct layer y = layer_of(c, h);
	double cp = ring_left(c, h, y.attention, 1), ep = span_all_to_all(&c->spans[GROUP_EP], h->rows * h->c * h->width);
	t->fwd = layers * (y.products + y.attention + y.between);
	t->bwd = layers * (2 * y.products + 2.5 * y.attention + 2 * y.between);
	t->weight = layers * y.products;
	t->tp_fwd = layers * 2 * sum;
	t->tp_bwd = layers * (2 + (job->parallel.sp ? 1 : 0)) * sum; /* sp: two inputs are gathered again, half a sum each */
	t->cp_fwd = layers * cp;
	t->cp_bwd = layers * ring_left(c, h, 2.5 * y.attention, 2);
	t->ep_fwd = t->ep_bwd = layers * 2 * ep;
	t->again = again * (y.attention + y.between + cp + (job->recompute.mode == RECOMPUTE_FULL ? y.products + 2 * sum + 2 * ep : 0));
}

struct cost_pass cost_pass_of(const struct cost_case *c, const struct stage *stage)
{
	const struct cost_rates *r = &c->rates;
	const struct span *tp = &c->spans[GROUP_TP];
	struct shard h = shard_of(c);
	struct cost_pass t;
	double sum = span_all_reduce(tp, h.width * h.n * h.c);
	add_layers(c, &h, stage, &t);
	if (stage->first) {
		t.fwd += cost_moved(r, h.width * 2 * h.n * h.c);
		t.bwd += cost_moved(r, h.width * 3 * h.n * h.c);
		t.tp_fwd += sum;
	}
	if (stage->last) { /* the head's backward comes with the loss */
		t.fwd += 3 * product(r, h.n, h.c, h.vocab) + cost_moved(r, h.width * 5 * h.n * h.vocab) + cost_moved(r, h.width * 4 * h.n * h.c);
		t.bwd += cost_moved(r, h.width * 6 * h.n * h.c);
		t.tp_fwd += span_all_reduce(tp, F32 * h.n) + span_all_reduce(tp, F32 * 2 * h.n);
		t.tp_bwd += sum;
	}
	return t;
}
