/* A mixture of experts: the router, and the rows that are sent to experts. There are n tokens of c
 * elements and d experts; lo of them are chosen. */
#include "tests/conform/op_vary.h"

/* --- chosen weights probs lse logits / dlogits dweights chosen weights probs lse load logits
 * scale; with: weights are computed before the choice --- */

static void route_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ CHOICES, d->n * d->lo, 1, STORED };
	a[1] = (struct arg){ SET, d->n * d->lo, 1, SINGLE };
	a[2] = (struct arg){ SET, d->n * d->d, 1, SINGLE };
	a[3] = (struct arg){ SET, d->n, 1, SINGLE };
	a[4] = (struct arg){ IN, d->n * d->d, 2, SINGLE };
}

static void route_fwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->route_fwd(k, p[0], p[1], p[2], p[3], p[4], d->n, d->d, d->lo, d->with);
}

static void route_bwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->d, 1, SINGLE };
	a[1] = (struct arg){ IN, d->n * d->lo, 1, SINGLE };
	a[2] = (struct arg){ TOKENS, d->n * d->lo, 1, STORED };
	a[3] = (struct arg){ IN, d->n * d->lo, 1, SINGLE };
	a[4] = (struct arg){ IN, d->n * d->d, 1, SINGLE };
	a[5] = (struct arg){ IN, d->n, 1, SINGLE };
	a[6] = (struct arg){ IN, d->d, 1, SINGLE };
	a[7] = (struct arg){ IN, d->n * d->d, 2, SINGLE };
	a[8] = (struct arg){ IN, 1, 1, SINGLE };
}

static void route_bwd_prepare(const struct ops *o, struct backend *k, const struct dims *d,
			      void **p)
{
	o->route_fwd(k, p[2], p[3], p[4], p[5], p[7], d->n, d->d, d->lo, d->with);
}

/* fused: with the load-balancing losses. */
static void route_bwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->route_bwd(k, p[0], p[1], p[2], p[3], p[4], p[5], d->fused ? p[6] : NULL,
		     d->fused ? 0.5f : 0, d->fused ? 0.25f : 0, p[8], d->n, d->d, d->lo, d->with);
}

#define ROUTE_DIMS \
	{ \
		{ .n = 1, .d = 1, .lo = 1 }, { .n = 7, .d = 4, .lo = 2, .with = true }, \
			{ .n = 300, .d = 8, .lo = 2, .fused = true }, \
			{ .n = 65, .d = 129, .lo = 7, .with = true, .fused = true }, \
		{ \
			.n = 70, .d = 64, .lo = 64 \
		} \
	}

/* --- places: choices chosen / at chosen before / counts at from chosen; pieces of c tokens,
 * with: limits --- */

static int64_t pieces(const struct dims *d)
{
	return d->n / d->c;
}

static void count_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ PLACES, pieces(d) * d->d, 1, STORED };
	a[1] = (struct arg){ TOKENS, d->n * d->lo, (double)d->d, STORED };
}

static void count_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->route_count(k, p[0], p[1], d->n, d->d, d->lo, d->c);
}

/* load choices */
static void load_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, pieces(d) * d->d, 1, SINGLE };
	a[1] = (struct arg){ ROWS, pieces(d) * d->d, (double)(d->c * d->lo) + 1, STORED };
}

static void load_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->route_load(k, p[0], p[1], pieces(d) * d->d, d->c * d->lo);
}

/* Two thirds of an expert's equal share, plus one. */
static int64_t limit(const struct dims *d)
{
	return d->c * d->lo * 2 / (3 * d->d) + 1;
}

static void drop_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ PLACES, d->n * d->lo, 1, STORED };
	a[1] = (struct arg){ TOKENS, d->n * d->lo, (double)d->d, STORED };
	a[2] = (struct arg){ ROWS, pieces(d) * d->d, (double)limit(d) + 1, STORED };
}

static void drop_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->route_drop(k, p[0], p[1], d->with ? p[2] : NULL, d->n, d->d, d->lo, d->c, limit(d));
}

static void place_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ PLACES, d->d, 1, STORED };
	a[1] = (struct arg){ PLACES, d->n * d->lo, 1, STORED };
	a[2] = (struct arg){ PLACES, d->n * d->lo, 1, STORED };
	a[3] = (struct arg){ TOKENS, d->n * d->lo, (double)d->d, STORED };
}

static void place_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->route_drop(k, p[1], p[3], NULL, d->n, d->d, d->lo, d->c,
		      d->with ? limit(d) : d->n * d->lo);
}

static void place_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->route_place(k, p[0], p[1], p[2], p[3], d->n, d->d, d->lo, 0);
}

/* --- places in blocks: counts at from chosen / rows order back counts; blocks have room for one
 * row more than the limits leave --- */

static int64_t block_of(const struct dims *d)
{
	return pieces(d) * limit(d) + 1;
}

static void place_blocks_args(const struct dims *d, struct arg *a)
{
	place_args(d, a);
	a[2] = (struct arg){ PLACES, d->d * block_of(d), 1, STORED };
}

static void place_blocks_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				 void **p)
{
	o->route_drop(k, p[1], p[3], NULL, d->n, d->d, d->lo, d->c, limit(d));
}

static void place_blocks_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->route_place(k, p[0], p[1], p[2], p[3], d->n, d->d, d->lo, block_of(d));
}

/* Blocks of c rows, of lo ranks for d experts; counts in [0, c + 1], where c + 1 is one too many. */
static void blocks_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ PLACES, d->d, 1, STORED };
	a[1] = (struct arg){ PLACES, d->lo * d->d * d->c, 1, STORED };
	a[2] = (struct arg){ PLACES, d->lo * d->d * d->c, 1, STORED };
	a[3] = (struct arg){ ROWS, d->lo * d->d, (double)d->c + 2, STORED };
}

static void blocks_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->route_blocks(k, p[0], p[1], p[2], p[3], d->lo, d->d, d->c);
}

#define BLOCKS_DIMS \
	{ \
		{ .d = 1, .lo = 1, .c = 1 }, { .d = 4, .lo = 2, .c = 1 }, \
			{ .d = 3, .lo = 5, .c = 7 }, { .d = 1, .lo = 64, .c = 130 }, \
		{ \
			.d = 160, .lo = 2, .c = 20 \
		} \
	}

#define PLACE_DIMS \
	{ \
		{ .n = 1, .d = 1, .lo = 1, .c = 1 }, \
			{ .n = 12, .d = 4, .lo = 2, .c = 6, .with = true }, \
			{ .n = 300, .d = 8, .lo = 2, .c = 300, .with = true }, \
			{ .n = 2050, .d = 129, .lo = 7, .c = 205 }, \
			{ .n = 4000, .d = 64, .lo = 6, .c = 1000, .with = true }, \
		{ \
			.n = 600, .d = 700, .lo = 3, .c = 300, .with = true \
		} \
	}

/* --- loss load probs lse; sequences of c tokens --- */

static void loss_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, 1, 1, DOUBLE };
	a[1] = (struct arg){ IN, pieces(d) * d->d, 1, SINGLE };
	a[2] = (struct arg){ IN, d->n * d->d, 1, SINGLE };
	a[3] = (struct arg){ IN, d->n, 1, SINGLE };
}

static void loss_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->route_loss(k, p[0], p[1], p[2], p[3], d->n, d->d, d->c, 0.5, 0.25);
}

/* --- gather: y x from; one of three rows has no source --- */

static void gather_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, d->d * d->c, 1, STORED };
	a[2] = (struct arg){ ROWS, d->n, (double)d->d, STORED };
}

static void gather_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	(void)o;
	(void)k;
	int64_t *from = p[2];
	for (int64_t i = 1; i < d->n; i += 3)
		from[i] = -1;
}

static void gather_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->gather_rows(k, p[0], p[1], p[2], d->n, d->c);
}

#define GATHER_DIMS \
	{ \
		{ .n = 1, .c = 1, .d = 1 }, { .n = 40, .c = 33, .d = 13 }, \
		{ \
			.n = 200, .c = 128, .d = 300 \
		} \
	}

/* --- copy_rows: y x; rows of c + d into rows of c + lo --- */

static void copy_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ ADD, d->n * (d->c + d->lo), 1, STORED };
	a[1] = (struct arg){ IN, d->n * (d->c + d->d), 1, STORED };
}

static void copy_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->copy_rows(k, p[0], d->c + d->lo, p[1], d->c + d->d, d->n, d->c);
}

#define COPY_DIMS \
	{ \
		{ .n = 1, .c = 1 }, { .n = 40, .c = 33, .d = 7, .lo = 5 }, \
			{ .n = 300, .c = 128, .d = 64 }, { .n = 9, .c = 31, .lo = 3 }, \
		{ \
			.n = 7, .c = 24 \
		} \
	}

/* --- combine: y x at weights / dx dweights dy x at weights; 2 rows of x are not used --- */

static int64_t places(const struct dims *d)
{
	return d->n * d->lo + 2;
}

/* Uses each row of x once, in an order that jumps. If there are several, the first and every ninth
 * after it are dropped. */
static void scatter(const struct dims *d, int64_t *at)
{
	for (int64_t j = 0; j < d->n * d->lo; j++)
		at[j] = d->n > 1 && j % 9 < d->lo - 1 ? -1 : (j * 7919 + 1) % places(d);
}

static void combine_fwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, places(d) * d->c, 1, STORED };
	a[2] = (struct arg){ ROWS, d->n * d->lo, 1, STORED };
	a[3] = (struct arg){ IN, d->n * d->lo, 1, SINGLE };
}

static void combine_fwd_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				void **p)
{
	(void)o;
	(void)k;
	scatter(d, p[2]);
}

static void combine_fwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->combine_fwd(k, p[0], p[1], p[2], d->with ? p[3] : NULL, d->n, d->lo, d->c);
}

static void combine_bwd_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ INOUT, places(d) * d->c, 1, STORED };
	a[1] = (struct arg){ d->with ? SET : IN, d->n * d->lo, 1, SINGLE };
	a[2] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[3] = (struct arg){ IN, places(d) * d->c, 1, STORED };
	a[4] = (struct arg){ ROWS, d->n * d->lo, 1, STORED };
	a[5] = (struct arg){ IN, d->n * d->lo, 1, SINGLE };
}

static void combine_bwd_prepare(const struct ops *o, struct backend *k, const struct dims *d,
				void **p)
{
	(void)o;
	(void)k;
	scatter(d, p[4]);
}

static void combine_bwd_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->combine_bwd(k, p[0], d->with ? p[1] : NULL, p[2], p[3], p[4], d->with ? p[5] : NULL,
		       d->n, d->lo, d->c);
}

#define COMBINE_DIMS \
	{ \
		{ .n = 1, .lo = 1, .c = 1, .with = true }, { .n = 13, .lo = 2, .c = 33 }, \
			{ .n = 100, .lo = 2, .c = 257, .with = true }, \
		{ \
			.n = 50, .lo = 3, .c = 128, .with = true \
		} \
	}

/* clang-format off */
const struct op_test expert_ops[] = {
	{ "route_fwd", vary_experts, true, route_fwd_args, NULL, route_fwd_run, ROUTE_DIMS },
	{ "route_bwd", vary_experts, true, route_bwd_args, route_bwd_prepare, route_bwd_run, ROUTE_DIMS },
	{ "route_count", vary_places, true, count_args, NULL, count_run, PLACE_DIMS },
	{ "route_load", vary_places, true, load_args, NULL, load_run, PLACE_DIMS },
	{ "route_drop", vary_places, true, drop_args, NULL, drop_run, PLACE_DIMS },
	{ "route_place", vary_places, true, place_args, place_prepare, place_run, PLACE_DIMS },
	{ "route_place", vary_places, true, place_blocks_args, place_blocks_prepare, place_blocks_run, PLACE_DIMS },
	{ "route_blocks", vary_places, true, blocks_args, NULL, blocks_run, BLOCKS_DIMS },
	{ "route_loss", vary_places, true, loss_args, NULL, loss_run, PLACE_DIMS },
	{ "gather_rows", vary_gather, true, gather_args, gather_prepare, gather_run, GATHER_DIMS },
	{ "copy_rows", vary_gather, true, copy_args, NULL, copy_run, COPY_DIMS },
	{ "combine_fwd", vary_combine, true, combine_fwd_args, combine_fwd_prepare, combine_fwd_run, COMBINE_DIMS },
	{ "combine_bwd", vary_combine, true, combine_bwd_args, combine_bwd_prepare, combine_bwd_run, COMBINE_DIMS },
	{ 0 }
};
/* clang-format on */
