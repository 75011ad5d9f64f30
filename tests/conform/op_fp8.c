/* fp8 products. Bytes and scales are compared as words of 4 bytes. n rows, c columns, products of
 * depth d; with: e5m2. */
#include "tests/conform/op_test.h"

#include <math.h>
#include <string.h>

static int64_t words(int64_t bytes)
{
	return (bytes + 3) / 4;
}

enum { SCALE_WORDS = sizeof(struct fp8_scale) / sizeof(int32_t) };

static enum fp8 format_of(const struct dims *d)
{
	return d->with ? FP8_E5M2 : FP8_E4M3;
}

static void begin(struct fp8_scale *s, float scale)
{
	*s = (struct fp8_scale){ .scale = scale, .inverse = 1 / scale, .largest = 0.25f };
}

/* --- y turned scale x; fused: computes only the largest magnitude --- */

static void cast_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ CHOICES, words(d->n * d->c), 1, STORED };
	a[1] = (struct arg){ CHOICES, words(d->n * d->c), 1, STORED };
	a[2] = (struct arg){ CHOICES, SCALE_WORDS, 1, STORED };
	a[3] = (struct arg){ IN, d->n * d->c, 3, STORED };
}

static void cast_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	(void)o;
	(void)k;
	begin(p[2], d->with ? 0x1p13f : 64);
}

static void cast_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->fp8_cast(k, d->fused ? NULL : p[0], d->fused ? NULL : p[1], p[2], p[3], format_of(d),
		    d->n, d->c);
}

#define CAST_DIMS \
	{ \
		{ .n = 1, .c = 1 }, { .n = 3, .c = 33, .with = true }, { .n = 64, .c = 128 }, \
			{ .n = 130, .c = 344, .with = true }, \
			{ .n = 8, .c = 1000, .fused = true }, \
		{ \
			.n = 2, .c = 30011 \
		} \
	}

/* --- y turned scale x: with the scale of the largest magnitude, which p sets: not finite, 0 --- */

static void current_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct fp8_scale *s = p[2];
	begin(s, 2);
	s->largest = 0;
	if (d->p < 1)
		o->fp8_cast(k, NULL, NULL, s, p[3], format_of(d), d->n, d->c);
	else if (d->p > 1)
		s->largest = INFINITY;
}

static void current_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->fp8_cast_current(k, p[0], d->fused ? NULL : p[1], p[2], p[3], format_of(d), d->n, d->c);
}

#define CURRENT_DIMS \
	{ \
		{ .n = 1, .c = 1 }, { .n = 3, .c = 33, .with = true }, { .n = 64, .c = 128 }, \
			{ .n = 130, .c = 344, .with = true }, \
			{ .n = 8, .c = 1000, .fused = true }, { .n = 70, .c = 96, .p = 1 }, \
		{ \
			.n = 66, .c = 96, .p = 2 \
		} \
	}

/* --- d left right scales bias numbers --- */

static void product_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED };
	a[1] = (struct arg){ TOKENS, words(d->n * d->d), 1, STORED };
	a[2] = (struct arg){ TOKENS, words(d->c * d->d), 1, STORED };
	a[3] = (struct arg){ TOKENS, 2 * SCALE_WORDS, 1, STORED };
	a[4] = (struct arg){ IN, d->c, 1, STORED };
	a[5] = (struct arg){ IN, d->n * d->d, 1, SINGLE };
	a[6] = (struct arg){ IN, d->c * d->d, 1, SINGLE };
}

static void product_single_args(const struct dims *d, struct arg *a)
{
	product_args(d, a);
	a[0] = (struct arg){ SET, d->n * d->c, 1, SINGLE };
}

static void product_add_args(const struct dims *d, struct arg *a)
{
	product_args(d, a);
	a[0] = (struct arg){ ADD, d->n * d->c, 1, SINGLE };
}

/* The numbers are doubles, the storage type of reference64. */
static void product_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct fp8_scale *s = p[3];
	begin(&s[0], 32);
	begin(&s[1], 16);
	o->fp8_cast(k, p[1], NULL, &s[0], p[5], format_of(d), d->n, d->d);
	o->fp8_cast(k, p[2], NULL, &s[1], p[6], FP8_E4M3, d->c, d->d);
}

static void product(const struct ops *o, struct backend *k, const struct dims *d, void **p,
		    bool single, bool add)
{
	const struct fp8_scale *s = p[3];
	const struct fp8_tensor left = { p[1], &s[0], format_of(d), d->fused },
				right = { p[2], &s[1], FP8_E4M3, false };
	o->fp8_product(k, p[0], &left, &right, d->fused && !single ? p[4] : NULL, single, add, d->n,
		       d->c, d->d);
}

static void product_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	product(o, k, d, p, false, false);
}

static void product_single_run(const struct ops *o, struct backend *k, const struct dims *d,
			       void **p)
{
	product(o, k, d, p, true, false);
}

static void product_add_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	product(o, k, d, p, true, true);
}

#define PRODUCT_DIMS \
	{ \
		{ .n = 1, .c = 1, .d = 1 }, { .n = 5, .c = 33, .d = 17, .fused = true }, \
			{ .n = 64, .c = 128, .d = 96, .fused = true }, \
			{ .n = 48, .c = 64, .d = 256, .with = true }, \
		{ \
			.n = 70, .c = 31, .d = 130, .with = true \
		} \
	}

/* --- scales; n of them, over lo steps --- */

static void update_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ CHOICES, d->n * SCALE_WORDS, 1, STORED };
}

static void update_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	(void)o;
	(void)k;
	struct fp8_scale *s = p[0];
	for (int64_t i = 0; i < d->n; i++) {
		begin(&s[i], 8);
		s[i].largest = i % 5 == 4 ? 0 : 0.37f * (float)(i * i + 1);
		for (int j = 0; j < FP8_SCALE_HISTORY; j++)
			s[i].history[j] = i % 5 == 4 ? 0 : (float)((i * 7 + j * 31) % 23);
		s[i].updates = (int32_t)i;
	}
}

static void update_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->fp8_update_scales(k, p[0], d->n, format_of(d), d->lo, 1);
}

#define UPDATE_DIMS \
	{ \
		{ .n = 1, .lo = 1 }, { .n = 40, .lo = 16, .with = true }, \
		{ \
			.n = 300, .lo = 4 \
		} \
	}

/* clang-format off */
const struct op_test fp8_ops[] = {
	{ "fp8_cast", NULL, true, cast_args, cast_prepare, cast_run, CAST_DIMS },
	{ "fp8_cast_current", NULL, true, cast_args, current_prepare, current_run, CURRENT_DIMS },
	{ "fp8_product", NULL, true, product_args, product_prepare, product_run, PRODUCT_DIMS },
	{ "fp8_product single", NULL, true, product_single_args, product_prepare, product_single_run, PRODUCT_DIMS },
	{ "fp8_product add", NULL, true, product_add_args, product_prepare, product_add_run, PRODUCT_DIMS },
	{ "fp8_update_scales", NULL, true, update_args, update_prepare, update_run, UPDATE_DIMS },
	{ 0 }
};
/* clang-format on */
