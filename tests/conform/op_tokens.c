/* Ops that depend on tokens and positions: rope, embeddings, cross-entropy. */
#include "tests/conform/op_vary.h"

/* --- rope: x cos sin; n tokens in rows of c, d places --- */

static struct rope_shape rope_of(const struct dims *d)
{
	return (struct rope_shape){
		.n = d->n, .row = d->c, .heads = d->s.heads, .dim = d->s.dim, .seq = d->d
	};
}

static void rope_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->d * d->s.dim / 2, 1, SINGLE };
	a[2] = (struct arg){ IN, d->d * d->s.dim / 2, 1, SINGLE };
}

static void rope_fwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct rope_shape s = rope_of(d);
	o->rope_fwd(k, p[0], &s, p[1], p[2]);
}

static void rope_bwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct rope_shape s = rope_of(d);
	o->rope_bwd(k, p[0], &s, p[1], p[2]);
}

#define ROPE(n_, row, heads_, dim_, seq_) \
	{ \
		.n = n_, .c = row, .d = seq_, .s = {.heads = heads_, .dim = dim_ } \
	}
#define ROPE_DIMS \
	{ \
		ROPE(1, 2, 1, 2, 1), ROPE(10, 40, 3, 10, 5), ROPE(7, 61, 2, 26, 9), \
			ROPE(300, 640, 8, 64, 100) \
	}

/* --- embeddings: y tokens wte wpe positions / dwte dwpe dy tokens positions; d positions; the
 * shard holds [lo, lo + 40) of 100 --- */

enum { VOCAB = 100, SHARD = 40 };

static void embed_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ TOKENS, d->n, VOCAB, STORED };
	a[2] = (struct arg){ IN, SHARD * d->c, 1, STORED };
	a[3] = (struct arg){ IN, d->d * d->c, 1, STORED };
	a[4] = (struct arg){ TOKENS, d->n, (double)d->d, STORED };
}

static void embed_fwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->embed_fwd(k, p[0], p[1], d->with ? p[4] : NULL, p[2], d->with ? p[3] : NULL, d->n, d->c,
		     d->lo, d->lo + SHARD);
}

static void embed_bwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, SHARD * d->c, 1, SINGLE };
	a[1] = (struct arg){ d->with ? ADD : IN, (d->d + 3) * d->c, 1, SINGLE };
	a[2] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[3] = (struct arg){ TOKENS, d->n, VOCAB, STORED };
	a[4] = (struct arg){ TOKENS, d->n, (double)d->d, STORED };
}

static void embed_bwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->embed_bwd(k, p[0], d->with ? p[1] : NULL, p[2], p[3], d->with ? p[4] : NULL, d->n, d->c,
		     d->lo, d->lo + SHARD);
}

#define EMBED_DIMS \
	{ \
		{ .n = 1, .d = 1, .c = 1 }, \
			{ .n = 62, .d = 31, .c = 129, .lo = 20, .with = true }, \
			{ .n = 256, .d = 64, .c = 128, .lo = 60 }, \
			{ .n = 150, .d = 50, .c = 300, .with = true }, \
			{ .n = 2501, .d = 2, .c = 24, .with = true }, \
		{ \
			.n = 100, .d = 700, .c = 8, .with = true \
		} \
	}

/* --- cross-entropy: max logits / logits sum target max targets / logits sum targets; d = whole
 * vocabulary --- */

/* Elements from one row of logits to the next. `with`: as the engine pads them on a device. */
static int64_t logits_row(const struct dims *d)
{
	return d->with ? (d->c / 128 + 1) * 128 : d->c;
}

static void xent_max_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n * logits_row(d), 3, STORED };
}

static void xent_max_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->xent_max(k, p[0], p[1], d->n, d->c, logits_row(d));
}

static void xent_exp_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, d->n * logits_row(d), 3, STORED };
	a[1] = (struct arg){ SET, d->n, 1, SINGLE };
	a[2] = (struct arg){ SET, d->n, 1, SINGLE };
	a[3] = (struct arg){ IN, d->n, 1, SINGLE };
	a[4] = (struct arg){ TOKENS, d->n, (double)d->d, STORED };
	a[5] = (struct arg){ IN, 1, 0.25, SINGLE };
}

static void xent_exp_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->xent_max(k, p[3], p[0], d->n, d->c, logits_row(d));
}

static void xent_exp_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->xent_exp(k, p[0], p[1], p[2], p[3], p[4], d->n, d->c, logits_row(d), d->lo);
}

static void xent_grad_args(const struct dims *d, struct arg *a)
{
	xent_exp_args(d, a);
	a[1].kind = a[2].kind = IN;
}

static void xent_grad_prepare(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	o->xent_max(k, p[3], p[0], d->n, d->c, logits_row(d));
	o->xent_exp(k, p[0], p[1], p[2], p[3], p[4], d->n, d->c, logits_row(d), d->lo);
}

static void xent_grad_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->xent_grad(k, p[0], p[1], p[4], p[5], d->n, d->c, logits_row(d), d->lo);
}

/* as xent_exp, but without max; the shard has all columns */
static void xent_args(const struct dims *d, struct arg *a)
{
	xent_exp_args(d, a);
	a[3] = (struct arg){ .kind = NONE };
}

static void xent_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->xent(k, p[0], p[1], p[2], p[4], p[5], d->n, d->c, logits_row(d));
}

/* loss sum target */
static void xent_loss_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, 1, 1, DOUBLE };
	a[1] = (struct arg){ IN, d->n, 3, SINGLE };
	a[2] = (struct arg){ IN, d->n, 3, SINGLE };
}

/* Sums of exponentials are at least 1. */
static void xent_loss_prepare(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	(void)o;
	(void)k;
	double *sum = p[1];
	for (int64_t i = 0; i < d->n; i++)
		sum[i] = 1 + sum[i] * sum[i];
}

static void xent_loss_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->xent_loss(k, p[0], p[1], p[2], d->n);
}

#define XENT_DIMS \
	{ \
		{ .n = 1, .c = 1, .d = 1 }, { .n = 5, .c = 257, .d = 257 }, \
			{ .n = 70, .c = 300, .d = 900, .lo = 301 }, \
			{ .n = 7, .c = 25129, .d = 50257 }, \
			{ .n = 7, .c = 25128, .d = 50257, .lo = 25129, .with = true }, \
		{ \
			.n = 3, .c = 50257, .d = 50257, .with = true \
		} \
	}

/* clang-format off */
const struct op_test token_ops[] = {
	{ "rope_fwd", vary_rope, true, rope_args, NULL, rope_fwd_run, ROPE_DIMS },
	{ "rope_bwd", vary_rope, true, rope_args, NULL, rope_bwd_run, ROPE_DIMS },
	{ "embed_fwd", vary_embed, true, embed_fwd_args, NULL, embed_fwd_run, EMBED_DIMS },
	{ "embed_bwd", vary_embed, true, embed_bwd_args, NULL, embed_bwd_run, EMBED_DIMS },
	{ "xent_max", vary_xent, true, xent_max_args, NULL, xent_max_run, XENT_DIMS },
	{ "xent_exp", vary_xent, true, xent_exp_args, xent_exp_prepare, xent_exp_run, XENT_DIMS },
	{ "xent_grad", vary_xent, true, xent_grad_args, xent_grad_prepare, xent_grad_run, XENT_DIMS },
	{ "xent", vary_xent, true, xent_args, NULL, xent_run, {
		{ .n = 1, .c = 1, .d = 1 }, { .n = 5, .c = 257, .d = 257 }, { .n = 2, .c = 60001, .d = 60001 }, { .n = 300, .c = 512, .d = 512 }, { .n = 3, .c = 50257, .d = 50257 },
		{ .n = 3, .c = 50257, .d = 50257, .with = true } } },
	{ "xent_loss", vary_counts, true, xent_loss_args, xent_loss_prepare, xent_loss_run, { { .n = 1 }, { .n = 33 }, { .n = 9001 } } },
	{ 0 }
};
/* clang-format on */
