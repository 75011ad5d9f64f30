/* fp8 products. Bytes and scales are compared as words of 4 bytes. n rows, c columns, products of
 * depth d; with: e5m2. */
#include "base/numbers.h"
#include "tests/conform/op_test.h"

#include <math.h>
#include <stddef.h>
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

/* --- y turned scale x sums; fused: computes only the largest magnitude, and the sums --- */

static void cast_args(const struct dims *d, struct arg *a)
{
	a[0] = (struct arg){ CHOICES, words(d->n * d->c), 1, STORED };
	a[1] = (struct arg){ CHOICES, words(round_up_int64(d->n, FP8_ROW) * d->c), 1, STORED };
	a[2] = (struct arg){ CHOICES, SCALE_WORDS, 1, STORED };
	a[3] = (struct arg){ IN, d->n * d->c, 3, STORED };
	a[4] = (struct arg){ SET, d->c, 1, SINGLE };
}

static void cast_add_args(const struct dims *d, struct arg *a)
{
	cast_args(d, a);
	a[4].kind = ADD;
}

static void cast_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	(void)o;
	(void)k;
	begin(p[2], d->with ? 0x1p13f : 64);
}

static struct fp8_copies cast_to(const struct dims *d, void **p, bool add)
{
	return (struct fp8_copies){ .at = p[0],
				    .transposed = d->fused ? NULL : p[1],
				    .scale = p[2],
				    .format = format_of(d),
				    .sums = p[4],
				    .add = add };
}

static void cast_more(const struct ops *o, struct backend *k, const struct dims *d, void **p,
		      bool add)
{
	struct fp8_copies to = cast_to(d, p, add);
	if (d->fused)
		to.at = NULL;
	o->fp8_cast(k, p[3], d->n, d->c, &to);
}

static void cast_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	cast_more(o, k, d, p, false);
}

static void cast_add_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	cast_more(o, k, d, p, true);
}

/* The last one has more rows than the cuda backend sums in one launch (kernels/cuda/cast.cuh). */
#define CAST_DIMS \
	{ \
		{ .n = 1, .c = 1 }, { .n = 3, .c = 33, .with = true }, { .n = 64, .c = 128 }, \
			{ .n = 130, .c = 344, .with = true }, \
			{ .n = 8, .c = 1000, .fused = true }, { .n = 2, .c = 30011 }, \
		{ \
			.n = 131200, .c = 1 \
		} \
	}

/* --- y turned scale x: with the scale of the largest magnitude, which p sets: not finite, 0 --- */

static void current_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct fp8_scale *s = p[2];
	begin(s, 2);
	s->largest = 0;
	if (d->p < 1)
		o->fp8_cast(k, p[3], d->n, d->c, &(struct fp8_copies){ .scale = s });
	else if (d->p > 1)
		s->largest = INFINITY;
}

static void current_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	const struct fp8_copies to = cast_to(d, p, false);
	o->fp8_cast_current(k, p[3], d->n, d->c, &to);
}

static void current_add_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	const struct fp8_copies to = cast_to(d, p, true);
	o->fp8_cast_current(k, p[3], d->n, d->c, &to);
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
	a[0] = (struct arg){ SET, d->n * d->c, 1, STORED_OF_FP8 };
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
	a[0] = (struct arg){ SET, d->n * d->c, 1, SINGLE_OF_FP8 };
}

static void product_add_args(const struct dims *d, struct arg *a)
{
	product_args(d, a);
	a[0] = (struct arg){ ADD, d->n * d->c, 1, SINGLE_OF_FP8 };
}

static void cast_numbers(const struct ops *o, struct backend *k, void *at, void *transposed,
			 struct fp8_scale *s, enum fp8 format, const void *x, int64_t n, int64_t c)
{
	o->fp8_cast(k, x, n, c,
		    &(struct fp8_copies){
			    .at = at, .transposed = transposed, .scale = s, .format = format });
}

/* The numbers are doubles, the storage type of reference64. */
static void product_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct fp8_scale *s = p[3];
	begin(&s[0], 32);
	begin(&s[1], 16);
	cast_numbers(o, k, p[1], NULL, &s[0], format_of(d), p[5], d->n, d->d);
	cast_numbers(o, k, p[2], NULL, &s[1], FP8_E4M3, p[6], d->c, d->d);
}

static void product(const struct ops *o, struct backend *k, const struct dims *d, void **p,
		    bool single, bool add)
{
	const struct fp8_scale *s = p[3];
	const struct fp8_tensor left = { p[1], &s[0], format_of(d), d->fused, 0 },
				right = { p[2], &s[1], FP8_E4M3, false, 0 };
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

/* Products of transposed copies: over the padding, or with `fused` beside it. */

static void padded_args(const struct dims *d, struct arg *a)
{
	const int64_t row = round_up_int64(d->d, FP8_ROW);
	product_add_args(d, a);
	a[1].count = words(d->n * row);
	a[2].count = words(d->c * row);
}

static void padded_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct fp8_scale *s = p[3];
	begin(&s[0], 32);
	begin(&s[1], 16);
	cast_numbers(o, k, NULL, p[1], &s[0], format_of(d), p[5], d->d, d->n);
	cast_numbers(o, k, NULL, p[2], &s[1], FP8_E4M3, p[6], d->d, d->c);
}

static void padded_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	const struct fp8_scale *s = p[3];
	const int64_t row = round_up_int64(d->d, FP8_ROW);
	const struct fp8_tensor left = { p[1], &s[0], format_of(d), false, d->fused ? row : 0 },
				right = { p[2], &s[1], FP8_E4M3, false, d->fused ? row : 0 };
	o->fp8_product(k, p[0], &left, &right, NULL, true, true, d->n, d->c, d->fused ? d->d : row);
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

/* --- ops that also cast: y x copies scales w stats dy stats sums dw dbias. with: e5m2; fused: the op
 * need not set y, and has no transposed copy; lo: another call only finds the largest number. The
 * last call also computes the sums of a gradient's columns.
 *
 * Numbers are rounded to the storage type. So the copies are replaced by those of x, which shows only
 * that nothing is written beyond them. The largest number is compared as the scale that follows from
 * it. edges.c compares all bits. --- */

enum { COPIES = 2 }; /* halves of the argument `copies` */

static int64_t copy_bytes(const struct dims *d, int parts)
{
	return 4 * words(parts * d->c * round_up_int64(d->n, FP8_ROW));
}

static void also_args(const struct dims *d, struct arg *a, int parts)
{
	a[0] = (struct arg){ SET, parts * d->n * d->c, 1, STORED };
	a[1] = (struct arg){ IN, 2 * d->n * d->c, 3, STORED };
	a[2] = (struct arg){ CHOICES, COPIES * copy_bytes(d, parts) / 4, 1, STORED };
	a[3] = (struct arg){ CHOICES, 2 * SCALE_WORDS, 1, STORED };
	a[4] = (struct arg){ IN, d->c, 1, STORED };
	a[5] = (struct arg){ IN, d->n, 1, SINGLE_OF_STORED };
	a[6] = (struct arg){ IN, d->n * d->c, 1, STORED };
	a[7] = (struct arg){ IN, d->n, 1, SINGLE_OF_STORED };
}

static void activation_cast_args(const struct dims *d, struct arg *a)
{
	also_args(d, a, 1);
}

static void gelu_bwd_cast_args(const struct dims *d, struct arg *a)
{
	also_args(d, a, 1);
	a[8] = (struct arg){ SET, d->c, 1, SINGLE_OF_STORED };
}

static void gelu_bwd_cast_add_args(const struct dims *d, struct arg *a)
{
	gelu_bwd_cast_args(d, a);
	a[8].kind = ADD;
}

static void swiglu_bwd_cast_args(const struct dims *d, struct arg *a)
{
	also_args(d, a, 2);
	a[8] = (struct arg){ SET, 2 * d->c, 1, SINGLE_OF_STORED };
}

static void rmsnorm_cast_args(const struct dims *d, struct arg *a)
{
	also_args(d, a, 1);
	a[5].kind = SET;
}

static void layernorm_cast_args(const struct dims *d, struct arg *a)
{
	rmsnorm_cast_args(d, a);
	a[7].kind = SET;
}

static void rmsnorm_bwd_cast_args(const struct dims *d, struct arg *a)
{
	gelu_bwd_cast_args(d, a);
	a[5].scale = a[7].scale = 0.3;
	a[9] = a[8];
}

static void layernorm_bwd_cast_args(const struct dims *d, struct arg *a)
{
	rmsnorm_bwd_cast_args(d, a);
	a[10] = a[8];
}

static void layernorm_bwd_cast_add_args(const struct dims *d, struct arg *a)
{
	layernorm_bwd_cast_args(d, a);
	a[8].kind = ADD;
}

static void also_prepare(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	struct fp8_scale *s = p[3];
	(void)o;
	(void)k;
	for (int i = 0; i < 2; i++) {
		begin(&s[i], d->with ? 0x1p10f : 32);
		s[i].largest = 0;
	}
}

typedef void cast_call(const struct ops *o, struct backend *k, const struct dims *d, void **p,
		       const struct fp8_copies *to);

/* Leaves only the scales that follow, and their inverses. */
static void compare_scales(const struct ops *o, struct backend *k, void **p)
{
	const size_t from = offsetof(struct fp8_scale, largest);
	o->fp8_update_scales(k, p[3], 2, FP8_E4M3, true);
	for (size_t i = 0; i < 2; i++)
		backend_zero(k, (char *)p[3] + i * sizeof(struct fp8_scale) + from,
			     sizeof(struct fp8_scale) - from);
}

/* The first call sets y, for the comparison; a second one may not. */
static void also_run(const struct ops *o, struct backend *k, const struct dims *d, void **p,
		     int parts, bool add, cast_call *call)
{
	uint8_t *at = p[2];
	const int64_t half = copy_bytes(d, parts);
	const bool again = d->fused || d->lo;
	struct fp8_copies to = { .at = at,
				 .transposed = d->fused ? NULL : at + half,
				 .scale = p[3],
				 .format = format_of(d),
				 .sums = again ? NULL : p[8],
				 .add = add };
	backend_zero(k, at, (size_t)(COPIES * half));
	call(o, k, d, p, &to);
	if (d->fused) {
		backend_zero(k, at, (size_t)(COPIES * half));
		to.only = true;
		to.sums = p[8];
		call(o, k, d, p, &to);
	}
	cast_numbers(o, k, at, at + half, (struct fp8_scale *)p[3] + 1, format_of(d), p[1], d->n,
		     parts * d->c);
	to = (struct fp8_copies){ .scale = p[3], .format = format_of(d), .sums = p[8], .add = add };
	if (d->lo)
		call(o, k, d, p, &to);
	compare_scales(o, k, p);
}

#define CAST_CALL(name, parts, ...) \
	static void name##_call(const struct ops *o, struct backend *k, const struct dims *d, \
				void **p, const struct fp8_copies *to) \
	{ \
		o->name(k, __VA_ARGS__, to); \
	} \
	static void name##_run(const struct ops *o, struct backend *k, const struct dims *d, \
			       void **p) \
	{ \
		also_run(o, k, d, p, parts, false, name##_call); \
	}

CAST_CALL(layernorm_fwd_cast, 1, p[0], NULL, p[5], p[7], p[1], NULL, p[4], p[4], d->n, d->c, 1e-5f)
CAST_CALL(rmsnorm_fwd_cast, 1, p[0], NULL, p[5], p[1], NULL, p[4], d->n, d->c, 1e-5f)
CAST_CALL(layernorm_bwd_cast, 1, p[0], p[9], p[10], p[6], p[6], p[1], p[7], p[5], p[4], d->n, d->c,
	  false)
CAST_CALL(rmsnorm_bwd_cast, 1, p[0], p[9], p[6], NULL, p[1], p[5], p[4], d->n, d->c, false)
CAST_CALL(gelu_fwd_cast, 1, p[0], p[1], d->n, d->c)
CAST_CALL(gelu_bwd_cast, 1, p[0], p[6], p[1], d->n, d->c)
CAST_CALL(swiglu_fwd_cast, 1, p[0], p[1], d->n, d->c)
CAST_CALL(swiglu_bwd_cast, 2, p[0], p[6], p[1], d->n, d->c)

static void layernorm_bwd_cast_add_run(const struct ops *o, struct backend *k, const struct dims *d,
				       void **p)
{
	also_run(o, k, d, p, 1, true, layernorm_bwd_cast_call);
}

static void gelu_bwd_cast_add_run(const struct ops *o, struct backend *k, const struct dims *d,
				  void **p)
{
	also_run(o, k, d, p, 1, true, gelu_bwd_cast_call);
}

#define ALSO_DIMS \
	{ \
		{ .n = 1, .c = 1 }, { .n = 3, .c = 35, .with = true }, \
			{ .n = 130, .c = 344, .with = true }, { .n = 64, .c = 128, .lo = 1 }, \
			{ .n = 72, .c = 200, .fused = true }, \
			{ .n = 2, .c = 5001, .fused = true }, \
		{ \
			.n = 3, .c = 8200, .lo = 1 \
		} \
	}

/* --- scales; n of them; fused: a step has ended. Some have no finite number, others several --- */

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
		s[i].largest = i % 5 == 4 ? 0 : i % 7 == 3 ? INFINITY : 0.37f * (float)(i * i + 1);
		for (int j = 0; j < FP8_SCALE_HISTORY; j++)
			s[i].history[j] = i % 5 == 4         ? 0
					  : (i + j) % 6 == 1 ? (j % 2 ? NAN : INFINITY)
							     : (float)((i * 7 + j * 31) % 23);
		s[i].updates = (int32_t)i;
	}
}

static void update_run(const struct ops *o, struct backend *k, const struct dims *d, void **p)
{
	o->fp8_update_scales(k, p[0], d->n, format_of(d), d->fused);
}

#define UPDATE_DIMS \
	{ \
		{ .n = 1, .fused = true }, { .n = 40, .fused = true, .with = true }, \
		{ \
			.n = 300 \
		} \
	}

/* clang-format off */
const struct op_test fp8_ops[] = {
	{ "fp8_cast", NULL, true, cast_args, cast_prepare, cast_run, CAST_DIMS },
	{ "fp8_cast add", NULL, true, cast_add_args, cast_prepare, cast_add_run, CAST_DIMS },
	{ "fp8_cast_current", NULL, true, cast_args, current_prepare, current_run, CURRENT_DIMS },
	{ "fp8_cast_current add", NULL, true, cast_add_args, current_prepare, current_add_run, CURRENT_DIMS },
	{ "fp8_product", NULL, true, product_args, product_prepare, product_run, PRODUCT_DIMS },
	{ "fp8_product single", NULL, true, product_single_args, product_prepare, product_single_run, PRODUCT_DIMS },
	{ "fp8_product add", NULL, true, product_add_args, product_prepare, product_add_run, PRODUCT_DIMS },
	{ "fp8_product padded", NULL, true, padded_args, padded_prepare, padded_run, PRODUCT_DIMS },
	{ "layernorm_fwd_cast", NULL, true, layernorm_cast_args, also_prepare, layernorm_fwd_cast_run, ALSO_DIMS },
	{ "rmsnorm_fwd_cast", NULL, true, rmsnorm_cast_args, also_prepare, rmsnorm_fwd_cast_run, ALSO_DIMS },
	{ "layernorm_bwd_cast", NULL, true, layernorm_bwd_cast_args, also_prepare, layernorm_bwd_cast_run, ALSO_DIMS },
	{ "layernorm_bwd_cast add", NULL, true, layernorm_bwd_cast_add_args, also_prepare, layernorm_bwd_cast_add_run, ALSO_DIMS },
	{ "rmsnorm_bwd_cast", NULL, true, rmsnorm_bwd_cast_args, also_prepare, rmsnorm_bwd_cast_run, ALSO_DIMS },
	{ "gelu_fwd_cast", NULL, true, activation_cast_args, also_prepare, gelu_fwd_cast_run, ALSO_DIMS },
	{ "gelu_bwd_cast add", NULL, true, gelu_bwd_cast_add_args, also_prepare, gelu_bwd_cast_add_run, ALSO_DIMS },
	{ "gelu_bwd_cast", NULL, true, gelu_bwd_cast_args, also_prepare, gelu_bwd_cast_run, ALSO_DIMS },
	{ "swiglu_fwd_cast", NULL, true, activation_cast_args, also_prepare, swiglu_fwd_cast_run, ALSO_DIMS },
	{ "swiglu_bwd_cast", NULL, true, swiglu_bwd_cast_args, also_prepare, swiglu_bwd_cast_run, ALSO_DIMS },
	{ "fp8_update_scales", NULL, true, update_args, update_prepare, update_run, UPDATE_DIMS },
	{ 0 }
};
/* clang-format on */
