/*
 * Tests edge cases that random numbers do not reach, on a backend on a device, against the reference in
 * the same storage type: the bits of random rounding and of dropout, infinities and NaN, empty arrays,
 * outputs that are inputs, and the longest rows.
 *
 * usage: edges BACKEND …
 */
#include "base/numbers.h"
#include "base/philox.h"
#include "kernels/ops.h"
#include "tests/gpu/score.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIDES = 2, ARRAYS = 12 }; /* the reference on the host, and the backend */
static const float one = 1;

/* The same call on both sides, each with its own arrays. */
struct pair {
	struct backend *k[SIDES];
	void *p[SIDES][ARRAYS];
	size_t bytes[ARRAYS];
	int arrays;
	struct score *score;
	const char *backend_name;
};

#define BOTH(pair, side, k, o) \
	for (int side = 0; side < SIDES; side++) \
		for (struct backend *k = (pair)->k[side]; k; k = NULL) \
			for (const struct ops *o = backend_ops(k); o; o = NULL)

/* Fills array i of both sides with these bytes, `shift` bytes off its alignment. */
static void array(struct pair *c, int i, const void *from, size_t bytes, size_t shift)
{
	BOTH(c, side, k, o)
	{
		(void)o;
		c->p[side][i] = (char *)backend_alloc(k, bytes + shift + 16) + shift;
		if (bytes)
			backend_put(k, c->p[side][i], from, bytes);
	}
	c->bytes[i] = bytes;
	c->arrays = i >= c->arrays ? i + 1 : c->arrays;
}

/* Fills an array with numbers in the storage type. */
static void stored(struct pair *c, int i, const float *from, int64_t count)
{
	size_t width = backend_width(c->k[0]);
	char *rounded = malloc((size_t)count * width);
	backend_ops(c->k[0])->fp32_to_storage(c->k[0], rounded, from, count, NULL, 0);
	array(c, i, rounded, (size_t)count * width, 0);
	free(rounded);
}

static void singles(struct pair *c, int i, const float *from, int64_t count)
{
	array(c, i, from, (size_t)count * sizeof *from, 0);
}

/* Copies array i of each side to memory of the host. */
static bool fetch(struct pair *c, int i, void *got[SIDES])
{
	bool ok = true;
	for (int side = 0; side < SIDES; side++) {
		struct err e = ERR_INIT;
		got[side] = calloc(1, c->bytes[i] + 8);
		if (backend_get(c->k[side], got[side], c->p[side][i], c->bytes[i], &e) < 0) {
			printf("%s: %s\n", c->backend_name, e.text);
			ok = false;
		}
	}
	return ok;
}

static bool same_bits(struct pair *c, int i)
{
	void *got[SIDES];
	bool ok = fetch(c, i, got) && !memcmp(got[0], got[1], c->bytes[i]);
	free(got[0]);
	free(got[1]);
	return ok;
}

static bool near(double a, double b, double tolerance)
{
	return (isnan(a) && isnan(b)) || a == b || fabs(a - b) <= tolerance * fmax(1, fabs(b));
}

/* Whether array i of both sides, fp32 or in the storage type, is equal up to the storage type's
 * rounding, with NaN in the same places. */
static bool agrees(struct pair *c, int i, bool in_storage)
{
	size_t width = in_storage ? backend_width(c->k[0]) : sizeof(float);
	int64_t count = (int64_t)(c->bytes[i] / width);
	void *got[SIDES];
	float *x[SIDES];
	bool ok = fetch(c, i, got);
	for (int side = 0; side < SIDES; side++) {
		x[side] = calloc((size_t)count + 1, sizeof **x);
		if (width == sizeof(float))
			memcpy(x[side], got[side], c->bytes[i]);
		else
			backend_ops(c->k[0])->storage_to_fp32(c->k[0], x[side], got[side], count);
	}
	for (int64_t j = 0; j < count; j++)
		ok = ok &&
		     near((double)x[1][j], (double)x[0][j], width == sizeof(float) ? 2e-6 : 0x1p-7);
	for (int side = 0; side < SIDES; side++) {
		free(x[side]);
		free(got[side]);
	}
	return ok;
}

/* Records a case and frees its arrays. The last bits of an array's address are its shift. */
static void end_case(struct pair *c, bool ok, const char *what)
{
	for (int side = 0; side < SIDES; side++)
		for (int i = 0; i < c->arrays; i++)
			backend_free(c->k[side],
				     (void *)((uintptr_t)c->p[side][i] & ~(uintptr_t)63));
	memset(c->p, 0, sizeof c->p);
	c->arrays = 0;
	score_check(c->score, ok, "%s: %s", c->backend_name, what);
}

/* --- bits --- */

enum { MANY = 20011 };

/* Numbers of all magnitudes of the storage type, and some beyond them. */
static void all_sizes(float *x)
{
	static const float edges[] = { 1e30f,    -3.4e38f,  65519, 65520,        0x1p-24f,
				       0x1p-25f, 0x1p-149f, -0.0f, 0x1.ffcp-15f, 1 };
	philox_normal(philox_key(2, PHILOX_TEST, 1), 0, MANY, x);
	for (int i = 0; i < MANY; i++)
		x[i] *= i % 7 == 0 ? 0x1p-18f : i % 11 == 0 ? 0x1p15f : i % 13 == 0 ? 0x1p-14f : 1;
	memcpy(x + 100, edges, sizeof edges);
}

/* For any alignment and any first element of the stream, and when the optimizer stores, also a part
 * of longer rows. */
static void random_rounding_has_the_bits_of_the_reference(struct pair *c)
{
	static float x[MANY], zeros[MANY];
	const struct philox_key key = philox_key(1, PHILOX_TEST, 78);
	const struct adamw_args still = { .beta1 = 0.9f, .beta2 = 0.9f, .eps = 1 };
	const struct step_numbers first_step = { .step = 1, .grad_scale = 1 };
	bool ok = true;
	all_sizes(x);
	for (uint64_t first = 1000000; first < 1000004; first++) {
		size_t width = backend_width(c->k[0]), shift = first % 2;
		array(c, 0, x, sizeof x, shift * sizeof *x);
		for (int i = 1; i < 4; i++)
			array(c, i, zeros, sizeof zeros, shift * sizeof *x);
		for (int i = 4; i < 6; i++)
			array(c, i, zeros, MANY * width, shift * width);
		array(c, 6, &first_step, sizeof first_step, 0);
		BOTH(c, side, k, o)
		{
			void **p = c->p[side];
			struct update u = { .p = p[0],
					    .g = p[1],
					    .m = p[2],
					    .v = p[3],
					    .count = MANY,
					    .stored = p[5],
					    .random = true,
					    .key = key,
					    .first = first,
					    .row = 514 + (int64_t)(first % 3),
					    .column = (int64_t)(first % 5),
					    .gap = (int64_t)(first % 2) * 1000 };
			o->fp32_to_storage(k, p[4], p[0], MANY, &key, first);
			o->adamw(k, &u, 1, &still, p[6]);
		}
		ok = ok && same_bits(c, 4) && same_bits(c, 5) && same_bits(c, 0);
		if (first < 1000003)
			for (int side = 0; side < SIDES; side++)
				for (int i = 0; i < c->arrays; i++)
					backend_free(c->k[side], (void *)((uintptr_t)c->p[side][i] &
									  ~(uintptr_t)63));
	}
	end_case(c, ok, "random rounding has the bits of the reference, wherever it begins");
}

static void dropout_drops_the_elements_that_the_reference_drops(struct pair *c)
{
	enum { ROWS = 20 };
	static const int64_t widths[] = { 1, 512, 515 };
	static float x[ROWS * 515];
	int64_t rows[ROWS];
	for (int i = 0; i < ROWS * 515; i++)
		x[i] = 1;
	for (int i = 0; i < ROWS; i++)
		rows[i] = (int64_t)(ROWS - i) * 1000003;
	for (int w = 0; w < 3; w++) {
		const struct dropout d = { philox_key(9, PHILOX_DROPOUT, 1), 0.3f };
		stored(c, 0, x, ROWS * widths[w]);
		array(c, 1, rows, sizeof rows, 0);
		BOTH(c, side, k, o)
		o->dropout(k, c->p[side][0], c->p[side][0], c->p[side][1], ROWS, widths[w], &d);
		end_case(c, agrees(c, 0, true),
			 "dropout in place drops the elements that the reference drops");
	}
}

/* --- what is not finite, and far out --- */

static void activations_far_out_are_those_of_the_reference(struct pair *c)
{
	static const float x[] = { -1e4f, -50, -12, 0, 12, 50, 1e4f, NAN, INFINITY },
			   ones[] = { 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	enum { N = 8 }; /* for infinity the specification itself gives NaN */
	stored(c, 0, x, N);
	stored(c, 1, ones, N);
	stored(c, 2, ones, N);
	stored(c, 3, ones, N / 2);
	BOTH(c, side, k, o)
	{
		void **p = c->p[side];
		o->gelu_fwd(k, p[1], p[0], N);
		o->gelu_bwd(k, p[2], p[2], p[0], N);
		o->swiglu_fwd(k, p[3], p[0], 1, N / 2);
	}
	end_case(c, agrees(c, 1, true) && agrees(c, 2, true) && agrees(c, 3, true),
		 "activations of large numbers and of NaN");
}

static void a_nan_goes_through(struct pair *c)
{
	static const float x[] = { NAN, 1, 2, 3 }, w[] = { 1, 1, 1, 1 };
	static const int32_t target = 0;
	float stats[4] = { 0 };
	double squares = 0;
	stored(c, 0, x, 4);
	stored(c, 1, w, 4);
	stored(c, 2, w, 4);
	singles(c, 3, stats, 4);
	array(c, 4, &squares, sizeof squares, 0);
	singles(c, 5, x, 4);
	array(c, 6, &target, sizeof target, 0);
	singles(c, 7, &one, 1);
	bool ok = true;
	BOTH(c, side, k, o)
	{
		void **p = c->p[side];
		o->layernorm_fwd(k, p[2], NULL, p[3], (float *)p[3] + 1, p[0], NULL, p[1], p[1], 1,
				 4, 1e-5f);
		o->sqnorm(k, p[4], p[5], 4);
		o->xent(k, p[0], (float *)p[3] + 2, (float *)p[3] + 3, p[6], p[7], 1, 4, 4);
	}
	void *got[SIDES];
	ok = fetch(c, 4, got) && isnan(*(double *)got[0]) && isnan(*(double *)got[1]);
	free(got[0]);
	free(got[1]);
	end_case(c, ok && agrees(c, 2, true) && agrees(c, 3, false) && agrees(c, 0, true),
		 "NaN propagates through norms, sums and losses");
}

/* Equal logits are ordered by index, huge ones stay finite, and NaN still chooses existing experts,
 * each once. */
static void the_router_always_chooses_existing_experts(struct pair *c)
{
	enum { N = 4, E = 4, TOP = 2 };
	static const float logits[N * E] = { 1,   1,   1,   1,   -1e4f, 1e4f, 1e4f, 0,
					     NAN, NAN, NAN, NAN, 0,     NAN,  5,    1 };
	static const int32_t none[N * TOP];
	static const float zeros[N * E];
	for (int before = 0; before < 2; before++) {
		array(c, 0, none, sizeof none, 0);
		singles(c, 1, zeros, N * TOP);
		singles(c, 2, zeros, N * E);
		singles(c, 3, zeros, N);
		singles(c, 4, logits, N * E);
		BOTH(c, side, k, o)
		{
			void **p = c->p[side];
			o->route_fwd(k, p[0], p[1], p[2], p[3], p[4], N, E, TOP, before);
		}
		void *got[SIDES];
		bool ok = fetch(c, 0, got) && agrees(c, 2, false) && agrees(c, 3, false);
		const int32_t *want = got[0], *chosen = got[1];
		ok = ok && !memcmp(want, chosen, 2 * TOP * sizeof *want);
		for (int i = 2 * TOP; i < N * TOP; i += TOP)
			ok = ok && chosen[i] != chosen[i + 1] && chosen[i] >= 0 && chosen[i] < E &&
			     chosen[i + 1] >= 0 && chosen[i + 1] < E;
		free(got[0]);
		free(got[1]);
		end_case(c, ok, "the router chooses existing experts for all logits");
	}
}

static void cast_to(const struct ops *o, struct backend *k, const void *x, int64_t n, int64_t c,
		    struct fp8_copies to)
{
	o->fp8_cast(k, x, n, c, &to);
}

enum { LARGEST_ROWS = 3, LARGEST_F = 40, LARGEST_N = 2 * LARGEST_ROWS * LARGEST_F };

/* Four ops that also cast, each followed by a cast of its result, with the first and the second scale
 * of p[5], p[6], p[7] and p[8]. copies: the op writes 8-bit copies too, to p[11]. */
static void find_largest(struct backend *k, const struct ops *o, void **p, bool copies)
{
	enum { ROWS = LARGEST_ROWS, F = LARGEST_F };
	struct fp8_scale *t = p[5], *u = p[6], *v = p[7], *w = p[8];
	struct fp8_copies to = { .at = copies ? p[11] : NULL, .format = FP8_E4M3 };
	to.scale = t;
	o->rmsnorm_fwd_cast(k, p[2], NULL, p[3], p[0], NULL, p[1], ROWS, F, 1e-5f, &to);
	cast_to(o, k, p[2], ROWS, F, (struct fp8_copies){ .scale = &t[1] });
	to.scale = u;
	o->gelu_bwd_cast(k, p[2], p[0], p[1], ROWS, 2 * F, &to);
	cast_to(o, k, p[2], ROWS, 2 * F, (struct fp8_copies){ .scale = &u[1] });
	to.scale = w;
	o->rmsnorm_bwd_cast(k, p[2], p[9], p[1], p[0], p[1], p[10], p[1], ROWS, F, false, &to);
	cast_to(o, k, p[2], ROWS, F, (struct fp8_copies){ .scale = &w[1] });
	to.scale = v;
	o->swiglu_bwd_cast(k, p[2], p[1], p[0], ROWS, F, &to);
	cast_to(o, k, p[2], ROWS, 2 * F, (struct fp8_copies){ .scale = &v[1] });
}

/* What an op finds is exactly what a cast finds in the op's result: no element is left out. Each
 * element is the largest one once. */
static void ops_find_the_largest_number(struct pair *c)
{
	enum { N = LARGEST_N };
	struct fp8_scale s[2] = { { .scale = 1, .inverse = 1 }, { .scale = 1, .inverse = 1 } };
	float x[N], ones[N], stats[LARGEST_ROWS] = { 0 };
	bool ok = true;
	for (int i = 0; i < N; i++)
		ones[i] = 1;
	for (int at = 0; at < 2 * N && ok; at += 7) {
		for (int i = 0; i < N; i++)
			x[i] = i == at % N ? -9 : 0.01f * (float)(i % 5);
		stored(c, 0, x, N);
		stored(c, 1, ones, N);
		stored(c, 2, ones, N);
		singles(c, 3, stats, LARGEST_ROWS);
		singles(c, 4, stats, LARGEST_ROWS);
		array(c, 5, s, sizeof s, 0);
		array(c, 6, s, sizeof s, 0);
		array(c, 7, s, sizeof s, 0);
		array(c, 8, s, sizeof s, 0);
		singles(c, 9, ones, LARGEST_F);
		singles(c, 10, ones, LARGEST_ROWS);
		array(c, 11, x, N, 0);
		BOTH(c, side, k, o)
		find_largest(k, o, c->p[side], at >= N);
		for (int i = 5; i <= 8; i++) {
			void *got[SIDES];
			ok = fetch(c, i, got) && ok;
			const struct fp8_scale *t = got[1];
			ok = ok && t[0].largest > 0 && t[0].largest == t[1].largest;
			free(got[0]);
			free(got[1]);
		}
		end_case(c, ok, "the largest number is found wherever it is");
	}
}

/* --- the copies that ops make of what they compute --- */

struct cast_shape {
	int64_t n, c;
};

typedef void cast_call(const struct ops *o, struct backend *k, void **p, struct cast_shape s,
		       const struct fp8_copies *to);

static void layernorm(const struct ops *o, struct backend *k, void **p, struct cast_shape s,
		      const struct fp8_copies *to)
{
	float *stats = p[3];
	o->layernorm_fwd_cast(k, p[2], p[7], stats, stats + s.n, p[0], p[1], p[1], p[1], s.n, s.c,
			      1e-5f, to);
}

static void rmsnorm(const struct ops *o, struct backend *k, void **p, struct cast_shape s,
		    const struct fp8_copies *to)
{
	o->rmsnorm_fwd_cast(k, p[2], NULL, p[3], p[0], NULL, p[1], s.n, s.c, 1e-5f, to);
}

static void gelu(const struct ops *o, struct backend *k, void **p, struct cast_shape s,
		 const struct fp8_copies *to)
{
	o->gelu_fwd_cast(k, p[2], p[0], s.n, s.c, to);
}

static void gelu_back(const struct ops *o, struct backend *k, void **p, struct cast_shape s,
		      const struct fp8_copies *to)
{
	o->gelu_bwd_cast(k, p[2], p[1], p[0], s.n, s.c, to);
}

static void swiglu(const struct ops *o, struct backend *k, void **p, struct cast_shape s,
		   const struct fp8_copies *to)
{
	o->swiglu_fwd_cast(k, p[2], p[0], s.n, s.c, to);
}

static void swiglu_back(const struct ops *o, struct backend *k, void **p, struct cast_shape s,
			const struct fp8_copies *to)
{
	o->swiglu_bwd_cast(k, p[2], p[1], p[0], s.n, s.c, to);
}

static void layernorm_back(const struct ops *o, struct backend *k, void **p, struct cast_shape s,
			   const struct fp8_copies *to)
{
	float *stats = p[3], *dw = p[4];
	o->layernorm_bwd_cast(k, p[2], dw, dw + s.c, p[1], p[0], p[7], stats, stats + s.n, p[0],
			      s.n, s.c, false, to);
}

static void rmsnorm_back(const struct ops *o, struct backend *k, void **p, struct cast_shape s,
			 const struct fp8_copies *to)
{
	o->rmsnorm_bwd_cast(k, p[2], p[4], p[1], NULL, p[0], p[3], p[0], s.n, s.c, false, to);
}

/* parts: columns of the result for each of c. */
static const struct {
	const char *name;
	cast_call *call;
	int parts;
} cast_ops[] = { { "layernorm_fwd_cast", layernorm, 1 },
		 { "rmsnorm_fwd_cast", rmsnorm, 1 },
		 { "layernorm_bwd_cast", layernorm_back, 1 },
		 { "rmsnorm_bwd_cast", rmsnorm_back, 1 },
		 { "gelu_fwd_cast", gelu, 1 },
		 { "gelu_bwd_cast", gelu_back, 1 },
		 { "swiglu_fwd_cast", swiglu, 1 },
		 { "swiglu_bwd_cast", swiglu_back, 2 } };

enum { CAST_OPS = sizeof cast_ops / sizeof cast_ops[0] };

/* Bytes of the larger one of two copies: rows of the transposed one are padded. */
static int64_t copy_room(struct cast_shape s)
{
	return 2 * s.c * round_up_int64(s.n, FP8_ROW);
}

/* Inputs in p[0] and p[1], a result in p[2], three scales in p[5], three pairs of copies in p[6]. */
static void begin_cast(struct pair *c, struct cast_shape s, float x[], float d[])
{
	const struct fp8_scale scales[3] = { { .scale = 0x1p6f, .inverse = 0x1p-6f },
					     { .scale = 0x1p6f, .inverse = 0x1p-6f },
					     { .scale = 0x1p6f, .inverse = 0x1p-6f } };
	const int64_t all = 2 * s.n * s.c, room = copy_room(s);
	char *none = calloc(6, (size_t)room);
	stored(c, 0, x, all);
	stored(c, 1, d, all);
	stored(c, 2, x, all);
	singles(c, 3, x, 2 * s.n);
	singles(c, 4, x, 2 * s.c);
	array(c, 5, scales, sizeof scales, 0);
	array(c, 6, none, 6 * (size_t)room, 0);
	stored(c, 7, x, all);
	free(none);
}

/* With the first pair the op stores its result, which a cast turns into the second one. With the
 * third pair it need not store it. The scales must be equal too. */
static bool casts_as_a_cast_does(struct pair *c, int op, struct cast_shape s, enum fp8 format)
{
	const int64_t room = copy_room(s), width = cast_ops[op].parts * s.c;
	BOTH(c, side, k, o)
	{
		void **p = c->p[side];
		struct fp8_scale *scale = p[5];
		uint8_t *at = p[6];
		struct fp8_copies to = {
			.at = at, .transposed = at + room, .scale = &scale[0], .format = format
		};
		cast_ops[op].call(o, k, p, s, &to);
		to.at = at + 2 * room;
		to.transposed = at + 3 * room;
		to.scale = &scale[1];
		o->fp8_cast(k, p[2], s.n, width, &to);
		to.at = at + 4 * room;
		to.transposed = at + 5 * room;
		to.scale = &scale[2];
		to.only = true;
		cast_ops[op].call(o, k, p, s, &to);
	}
	void *scales[SIDES], *copies[SIDES];
	bool ok = fetch(c, 5, scales);
	ok = fetch(c, 6, copies) && ok;
	for (int i = 0; i < SIDES; i++) {
		const struct fp8_scale *t = scales[i];
		const uint8_t *at = copies[i];
		for (int other = 1; other < 3; other++)
			ok = ok && !memcmp(&t[0], &t[other], sizeof *t) &&
			     !memcmp(at, at + 2 * other * room, 2 * (size_t)room);
		free(scales[i]);
		free(copies[i]);
	}
	return ok;
}

/* Whole chunks and others, whole tiles and others, few rows, and rows that no block's registers
 * hold. Among the numbers are those that are too large. */
static void ops_cast_as_a_cast_does(struct pair *c)
{
	static const struct cast_shape shapes[] = { { 1, 1 },     { 3, 35 },   { 64, 64 },
						    { 66, 72 },   { 128, 40 }, { 8, 200 },
						    { 18, 4112 }, { 2, 32776 } };
	for (int op = 0; op < CAST_OPS; op++)
		for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
			const struct cast_shape s = shapes[i];
			const int64_t all = 2 * s.n * s.c;
			float *x = malloc(2 * (size_t)all * sizeof *x), *d = x + all;
			for (int64_t j = 0; j < all; j++) {
				x[j] = 0.37f * (float)(j * 7919 % 101 - 50);
				d[j] = 0.11f * (float)(j * 104729 % 37 - 18);
			}
			begin_cast(c, s, x, d);
			bool ok = casts_as_a_cast_does(c, op, s, i % 2 ? FP8_E5M2 : FP8_E4M3);
			char what[100];
			snprintf(what, sizeof what, "%s casts %lld rows of %lld as fp8_cast does",
				 cast_ops[op].name, (long long)s.n, (long long)s.c);
			end_case(c, ok, what);
			free(x);
		}
}

/* The copies of a tensor that is not stored are those of the one that is, and NaN, infinities and
 * numbers that are too large have the bits that fp8_cast gives them. */
static void copies_hold_all_numbers(struct pair *c)
{
	enum { ROWS = 9, F = 16, N = 2 * ROWS * F, ROOM = 2 * F * FP8_ROW };
	const struct fp8_scale begin = { .scale = 0x1p6f, .inverse = 0x1p-6f };
	const uint8_t none[2 * ROOM] = { 0 };
	float x[N], d[N];
	for (int i = 0; i < N; i++) {
		x[i] = 0.01f * (float)(i % 23) - 0.1f;
		d[i] = 1;
	}
	x[3] = NAN;
	x[20] = INFINITY;
	x[70] = 100;
	d[41] = -INFINITY;
	stored(c, 0, x, N);
	stored(c, 1, d, N);
	stored(c, 2, d, N);
	array(c, 3, &begin, sizeof begin, 0);
	array(c, 4, none, sizeof none, 0);
	array(c, 5, none, sizeof none, 0);
	BOTH(c, side, k, o)
	{
		void **p = c->p[side];
		uint8_t *all = p[4], *alone = p[5];
		struct fp8_copies to = {
			.at = all, .transposed = all + ROOM, .scale = p[3], .format = FP8_E5M2
		};
		o->swiglu_bwd_cast(k, p[2], p[1], p[0], ROWS, F, &to);
		to.at = alone;
		to.transposed = alone + ROOM;
		to.only = true;
		o->swiglu_bwd_cast(k, p[2], p[1], p[0], ROWS, F, &to);
		to = (struct fp8_copies){ .scale = p[3], .format = FP8_E5M2 };
		o->swiglu_bwd_cast(k, p[2], p[1], p[0], ROWS, F, &to);
	}
	void *all[SIDES], *alone[SIDES], *scale[SIDES];
	bool ok = fetch(c, 4, all);
	ok = fetch(c, 5, alone) && ok;
	ok = fetch(c, 3, scale) && ok;
	ok = ok && !memcmp(all[1], alone[1], sizeof none) && memcmp(all[1], none, sizeof none) &&
	     isnan(((const struct fp8_scale *)scale[1])->largest);
	for (int i = 0; i < ROWS && ok; i++)
		for (int j = 0; j < 2 * F; j++)
			ok = ok && ((const uint8_t *)all[1])[i * 2 * F + j] ==
					   ((const uint8_t *)all[1])[ROOM + j * FP8_ROW + i];
	for (int i = 0; i < SIDES; i++) {
		free(all[i]);
		free(alone[i]);
		free(scale[i]);
	}
	end_case(c, ok, "copies hold NaN, infinities and numbers that are too large");
}

/* In 8 bits: a number that is too large becomes the largest one, but neither of the two scalings
 * hides an infinity. Rows of the transposed copy are padded with zeros. */
static void infinities_become_nan_in_8_bits(struct pair *c)
{
	enum { ROWS = 3, COLUMNS = 8, N = ROWS * COLUMNS, FINITE = 1, INFINITE = 10, MINUS = 19 };
	const struct fp8_scale s[2] = { { .scale = 64, .inverse = 1 / 64.0f },
					{ .largest = INFINITY } };
	const uint8_t none[COLUMNS * FP8_ROW] = { 0 };
	for (int format = FP8_E4M3; format <= FP8_E5M2; format++) {
		float x[N] = { [FINITE] = 1000, [INFINITE] = INFINITY, [MINUS] = -INFINITY };
		const int most = format == FP8_E4M3 ? 0x7e : 0x7b;
		stored(c, 0, x, N);
		array(c, 1, s, sizeof s, 0);
		for (int i = 2; i < 6; i++)
			array(c, i, none, sizeof none, 0);
		BOTH(c, side, k, o)
		{
			void **p = c->p[side];
			struct fp8_scale *t = p[1];
			struct fp8_copies to = { .at = p[2],
						 .transposed = p[3],
						 .scale = &t[0],
						 .format = (enum fp8)format };
			o->fp8_cast(k, p[0], ROWS, COLUMNS, &to);
			to.at = p[4];
			to.transposed = p[5];
			to.scale = &t[1];
			o->fp8_cast_current(k, p[0], ROWS, COLUMNS, &to);
		}
		bool ok = true;
		for (int i = 2; i < 6; i++) {
			void *got[SIDES];
			ok = fetch(c, i, got) && ok;
			const uint8_t *y = got[1];
			for (int j = 0; j < N; j++) {
				int at = i % 2 ? j % COLUMNS * FP8_ROW + j / COLUMNS : j;
				int want = j == INFINITE || j == MINUS ? 0x7f
					   : j == FINITE && i < 4      ? most
								       : 0;
				ok = ok && (y[at] & 0x7f) == want;
			}
			ok = ok && !memcmp(got[0], got[1], sizeof none);
			free(got[0]);
			free(got[1]);
		}
		end_case(c, ok, "infinities become NaN in 8 bits");
	}
}

/* A cast of many rows leaves the sums of its columns in the scratch in several turns. The sums are
 * those of whole numbers, which are exact in any order. Sums of no rows are 0. */
static void casts_sum_columns_of_many_rows(struct pair *c)
{
	enum { C = 9 };
	static const int64_t rows[] = { 0, 65, 66000 };
	for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
		const struct fp8_scale scale = { .scale = 1, .inverse = 1 };
		const int64_t n = rows[r], all = n ? n * C : 1;
		float *x = malloc((size_t)all * sizeof *x), sums[2 * C];
		for (int64_t i = 0; i < all; i++)
			x[i] = (float)(i * 7919 % 5 - 2);
		for (int i = 0; i < 2 * C; i++)
			sums[i] = i < C ? NAN : 3;
		stored(c, 0, x, all);
		singles(c, 1, sums, 2 * C);
		array(c, 2, &scale, sizeof scale, 0);
		BOTH(c, side, k, o)
		{
			void **p = c->p[side];
			struct fp8_copies to = { .scale = p[2], .sums = p[1] };
			o->fp8_cast(k, p[0], n, C, &to);
			to.sums = (float *)p[1] + C;
			to.add = true;
			o->fp8_cast(k, p[0], n, C, &to);
		}
		void *got[SIDES];
		bool ok = fetch(c, 1, got) && !memcmp(got[0], got[1], sizeof sums);
		for (int j = 0; j < C && ok; j++)
			ok = ((const float *)got[1])[j] + 3 == ((const float *)got[1])[C + j];
		free(got[0]);
		free(got[1]);
		free(x);
		end_case(c, ok, "a cast sums the columns of any number of rows");
	}
}

/* --- nothing, the same twice, and the widest --- */

static void nothing_is_no_work(struct pair *c)
{
	struct backend *k = c->k[1];
	const struct ops *o = backend_ops(k);
	const struct rope_shape rope = { .n = 0, .row = 4, .heads = 1, .dim = 2, .seq = 1 };
	const struct dropout d = { { { 1, 2 } }, 0.5f };
	const struct sgd_args sgd = { .momentum = 0 };
	const struct adamw_args adamw = { .eps = 1 };
	const struct update none = { .count = 0 };
	struct err e = ERR_INIT;
	o->rope_fwd(k, NULL, &rope, NULL, NULL);
	o->embed_fwd(k, NULL, NULL, NULL, NULL, NULL, 0, 8, 0, 1);
	o->embed_bwd(k, NULL, NULL, NULL, NULL, NULL, 0, 8, 0, 1);
	o->layernorm_fwd(k, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 8, 0);
	o->layernorm_bwd(k, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 8, true);
	o->rmsnorm_bwd(k, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 7, true);
	o->gelu_fwd(k, NULL, NULL, 0);
	o->swiglu_bwd(k, NULL, NULL, NULL, 0, 8);
	o->dropout(k, NULL, NULL, NULL, 0, 8, &d);
	o->route_fwd(k, NULL, NULL, NULL, NULL, NULL, 0, 4, 2, true);
	o->route_bwd(k, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, NULL, 0, 4, 2, true);
	o->route_load(k, NULL, NULL, 0, 1);
	o->route_count(k, NULL, NULL, 0, 4, 2, 16);
	o->route_drop(k, NULL, NULL, NULL, 0, 4, 2, 16, 1);
	o->route_loss(k, NULL, NULL, NULL, NULL, 0, 4, 16, 1, 1);
	o->gather_rows(k, NULL, NULL, NULL, 0, 8);
	o->copy_rows(k, NULL, 8, NULL, 8, 0, 8);
	o->combine_fwd(k, NULL, NULL, NULL, NULL, 0, 2, 8);
	o->combine_bwd(k, NULL, NULL, NULL, NULL, NULL, NULL, 0, 2, 8);
	o->xent_max(k, NULL, NULL, 0, 8, 8);
	o->xent(k, NULL, NULL, NULL, NULL, NULL, 0, 8, 8);
	o->xent_loss(k, NULL, NULL, NULL, 0);
	o->add(k, NULL, NULL, 0);
	o->add_bias(k, NULL, NULL, 0, 8);
	o->sum_rows(k, NULL, NULL, 0, 8, true);
	o->accumulate(k, NULL, NULL, 0);
	o->storage_to_fp32(k, NULL, NULL, 0);
	o->fp32_to_storage(k, NULL, NULL, 0, NULL, 0);
	o->sqnorm(k, NULL, NULL, 0);
	o->sgd(k, &none, 1, &sgd, NULL);
	o->adamw(k, NULL, 0, &adamw, NULL);
	bool ok = backend_sync(k, &e) == 0;
	if (!ok)
		printf("%s: %s\n", c->backend_name, e.text);
	end_case(c, ok, "empty arrays are allowed");
}

static void sums_over_nothing_are_zero(struct pair *c)
{
	enum { C = 16, D = 24, COUNT = 2 * C * D };
	const int64_t rows[2] = { 0, 0 };
	float old[COUNT];
	for (int add = 0; add < 2; add++) {
		for (int i = 0; i < COUNT; i++)
			old[i] = add ? 7 : NAN;
		for (int i = 0; i < 7; i++)
			singles(c, i, old, COUNT);
		BOTH(c, side, k, o)
		{
			float **p = (float **)c->p[side];
			o->linear_bwd_weight(k, p[0], p[1], NULL, NULL, 0, C, D, add);
			o->linear_bwd_weight_strided(k, p[2], NULL, D, NULL, 0, C, D, add);
			o->grouped_bwd_weight(k, p[3], C * D, p[6], p[6], rows, 0, 2, C, D, add);
			o->layernorm_bwd(k, NULL, p[4], p[4] + C, NULL, NULL, NULL, p[6], p[6],
					 p[6], 0, C, add);
			o->rmsnorm_bwd(k, NULL, p[4] + 2 * C, NULL, NULL, NULL, p[6], p[6], 0, C,
				       add);
			o->sum_rows(k, p[5], NULL, 0, C, add);
		}
		bool ok = true;
		for (int i = 0; i < 6; i++)
			ok = agrees(c, i, false) && ok;
		end_case(c, ok,
			 add ? "sums over nothing add nothing" : "sums over nothing are zero");
	}
}

/* sum may be x, dres may be dx. */
static void outputs_may_be_inputs(struct pair *c)
{
	enum { N = 9, C = 256 };
	static float x[N * C], r[N * C], stats[2 * N], zeros[2 * C];
	philox_normal(philox_key(4, PHILOX_TEST, 1), 0, N * C, x);
	philox_normal(philox_key(4, PHILOX_TEST, 2), 0, N * C, r);
	stored(c, 0, x, N * C);
	stored(c, 1, r, N * C);
	stored(c, 2, r, N * C);
	singles(c, 3, stats, 2 * N);
	singles(c, 4, zeros, 2 * C);
	BOTH(c, side, k, o)
	{
		void **p = c->p[side];
		float *mean = p[3], *dw = p[4];
		o->layernorm_fwd(k, p[2], p[0], mean, mean + N, p[0], p[1], p[1], p[1], N, C,
				 1e-5f);
		o->layernorm_bwd(k, p[1], dw, dw + C, p[2], p[1], p[0], mean, mean + N, p[0], N, C,
				 true);
	}
	end_case(c, agrees(c, 0, true) && agrees(c, 3, false),
		 "outputs may be inputs where ops_table.h allows it");
}

static void rows_may_be_512_ki_wide(struct pair *c)
{
	enum { V = 512 << 10 };
	static float x[V], stats[3];
	static const int32_t target = V - 1;
	for (int i = 0; i < V; i++)
		x[i] = (float)(i % 1000) / 250;
	stored(c, 0, x, V);
	singles(c, 1, stats, 3);
	array(c, 2, &target, sizeof target, 0);
	singles(c, 3, &one, 1);
	BOTH(c, side, k, o)
	{
		float *s = c->p[side][1];
		o->xent_max(k, s + 2, c->p[side][0], 1, V, V);
		o->xent(k, c->p[side][0], s, s + 1, c->p[side][2], c->p[side][3], 1, V, V);
	}
	end_case(c, agrees(c, 0, true) && agrees(c, 1, false), "rows may have 512 Ki elements");
}

/* The reference in the same storage type, which follows the colon. */
static struct backend *reference_of(const char *backend_name, struct err *e)
{
	const char *storage = strchr(backend_name, ':');
	char name[32];
	struct backend *k = NULL;
	snprintf(name, sizeof name, "reference%s", storage ? storage : "");
	return backend_open(name, 1, &k, e) < 0 ? NULL : k;
}

int main(int argc, char **argv)
{
	static void (*const cases[])(struct pair * c) = {
		random_rounding_has_the_bits_of_the_reference,
		dropout_drops_the_elements_that_the_reference_drops,
		activations_far_out_are_those_of_the_reference,
		a_nan_goes_through,
		the_router_always_chooses_existing_experts,
		ops_find_the_largest_number,
		ops_cast_as_a_cast_does,
		copies_hold_all_numbers,
		infinities_become_nan_in_8_bits,
		casts_sum_columns_of_many_rows,
		nothing_is_no_work,
		sums_over_nothing_are_zero,
		outputs_may_be_inputs,
		rows_may_be_512_ki_wide,
	};
	struct score score = { 0, 0, 0 };
	for (int i = 1; i < argc; i++) {
		struct pair c = { .score = &score, .backend_name = argv[i] };
		struct err e = ERR_INIT;
		if (!(c.k[0] = reference_of(argv[i], &e)) ||
		    backend_open(argv[i], 1, &c.k[1], &e) < 0) {
			score_skip(&score, argv[i], e.text);
			backend_close(c.k[0]);
			continue;
		}
		for (size_t j = 0; j < sizeof cases / sizeof *cases; j++)
			cases[j](&c);
		backend_close(c.k[0]);
		backend_close(c.k[1]);
	}
	return score_close(&score);
}
