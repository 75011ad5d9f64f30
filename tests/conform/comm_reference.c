#include "tests/conform/comm_reference.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct reference {
	int n;
	char *given[REF_TYPES][2];            /* [rank][block][REF_PERIOD], values and factors */
	char *reduced[REF_TYPES][REF_REDOPS]; /* [block][REF_PERIOD] */
};

const char *reference_type_name(enum comm_type type)
{
	static const char *const names[] = { "f32", "f64", "bf16", "f16", "i32", "i64", "u8" };
	return names[type];
}

const char *reference_redop_name(enum comm_op op)
{
	static const char *const names[] = { "sum", "avg", "max", "min", "prod" };
	return names[op];
}

/* --- Elements as numbers --- */

union element {
	float f32;
	double f64;
	uint16_t half;
	int32_t i32;
	int64_t i64;
	uint8_t u8;
};

static float bf16_number(uint16_t h)
{
	uint32_t bits = (uint32_t)h << 16;
	float f;
	memcpy(&f, &bits, sizeof f);
	return f;
}

static float f16_number(uint16_t h)
{
	int exponent = h >> 10 & 31, mantissa = h & 1023;
	double m = exponent == 31 ? (mantissa ? NAN : INFINITY)
		   : exponent     ? ldexp(1024 + mantissa, exponent - 25)
				  : ldexp(mantissa, -24);
	return (float)(h & 0x8000 ? -m : m);
}

/* The nearest number with `bits` bits after the leading one; of two equally near, the even one. */
static double rounded(double x, int bits, int least_exponent)
{
	if (x == 0 || !isfinite(x))
		return x;
	int exponent = ilogb(x);
	double step = ldexp(1, (exponent < least_exponent ? least_exponent : exponent) - bits);
	return nearbyint(x / step) * step;
}

static uint16_t bf16_of(float x)
{
	float f = (float)rounded((double)x, 7, -126);
	uint32_t bits;
	memcpy(&bits, &f, sizeof bits);
	return (uint16_t)(bits >> 16);
}

static uint16_t f16_of(float x)
{
	uint16_t sign = signbit(x) ? 0x8000 : 0;
	double r = fabs(rounded((double)x, 10, -14));
	if (isnan(r))
		return sign | 0x7e00;
	if (r >= 65536)
		return sign | 0x7c00;
	if (r < 0x1p-14)
		return (uint16_t)(sign | (int)(r * 0x1p24));
	int exponent = ilogb(r);
	return (uint16_t)(sign | (exponent + 15) << 10 |
			  (int)((r / ldexp(1, exponent) - 1) * 1024));
}

double reference_number(enum comm_type type, const void *at)
{
	union element x = { 0 };
	memcpy(&x, at, comm_type_size(type));
	switch (type) {
	case COMM_F32:
		return (double)x.f32;
	case COMM_F64:
		return x.f64;
	case COMM_BF16:
		return (double)bf16_number(x.half);
	case COMM_F16:
		return (double)f16_number(x.half);
	case COMM_I32:
		return x.i32;
	case COMM_I64:
		return (double)x.i64;
	case COMM_U8:
		return x.u8;
	}
	return NAN;
}

/* --- The documented order --- */

/* The accumulator of partial results: fp32 for the 2-byte floats. Integers wrap. */
union partial {
	float f;
	double d;
	uint64_t i;
};

static bool is_float(enum comm_type type)
{
	return type == COMM_F32 || type == COMM_BF16 || type == COMM_F16;
}

static union partial load(enum comm_type type, const char *at)
{
	union element x = { 0 };
	memcpy(&x, at, comm_type_size(type));
	switch (type) {
	case COMM_F32:
		return (union partial){ .f = x.f32 };
	case COMM_F64:
		return (union partial){ .d = x.f64 };
	case COMM_BF16:
		return (union partial){ .f = bf16_number(x.half) };
	case COMM_F16:
		return (union partial){ .f = f16_number(x.half) };
	case COMM_I32:
		return (union partial){ .i = (uint64_t)(int64_t)x.i32 };
	case COMM_I64:
		return (union partial){ .i = (uint64_t)x.i64 };
	case COMM_U8:
		return (union partial){ .i = x.u8 };
	}
	return (union partial){ .i = 0 };
}

static void store(enum comm_type type, union partial p, char *at)
{
	union element x = { 0 };
	switch (type) {
	case COMM_F32:
		x.f32 = p.f;
		break;
	case COMM_F64:
		x.f64 = p.d;
		break;
	case COMM_BF16:
		x.half = bf16_of(p.f);
		break;
	case COMM_F16:
		x.half = f16_of(p.f);
		break;
	case COMM_I32:
		x.i32 = (int32_t)p.i;
		break;
	case COMM_I64:
		x.i64 = (int64_t)p.i;
		break;
	case COMM_U8:
		x.u8 = (uint8_t)p.i;
		break;
	}
	memcpy(at, &x, comm_type_size(type));
}

#define PAIR(op, a, b) \
	((op) == COMM_MAX    ? ((b) > (a) ? (b) : (a)) \
	 : (op) == COMM_MIN  ? ((b) < (a) ? (b) : (a)) \
	 : (op) == COMM_PROD ? (a) * (b) \
			     : (a) + (b))

static union partial pair(enum comm_type type, enum comm_op op, union partial a, union partial b)
{
	if (is_float(type))
		return (union partial){ .f = PAIR(op, a.f, b.f) };
	if (type == COMM_F64)
		return (union partial){ .d = PAIR(op, a.d, b.d) };
	if (op == COMM_MAX || op == COMM_MIN)
		return (union partial){ .i = (uint64_t)PAIR(op, (int64_t)a.i, (int64_t)b.i) };
	return (union partial){ .i = PAIR(op, a.i, b.i) };
}

static union partial tree(enum comm_type type, enum comm_op op, const void *const *src, int n,
			  size_t at)
{
	if (n == 1)
		return load(type, (const char *)src[0] + at);
	int left = 1;
	while (2 * left < n)
		left *= 2;
	return pair(type, op, tree(type, op, src, left, at),
		    tree(type, op, src + left, n - left, at));
}

static union partial mean(enum comm_type type, union partial sum, int n)
{
	if (is_float(type))
		return (union partial){ .f = sum.f / (float)n };
	if (type == COMM_F64)
		return (union partial){ .d = sum.d / n };
	return (union partial){ .i = (uint64_t)((int64_t)sum.i / n) };
}

void reference_reduce(enum comm_type type, enum comm_op op, const void *const *src, int n,
		      void *out, size_t count)
{
	size_t size = comm_type_size(type);
	for (size_t i = 0; i < count; i++) {
		union partial p = tree(type, op, src, n, i * size);
		store(type, op == COMM_AVG ? mean(type, p, n) : p, (char *)out + i * size);
	}
}

/* --- The same reduction in float64 --- */

/* Sums are rounded in fp32 or a wider type at each of at most seven additions, and once to the
 * type. */
static const double rounding[] = { 0, 0, 0x1p-8, 0x1p-11, 0, 0, 0 };
static const double adding[] = { 0x1p-21, 0x1p-50, 0x1p-21, 0x1p-21, 0, 0, 0 };
static const double smallest[] = { 0, 0, 0, 0x1p-24, 0, 0, 0 };

static bool near_float64(enum comm_type type, enum comm_op op, const void *const *src, int n,
			 const char *out, size_t at)
{
	double want = reference_number(type, (const char *)src[0] + at), scale = fabs(want);
	for (int r = 1; r < n; r++) {
		double x = reference_number(type, (const char *)src[r] + at);
		scale = op == COMM_PROD ? scale * fabs(x) : scale + fabs(x);
		want = PAIR(op, want, x);
	}
	if (op == COMM_MAX || op == COMM_MIN)
		return reference_number(type, out + at) == want;
	if (op == COMM_AVG) {
		want = is_float(type) || type == COMM_F64 ? want / n : trunc(want / n);
		scale /= n;
	}
	want = type == COMM_U8 ? fmod(want, 256) : want;
	double bound = rounding[type] * fabs(want) + adding[type] * scale + smallest[type];
	return fabs(reference_number(type, out + at) - want) <= bound;
}

/* --- Values --- */

static uint32_t mix(uint32_t rank, uint32_t block, uint32_t i)
{
	uint32_t x = (rank + 1) * 0x9e3779b1u ^ (block + 7) * 0x85ebca77u ^ (i + 3) * 0xc2b2ae3du;
	x = (x ^ x >> 15) * 0x2c1b3c6du;
	x = (x ^ x >> 12) * 0x297a2d39u;
	return x ^ x >> 15;
}

/* A number 1 + fraction, times a power of two with an exponent within `spread` of 0, of either
 * sign. It is never zero, because a maximum of two zeros has either sign. */
static double some_number(uint32_t x, int bits, int spread)
{
	double fraction = ldexp((double)(x >> 8) + 1, -24);
	int exponent = (int)(x % (uint32_t)(2 * spread + 1)) - spread;
	return ldexp(rounded(1 + fraction, bits, 0), exponent) * (x >> 7 & 1 ? -1 : 1);
}

/* The magnitudes are widely spread, so that a sum in another order has other bits. */
static void set_element(enum comm_type type, bool factor, uint32_t x, char *at)
{
	union element v = { 0 };
	int spread = factor ? 2 : 10;
	switch (type) {
	case COMM_F32:
		v.f32 = (float)some_number(x, 23, spread);
		break;
	case COMM_F64:
		v.f64 = some_number(x, 52, spread) * (1 + ldexp(x % 8191, -50));
		break;
	case COMM_BF16:
		v.half = bf16_of((float)some_number(x, 7, spread));
		break;
	case COMM_F16:
		v.half = f16_of((float)some_number(x, 10, factor ? 1 : 16) *
				(factor ? 1.0f : 0x1p-6f));
		break;
	case COMM_I32:
		v.i32 = (int32_t)(x % (factor ? 13 : 1u << 27)) - (factor ? 6 : 1 << 26);
		break;
	case COMM_I64:
		v.i64 = (int64_t)(factor ? x % 15 : (uint64_t)x << 12) -
			(factor ? 7 : INT64_C(1) << 43);
		break;
	case COMM_U8:
		v.u8 = (uint8_t)(factor ? x % 2 + (x >> 8) % 2 : x % 32);
		break;
	}
	memcpy(at, &v, comm_type_size(type));
}

/* --- The tables --- */

static size_t period_bytes(enum comm_type type)
{
	return REF_PERIOD * comm_type_size(type);
}

const char *reference_given(const struct reference *ref, enum comm_type type, bool factors,
			    int rank, int block)
{
	return ref->given[type][factors] + (size_t)(rank * REF_RANKS + block) * period_bytes(type);
}

const char *reference_reduced(const struct reference *ref, enum comm_type type, enum comm_op op,
			      int block)
{
	return ref->reduced[type][op] + (size_t)block * period_bytes(type);
}

static int make_given(struct reference *ref, enum comm_type type, bool factors)
{
	size_t size = comm_type_size(type), blocks = (size_t)ref->n * REF_RANKS;
	char *at = malloc(blocks * period_bytes(type));
	ref->given[type][factors] = at;
	if (!at)
		return -1;
	for (uint32_t b = 0; b < blocks; b++)
		for (uint32_t i = 0; i < REF_PERIOD; i++, at += size)
			set_element(type, factors, mix(b / REF_RANKS, b % REF_RANKS, i), at);
	return 0;
}

static int make_reduced(struct reference *ref, enum comm_type type, enum comm_op op)
{
	const void *src[REF_RANKS];
	char *at = malloc(REF_RANKS * period_bytes(type));
	ref->reduced[type][op] = at;
	if (!at)
		return -1;
	for (int b = 0; b < REF_RANKS; b++, at += period_bytes(type)) {
		for (int r = 0; r < ref->n; r++)
			src[r] = reference_given(ref, type, op == COMM_PROD, r, b);
		reference_reduce(type, op, src, ref->n, at, REF_PERIOD);
		for (size_t i = 0; i < REF_PERIOD; i++)
			if (!near_float64(type, op, src, ref->n, at, i * comm_type_size(type))) {
				fprintf(stderr,
					"the reference's %s of %s over %d ranks is wrong at "
					"element %zu\n",
					reference_redop_name(op), reference_type_name(type), ref->n,
					i);
				return -1;
			}
	}
	return 0;
}

struct reference *reference_open(int ranks)
{
	struct reference *ref = calloc(1, sizeof *ref);
	if (!ref)
		return NULL;
	ref->n = ranks;
	int rc = 0;
	for (int i = 0; rc == 0 && i < 2 * REF_TYPES; i++)
		rc = make_given(ref, (enum comm_type)(i / 2), i % 2);
	for (int i = 0; rc == 0 && i < REF_TYPES * REF_REDOPS; i++)
		rc = make_reduced(ref, (enum comm_type)(i / REF_REDOPS),
				  (enum comm_op)(i % REF_REDOPS));
	if (rc == 0)
		return ref;
	reference_close(ref);
	return NULL;
}

void reference_close(struct reference *ref)
{
	for (int i = 0; ref && i < 2 * REF_TYPES; i++)
		free(ref->given[i / 2][i % 2]);
	for (int i = 0; ref && i < REF_TYPES * REF_REDOPS; i++)
		free(ref->reduced[i / REF_REDOPS][i % REF_REDOPS]);
	free(ref);
}

void reference_spread(const char *period, enum comm_type type, void *data, size_t bytes)
{
	size_t each = period_bytes(type);
	for (size_t at = 0; at < bytes; at += each)
		memcpy((char *)data + at, period, bytes - at < each ? bytes - at : each);
}

size_t reference_differs(const char *period, enum comm_type type, const void *data, size_t bytes)
{
	const char *d = data;
	size_t each = period_bytes(type);
	for (size_t at = 0; at < bytes; at += each) {
		size_t len = bytes - at < each ? bytes - at : each, i = 0;
		if (!memcmp(d + at, period, len))
			continue;
		while (d[at + i] == period[i])
			i++;
		return at + i;
	}
	return bytes;
}
