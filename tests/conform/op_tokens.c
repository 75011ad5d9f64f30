/* Ops that know of tokens and their places: rope, attention, embeddings, cross-entropy. */
#include "tests/conform/op_test.h"

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

const struct op_test token_ops[] = {
	{ "rope_fwd", true, rope_args, NULL, rope_fwd_run, HEADS_DIMS },
	{ "rope_bwd", true, rope_args, NULL, rope_bwd_run, HEADS_DIMS },
	{ "attention_fwd", true, attention_fwd_args, NULL, attention_fwd_run, HEADS_DIMS },
	{ "attention_bwd", true, attention_bwd_args, attention_bwd_prepare, attention_bwd_run, HEADS_DIMS },
	{ "embed_fwd", true, embed_fwd_args, NULL, embed_fwd_run, EMBED_DIMS },
	{ "embed_bwd", true, embed_bwd_args, NULL, embed_bwd_run, EMBED_DIMS },
	{ "xent_max", true, xent_max_args, NULL, xent_max_run, XENT_DIMS },
	{ "xent_exp", true, xent_exp_args, xent_exp_prepare, xent_exp_run, XENT_DIMS },
	{ "xent_grad", true, xent_grad_args, xent_grad_prepare, xent_grad_run, XENT_DIMS },
	{ 0 }
};
