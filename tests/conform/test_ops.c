/*
 * Every op of every backend against plain64, the specification on doubles.
 *
 * A row of `tests` declares an op's arguments and calls it; the rest is the
 * same for all: "sets" outputs are NaN before, "adds" outputs hold known
 * values, inputs must stay as they were, nothing may be written behind an
 * array, the error is |out - ref| / |ref| <= 1e-5, two runs give the same
 * bits, and so do 1, 2 and 3 threads where the op promises it.
 *
 * To add an op: its arguments, its call, its sizes, a row in `tests`.
 */
#include "base/philox.h"
#include "kernels/ops.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum kind { NONE, IN, SET, ADD, INOUT, TOKENS /* int32 in [0, count of the vocabulary) */ };

/* Random numbers of standard deviation `scale` (the vocabulary for TOKENS). */
struct arg {
	enum kind kind;
	int64_t count;
	double scale;
};

enum { ARGS = 10, PAD = 16 };
static const unsigned char canary = 0x7b;
static const double tolerance = 1e-5;

/* Sizes, as each op reads them. */
struct dims {
	int64_t n, c, d;
	int32_t lo;
	bool with;   /* the optional arguments */
	struct attn_shape s;
};

struct op_test {
	const char *name;
	bool any_threads;    /* the same bits for any number of threads */
	void (*args)(const struct dims *d, struct arg *a);
	void (*prepare)(const struct ops *o, struct kern *k, const struct dims *d, void **p); /* derived inputs; may be NULL */
	void (*run)(const struct ops *o, struct kern *k, const struct dims *d, void **p);
	struct dims dims[8];
};

/* --- linear: y x w bias / dx dy w / dw dbias dy x; n, c = in, d = out --- */

static void linear_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->d, 1 };
	a[1] = (struct arg){ IN, d->n * d->c, 1 };
	a[2] = (struct arg){ IN, d->d * d->c, 0.1 };
	a[3] = (struct arg){ IN, d->d, 1 };
}

static void linear_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->linear_fwd(k, p[0], p[1], p[2], d->with ? p[3] : NULL, d->n, d->c, d->d);
}

static void linear_bwd_input_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1 };
	a[1] = (struct arg){ IN, d->n * d->d, 1 };
	a[2] = (struct arg){ IN, d->d * d->c, 0.1 };
}

static void linear_bwd_input_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->linear_bwd_input(k, NULL, p[1], p[2], d->n, d->c, d->d);
	o->linear_bwd_input(k, p[0], p[1], p[2], d->n, d->c, d->d);
}

static void linear_bwd_weight_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->d * d->c, 1 };
	a[1] = (struct arg){ d->with ? ADD : IN, d->d, 1 };
	a[2] = (struct arg){ IN, d->n * d->d, 1 };
	a[3] = (struct arg){ IN, d->n * d->c, 1 };
}

static void linear_bwd_weight_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->linear_bwd_weight(k, p[0], d->with ? p[1] : NULL, p[2], p[3], d->n, d->c, d->d);
}

#define LINEAR_DIMS { \
	{ .n = 1, .c = 1, .d = 1, .with = true }, { .n = 1, .c = 96, .d = 130 }, { .n = 37, .c = 65, .d = 3, .with = true }, \
	{ .n = 128, .c = 128, .d = 128, .with = true }, { .n = 200, .c = 120, .d = 384 }, { .n = 250, .c = 7, .d = 1023, .with = true }, \
	{ .n = 5, .c = 64, .d = 25129 } }

/* --- norms: y sum mean rstd x r w bias / dx dw dbias dy dres x mean rstd w --- */

static void norm_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1 };
	a[1] = (struct arg){ d->with ? SET : IN, d->n * d->c, 1 };
	a[2] = (struct arg){ SET, d->n, 1 };
	a[3] = (struct arg){ SET, d->n, 1 };
	a[4] = (struct arg){ IN, d->n * d->c, 2 };
	a[5] = (struct arg){ IN, d->n * d->c, 1 };
	a[6] = (struct arg){ IN, d->c, 1 };
	a[7] = (struct arg){ IN, d->c, 1 };
}

static void layernorm_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->layernorm_fwd(k, p[0], d->with ? p[1] : NULL, p[2], p[3], p[4], d->with ? p[5] : NULL, p[6], p[7], d->n, d->c, 1e-5f);
}

static void rmsnorm_fwd_args(const struct dims *d, struct arg *a)
{
	norm_fwd_args(d, a);
	a[2].kind = IN;
}

static void rmsnorm_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->rmsnorm_fwd(k, p[0], d->with ? p[1] : NULL, p[3], p[4], d->with ? p[5] : NULL, p[6], d->n, d->c, 1e-5f);
}

static void norm_bwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1 };
	a[1] = (struct arg){ ADD, d->c, 1 };
	a[2] = (struct arg){ ADD, d->c, 1 };
	a[3] = (struct arg){ IN, d->n * d->c, 1 };
	a[4] = (struct arg){ IN, d->n * d->c, 1 };
	a[5] = (struct arg){ IN, d->n * d->c, 2 };
	a[6] = (struct arg){ IN, d->n, 1 };
	a[7] = (struct arg){ IN, d->n, 1 };
	a[8] = (struct arg){ IN, d->c, 1 };
	a[9] = (struct arg){ IN, d->n * d->c, 1 }; /* y, while preparing */
}

static void layernorm_bwd_prepare(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->layernorm_fwd(k, p[9], NULL, p[6], p[7], p[5], NULL, p[8], p[8], d->n, d->c, 1e-5f);
}

static void layernorm_bwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->layernorm_bwd(k, p[0], p[1], p[2], p[3], d->with ? p[4] : NULL, p[5], p[6], p[7], p[8], d->n, d->c);
}

static void rmsnorm_bwd_args(const struct dims *d, struct arg *a)
{
	norm_bwd_args(d, a);
	a[2].kind = IN;
}

static void rmsnorm_bwd_prepare(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->rmsnorm_fwd(k, p[9], NULL, p[7], p[5], NULL, p[8], d->n, d->c, 1e-5f);
}

static void rmsnorm_bwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->rmsnorm_bwd(k, p[0], p[1], p[3], d->with ? p[4] : NULL, p[5], p[7], p[8], d->n, d->c);
}

#define NORM_DIMS { \
	{ .n = 1, .c = 7 }, { .n = 3, .c = 127, .with = true }, { .n = 150, .c = 768, .with = true }, { .n = 301, .c = 129 }, \
	{ .n = 2, .c = 5001, .with = true } }

/* --- activations: y x / dx dy x --- */

static void map_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n, 1 };
	a[1] = (struct arg){ IN, d->n, 3 };
}

static void gelu_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->gelu_fwd(k, p[0], p[1], d->n);
}

static void gelu_bwd_args(const struct dims *d, struct arg *a)
{
	map_fwd_args(d, a);
	a[2] = (struct arg){ IN, d->n, 3 };
}

static void gelu_bwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->gelu_bwd(k, p[0], p[1], p[2], d->n);
}

static void swiglu_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1 };
	a[1] = (struct arg){ IN, d->n * 2 * d->c, 3 };
}

static void swiglu_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->swiglu_fwd(k, p[0], p[1], d->n, d->c);
}

static void swiglu_bwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * 2 * d->c, 1 };
	a[1] = (struct arg){ IN, d->n * d->c, 1 };
	a[2] = (struct arg){ IN, d->n * 2 * d->c, 3 };
}

static void swiglu_bwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->swiglu_bwd(k, p[0], p[1], p[2], d->n, d->c);
}

#define COUNT_DIMS { { .n = 1 }, { .n = 15 }, { .n = 17 }, { .n = 70001 } }
#define ROWS_DIMS { { .n = 1, .c = 1 }, { .n = 3, .c = 33 }, { .n = 130, .c = 344 }, { .n = 2, .c = 30011 } }

/* --- rope: qkv; attention: o lse qkv / dqkv dout o lse qkv --- */

static int64_t qkv_count(const struct dims *d)
{
	return d->s.batch * d->s.seq * (d->s.heads + 2 * d->s.kv_heads) * d->s.dim;
}

static void rope_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, qkv_count(d), 1 };
}

static void rope_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->rope_fwd(k, p[0], &d->s, 10000);
}

static void rope_bwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->rope_bwd(k, p[0], &d->s, 500000);
}

static void attention_fwd_args(const struct dims *d, struct arg *a)
{
	int64_t queries = d->s.batch * d->s.seq * d->s.heads;
	a[0] = (struct arg){ SET, queries * d->s.dim, 1 };
	a[1] = (struct arg){ SET, queries, 1 };
	a[2] = (struct arg){ IN, qkv_count(d), 1.5 };
}

static void attention_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->attention_fwd(k, p[0], p[1], p[2], &d->s);
}

static void attention_bwd_args(const struct dims *d, struct arg *a)
{
	int64_t queries = d->s.batch * d->s.seq * d->s.heads;
	a[0] = (struct arg){ SET, qkv_count(d), 1 };
	a[1] = (struct arg){ IN, queries * d->s.dim, 1 };
	a[2] = (struct arg){ IN, queries * d->s.dim, 1 };
	a[3] = (struct arg){ IN, queries, 1 };
	a[4] = (struct arg){ IN, qkv_count(d), 1 };
}

static void attention_bwd_prepare(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->attention_fwd(k, p[2], p[3], p[4], &d->s);
}

static void attention_bwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->attention_bwd(k, p[0], p[1], p[2], p[3], p[4], &d->s);
}

#define HEADS_DIMS { \
	{ .s = { 1, 1, 1, 1, 2 } }, { .s = { 2, 5, 2, 1, 10 } }, { .s = { 3, 64, 4, 4, 8 } }, { .s = { 1, 130, 6, 2, 64 } }, \
	{ .s = { 2, 67, 2, 1, 128 } }, { .s = { 1, 65, 1, 1, 256 } }, { .s = { 1, 193, 2, 2, 16 } } }

/* --- embeddings: y tokens wte wpe / dwte dwpe dy tokens; n = batch, d = seq; the shard holds [lo, lo + 40) of 100 --- */

enum { VOCAB = 100, SHARD = 40 };

static void embed_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->d * d->c, 1 };
	a[1] = (struct arg){ TOKENS, d->n * d->d, VOCAB };
	a[2] = (struct arg){ IN, SHARD * d->c, 1 };
	a[3] = (struct arg){ IN, d->d * d->c, 1 };
}

static void embed_fwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->embed_fwd(k, p[0], p[1], p[2], d->with ? p[3] : NULL, d->n, d->d, d->c, d->lo, d->lo + SHARD);
}

static void embed_bwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, SHARD * d->c, 1 };
	a[1] = (struct arg){ d->with ? ADD : IN, (d->d + 3) * d->c, 1 };
	a[2] = (struct arg){ IN, d->n * d->d * d->c, 1 };
	a[3] = (struct arg){ TOKENS, d->n * d->d, VOCAB };
}

static void embed_bwd_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->embed_bwd(k, p[0], d->with ? p[1] : NULL, p[2], p[3], d->n, d->d, d->c, d->lo, d->lo + SHARD);
}

#define EMBED_DIMS { \
	{ .n = 1, .d = 1, .c = 1 }, { .n = 2, .d = 31, .c = 129, .lo = 20, .with = true }, \
	{ .n = 4, .d = 64, .c = 128, .lo = 60 }, { .n = 3, .d = 50, .c = 300, .with = true } }

/* --- cross-entropy: max logits / logits sum target max targets / logits sum targets; d = whole vocabulary --- */

static void xent_max_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n, 1 };
	a[1] = (struct arg){ IN, d->n * d->c, 3 };
}

static void xent_max_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->xent_max(k, p[0], p[1], d->n, d->c);
}

static void xent_exp_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, d->n * d->c, 3 };
	a[1] = (struct arg){ SET, d->n, 1 };
	a[2] = (struct arg){ SET, d->n, 1 };
	a[3] = (struct arg){ IN, d->n, 1 };
	a[4] = (struct arg){ TOKENS, d->n, (double)d->d };
}

static void xent_exp_prepare(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->xent_max(k, p[3], p[0], d->n, d->c);
}

static void xent_exp_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->xent_exp(k, p[0], p[1], p[2], p[3], p[4], d->n, d->c, d->lo);
}

static void xent_grad_args(const struct dims *d, struct arg *a)
{
	xent_exp_args(d, a);
	a[1].kind = a[2].kind = IN;
}

static void xent_grad_prepare(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->xent_max(k, p[3], p[0], d->n, d->c);
	o->xent_exp(k, p[0], p[1], p[2], p[3], p[4], d->n, d->c, d->lo);
}

static void xent_grad_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->xent_grad(k, p[0], p[1], p[4], 0.25f, d->n, d->c, d->lo);
}

#define XENT_DIMS { \
	{ .n = 1, .c = 1, .d = 1 }, { .n = 5, .c = 257, .d = 257 }, { .n = 70, .c = 300, .d = 900, .lo = 301 }, \
	{ .n = 7, .c = 25129, .d = 50257 }, { .n = 7, .c = 25128, .d = 50257, .lo = 25129 }, { .n = 3, .c = 50257, .d = 50257 } }

/* --- sums and the optimizer --- */

static void add_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->n, 1 };
	a[1] = (struct arg){ IN, d->n, 1 };
}

static void add_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->add(k, p[0], p[1], d->n);
}

static void add_bias_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->n * d->c, 1 };
	a[1] = (struct arg){ IN, d->c, 1 };
}

static void add_bias_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->add_bias(k, p[0], p[1], d->n, d->c);
}

static void sum_rows_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->c, 1 };
	a[1] = (struct arg){ IN, d->n * d->c, 1 };
}

static void sum_rows_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	o->sum_rows(k, p[0], p[1], d->n, d->c);
}

/* p g m v, m and v those of some steps. */
static void adamw_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, d->n, 1 };
	a[1] = (struct arg){ IN, d->n, 0.3 };
	a[2] = (struct arg){ INOUT, d->n, 0.1 };
	a[3] = (struct arg){ INOUT, d->n, 0.1 };
}

static void adamw_prepare(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	(void)o;
	(void)k;
	double *v = p[3];
	for (int64_t i = 0; i < d->n; i++)
		v[i] = v[i] * v[i];
}

static void adamw_run(const struct ops *o, struct kern *k, const struct dims *d, void **p)
{
	struct adamw_args a = { 0.01f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.7f, 3 };
	o->adamw(k, p[0], p[1], p[2], p[3], d->n, &a);
}

static const struct op_test tests[] = {
	{ "linear_fwd", false, linear_fwd_args, NULL, linear_fwd_run, LINEAR_DIMS },
	{ "linear_bwd_input", false, linear_bwd_input_args, NULL, linear_bwd_input_run, LINEAR_DIMS },
	{ "linear_bwd_weight", false, linear_bwd_weight_args, NULL, linear_bwd_weight_run, LINEAR_DIMS },
	{ "layernorm_fwd", true, norm_fwd_args, NULL, layernorm_fwd_run, NORM_DIMS },
	{ "layernorm_bwd", true, norm_bwd_args, layernorm_bwd_prepare, layernorm_bwd_run, NORM_DIMS },
	{ "rmsnorm_fwd", true, rmsnorm_fwd_args, NULL, rmsnorm_fwd_run, NORM_DIMS },
	{ "rmsnorm_bwd", true, rmsnorm_bwd_args, rmsnorm_bwd_prepare, rmsnorm_bwd_run, NORM_DIMS },
	{ "gelu_fwd", true, map_fwd_args, NULL, gelu_fwd_run, COUNT_DIMS },
	{ "gelu_bwd", true, gelu_bwd_args, NULL, gelu_bwd_run, COUNT_DIMS },
	{ "swiglu_fwd", true, swiglu_fwd_args, NULL, swiglu_fwd_run, ROWS_DIMS },
	{ "swiglu_bwd", true, swiglu_bwd_args, NULL, swiglu_bwd_run, ROWS_DIMS },
	{ "rope_fwd", true, rope_args, NULL, rope_fwd_run, HEADS_DIMS },
	{ "rope_bwd", true, rope_args, NULL, rope_bwd_run, HEADS_DIMS },
	{ "attention_fwd", true, attention_fwd_args, NULL, attention_fwd_run, HEADS_DIMS },
	{ "attention_bwd", true, attention_bwd_args, attention_bwd_prepare, attention_bwd_run, HEADS_DIMS },
	{ "embed_fwd", true, embed_fwd_args, NULL, embed_fwd_run, EMBED_DIMS },
	{ "embed_bwd", true, embed_bwd_args, NULL, embed_bwd_run, EMBED_DIMS },
	{ "xent_max", true, xent_max_args, NULL, xent_max_run, XENT_DIMS },
	{ "xent_exp", true, xent_exp_args, xent_exp_prepare, xent_exp_run, XENT_DIMS },
	{ "xent_grad", true, xent_grad_args, xent_grad_prepare, xent_grad_run, XENT_DIMS },
	{ "add", true, add_args, NULL, add_run, COUNT_DIMS },
	{ "add_bias", true, add_bias_args, NULL, add_bias_run, ROWS_DIMS },
	{ "sum_rows", true, sum_rows_args, NULL, sum_rows_run, ROWS_DIMS },
	{ "adamw", true, adamw_args, adamw_prepare, adamw_run, COUNT_DIMS },
};
enum { TESTS = sizeof tests / sizeof tests[0] };

/* --- running a row --- */

/* One call's arrays, of doubles for the reference or of floats, with a canary behind each. */
struct call {
	struct arg args[ARGS];
	void *p[ARGS];
	size_t element;
};

static size_t arg_bytes(const struct call *c, int i)
{
	size_t element = c->args[i].kind == TOKENS ? sizeof(int32_t) : c->element;
	return (size_t)c->args[i].count * element;
}

static void call_init(struct call *c, const struct op_test *t, const struct dims *d, size_t element)
{
	memset(c, 0, sizeof *c);
	c->element = element;
	t->args(d, c->args);
	for (int i = 0; i < ARGS; i++) {
		if (c->args[i].kind == NONE)
			continue;
		size_t bytes = arg_bytes(c, i);
		c->p[i] = aligned_alloc(64, (bytes + PAD + 63) / 64 * 64);
		assert_non_null(c->p[i]);
		memset((char *)c->p[i] + bytes, canary, PAD);
	}
}

static void call_fini(struct call *c)
{
	for (int i = 0; i < ARGS; i++)
		free(c->p[i]);
}

/* The reference's arrays: doubles that floats can hold. */
static void call_random(struct call *c, uint64_t seed)
{
	for (int i = 0; i < ARGS; i++) {
		const struct arg *a = &c->args[i];
		struct philox_key key = philox_key(seed, PHILOX_TEST, (uint64_t)i);
		for (int64_t j = 0; a->kind && j < a->count; j++) {
			uint32_t bits[4];
			float normal;
			philox4(key, (uint64_t)j, bits);
			philox_normal(key, (uint64_t)j, 1, &normal);
			if (a->kind == TOKENS)
				((int32_t *)c->p[i])[j] = (int32_t)(bits[0] % (uint32_t)a->scale);
			else
				((double *)c->p[i])[j] = (double)(normal * (float)a->scale);
		}
	}
}

static void call_round(struct call *c)
{
	for (int i = 0; i < ARGS; i++)
		for (int64_t j = 0; c->args[i].kind && c->args[i].kind != TOKENS && j < c->args[i].count; j++)
			((double *)c->p[i])[j] = (double)(float)((double *)c->p[i])[j];
}

/* Copies what the op reads; what it sets becomes NaN. */
static void call_copy(struct call *to, const struct call *from)
{
	for (int i = 0; i < ARGS; i++) {
		enum kind kind = to->args[i].kind;
		if (kind == TOKENS)
			memcpy(to->p[i], from->p[i], arg_bytes(to, i));
		else if (kind != NONE)
			for (int64_t j = 0; j < to->args[i].count; j++) {
				double x = kind == SET ? (double)NAN : ((double *)from->p[i])[j];
				if (to->element == sizeof(float))
					((float *)to->p[i])[j] = (float)x;
				else
					((double *)to->p[i])[j] = x;
			}
	}
}

static void call_keep(struct call *to, const struct call *from)
{
	for (int i = 0; i < ARGS; i++)
		if (to->args[i].kind != NONE)
			memcpy(to->p[i], from->p[i], arg_bytes(to, i));
}

static const char *where(const struct op_test *t, const struct dims *d, const char *backend, int threads, int arg)
{
	static char text[200];
	snprintf(text, sizeof text, "%s %s, %d threads, argument %d (n %ld, c %ld, d %ld, %ldx%ld %d/%d heads of %d)", backend,
		 t->name, threads, arg, (long)d->n, (long)d->c, (long)d->d, (long)d->s.batch, (long)d->s.seq, d->s.heads,
		 d->s.kv_heads, d->s.dim);
	return text;
}

static double relative_error(const float *out, const double *ref, int64_t n)
{
	double diff = 0, norm = 0;
	for (int64_t i = 0; i < n; i++) {
		diff += ((double)out[i] - ref[i]) * ((double)out[i] - ref[i]);
		norm += ref[i] * ref[i];
	}
	return norm > 0 ? sqrt(diff / norm) : sqrt(diff);
}

/* Outputs near the reference, inputs untouched, canaries alive. */
static void check(const struct call *out, const struct call *in, const struct call *ref, const struct op_test *t,
		  const struct dims *d, const char *backend, int threads)
{
	for (int i = 0; i < ARGS; i++) {
		enum kind kind = out->args[i].kind;
		if (kind == NONE)
			continue;
		const char *at = where(t, d, backend, threads, i);
		size_t bytes = arg_bytes(out, i);
		for (int j = 0; j < PAD; j++)
			if (((unsigned char *)out->p[i])[bytes + (size_t)j] != canary)
				fail_msg("%s: wrote behind its end", at);
		if (kind == IN || kind == TOKENS) {
			if (memcmp(out->p[i], in->p[i], bytes))
				fail_msg("%s: changed an input", at);
			continue;
		}
		double error = relative_error(out->p[i], ref->p[i], out->args[i].count);
		if (!(error <= tolerance))
			fail_msg("%s: error %.3g", at, error);
	}
}

static void check_same(const struct call *a, const struct call *b, const char *at)
{
	for (int i = 0; i < ARGS; i++)
		if (a->args[i].kind != NONE && memcmp(a->p[i], b->p[i], arg_bytes(a, i)))
			fail_msg("%s: argument %d differs", at, i);
}

static void run_threads(const struct op_test *t, const struct dims *d, const char *backend, int threads,
			const struct call *master, const struct call *ref, struct call *first)
{
	struct kern *k;
	struct err e = ERR_INIT;
	struct call in, one, two;
	if (kern_open(backend, threads, &k, &e) < 0)
		fail_msg("%s", e.text);
	call_init(&in, t, d, sizeof(float));
	call_init(&one, t, d, sizeof(float));
	call_init(&two, t, d, sizeof(float));
	call_copy(&in, master);
	call_copy(&one, master);
	call_copy(&two, master);
	t->run(kern_ops(k), k, d, one.p);
	check(&one, &in, ref, t, d, backend, threads);
	t->run(kern_ops(k), k, d, two.p);
	check_same(&one, &two, where(t, d, backend, threads, -1));
	if (threads == 1)
		call_keep(first, &one);
	else if (t->any_threads)
		check_same(first, &one, where(t, d, backend, threads, -1));
	call_fini(&in);
	call_fini(&one);
	call_fini(&two);
	kern_close(k);
}

static void run_dims(const struct op_test *t, const struct dims *d, const char *backend)
{
	struct kern *k;
	struct call master, ref, first;
	assert_int_equal(kern_open("plain64", 1, &k, NULL), 0);
	call_init(&master, t, d, sizeof(double));
	call_init(&ref, t, d, sizeof(double));
	call_init(&first, t, d, sizeof(float));
	call_random(&master, 7);
	if (t->prepare)
		t->prepare(kern_ops(k), k, d, master.p);
	call_round(&master);
	call_copy(&ref, &master);
	t->run(kern_ops(k), k, d, ref.p);
	for (int threads = 1; threads <= (strcmp(backend, "plain") ? 3 : 1); threads++)
		run_threads(t, d, backend, threads, &master, &ref, &first);
	call_fini(&master);
	call_fini(&ref);
	call_fini(&first);
	kern_close(k);
}

/* cmocka hands over the backend's name. */
static void every_op_agrees_with_the_specification(void **state)
{
	const char *backend = *state;
	struct kern *k;
	struct err e = ERR_INIT;
	if (kern_open(backend, 1, &k, &e) < 0) {
		print_message("%s\n", e.text);
		skip();
	}
	kern_close(k);
	for (int i = 0; i < TESTS; i++)
		for (const struct dims *d = tests[i].dims; d->n || d->s.seq; d++)
			run_dims(&tests[i], d, backend);
}

#define BACKEND(name) { name " agrees with the specification", every_op_agrees_with_the_specification, NULL, NULL, name }

int main(void)
{
	const struct CMUnitTest backends[] = {
		BACKEND("plain"), BACKEND("cpu"), BACKEND("cpu-v2"), BACKEND("cpu-v3"), BACKEND("cpu-v4"),
	};
	return cmocka_run_group_tests(backends, NULL, NULL);
}
