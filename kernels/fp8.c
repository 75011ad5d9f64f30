/* The host's form of fp8 products, in any storage type, a row at a time. It is the specification,
 * and slow. */
#include "base/numbers.h"
#include "kernels/backend.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

_Static_assert(offsetof(struct fp8_scale, inverse) % FP8_SCALE_ALIGN == 0 &&
		       sizeof(struct fp8_scale) % FP8_SCALE_ALIGN == 0,
	       "cuBLASLt reads the inverse of each scale of an array");

/* A format has 1 sign bit, `exponent` bits and `fraction` bits. */
static const struct format {
	int exponent, fraction, bias;
	float largest;
	uint8_t nan;
} formats[] = {
	[FP8_E4M3] = { 4, 3, 7, 448, 0x7f },
	[FP8_E5M2] = { 5, 2, 15, 57344, 0x7f },
};

static float decode(const struct format *f, uint8_t bits)
{
	int e = bits >> f->fraction & ((1 << f->exponent) - 1), m = bits & ((1 << f->fraction) - 1);
	if ((bits & 0x7f) == f->nan)
		return NAN;
	float x = e ? ldexpf((float)((1 << f->fraction) + m), e - f->bias - f->fraction)
		    : ldexpf((float)m, 1 - f->bias - f->fraction);
	return bits & 0x80 ? -x : x;
}

static uint8_t encode(const struct format *f, double x)
{
	uint8_t sign = signbit(x) ? 0x80 : 0;
	if (!isfinite(x))
		return f->nan;
	int e;
	double a = fmin(fabs(x), (double)f->largest);
	frexp(a, &e);
	if (a == 0 || e - 1 < 1 - f->bias)
		e = 2 - f->bias;
	/* with the leading bit, except for subnormal numbers */
	int whole = (int)nearbyint(ldexp(a, f->fraction + 1 - e));
	return (uint8_t)(sign + ((e - 2 + f->bias) << f->fraction) + whole);
}

/* Number i of a row that was converted to fp32, or to doubles for reference64. */
static double number(const struct backend *k, const void *row, int64_t i)
{
	return k->element == sizeof(double) ? ((const double *)row)[i]
					    : (double)((const float *)row)[i];
}

static uint32_t magnitude(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return bits & 0x7fffffff;
}

/* Compares magnitudes by their bits, of which NaN has the largest. */
static void update_largest(struct fp8_scale *s, float x)
{
	if (magnitude(x) > magnitude(s->largest))
		s->largest = fabsf(x);
}

/* Casts with the scale as it is. Returns it with the largest magnitude. */
static struct fp8_scale cast_rows(struct backend *k, const void *x, int64_t n, int64_t c,
				  const struct fp8_copies *to)
{
	float *row = backend_scratch(k, 0);
	struct fp8_scale s = *to->scale;
	const int64_t padded = round_up_int64(n, FP8_ROW);
	if (to->sums)
		k->ops.sum_rows(k, to->sums, x, n, c, to->add);
	for (int64_t j = 0; to->transposed && j < c; j++)
		memset(to->transposed + j * padded + n, 0, (size_t)(padded - n));
	for (int64_t i = 0; i < n; i++) {
		k->ops.storage_to_fp32(k, row, (const char *)x + (size_t)(i * c) * k->element, c);
		for (int64_t j = 0; j < c; j++) {
			double number_j = number(k, row, j);
			uint8_t bits = encode(&formats[to->format], number_j * (double)s.scale);
			update_largest(&s, (float)number_j);
			if (to->at)
				to->at[i * c + j] = bits;
			if (to->transposed)
				to->transposed[j * padded + i] = bits;
		}
	}
	return s;
}

void backend_host_fp8_cast(struct backend *k, const void *x, int64_t n, int64_t c,
			   const struct fp8_copies *to)
{
	*to->scale = cast_rows(k, x, n, c, to);
}

enum { CODES = 256 };

static void decode_all(enum fp8 format, double numbers[CODES])
{
	for (int i = 0; i < CODES; i++)
		numbers[i] = (double)decode(&formats[format], (uint8_t)i);
}

/* a, b: the numbers of the codes of left and right. */
static double dot(const struct fp8_tensor *left, const double *a, int64_t i,
		  const struct fp8_tensor *right, const double *b, int64_t j, int64_t depth)
{
	const uint8_t *x = left->at + i * (left->row ? left->row : depth),
		      *y = right->at + j * (right->row ? right->row : depth);
	double sum = 0;
	for (int64_t l = 0; l < depth; l++)
		sum += a[x[l]] * b[y[l]];
	return sum * (double)left->scale->inverse * (double)right->scale->inverse;
}

static void set_number(const struct backend *k, void *row, int64_t i, double x)
{
	if (k->element == sizeof(double))
		((double *)row)[i] = x;
	else
		((float *)row)[i] = (float)x;
}

void backend_host_fp8_product(struct backend *k, void *d, const struct fp8_tensor *left,
			      const struct fp8_tensor *right, const void *bias, bool single,
			      bool add, int64_t m, int64_t n, int64_t depth)
{
	const size_t width = k->element == sizeof(double) ? sizeof(double) : sizeof(float);
	char *row = backend_scratch(k, 0), *added = row + BACKEND_SCRATCH / 2;
	double a[CODES], b[CODES];
	decode_all(left->format, a);
	decode_all(right->format, b);
	memset(added, 0, (size_t)n * width);
	if (bias)
		k->ops.storage_to_fp32(k, (float *)(void *)added, bias, n);
	for (int64_t i = 0; i < m; i++) {
		const void *before = single && add ? (char *)d + (size_t)(i * n) * width : added;
		for (int64_t j = 0; j < n; j++)
			set_number(k, row, j,
				   number(k, before, j) + dot(left, a, i, right, b, j, depth));
		if (single)
			memcpy((char *)d + (size_t)(i * n) * width, row, (size_t)n * width);
		else
			k->ops.fp32_to_storage(k, (char *)d + (size_t)(i * n) * k->element,
					       (float *)(void *)row, n, NULL, 0);
	}
}

/* The largest power of 2 with which `largest` fits. It is kept away from the limits of fp32, so
 * that its inverse is exact. */
static float scale_of(float largest, enum fp8 format)
{
	int e;
	frexpf(formats[format].largest / largest, &e);
	e -= 1;
	return ldexpf(1, e > 100 ? 100 : e < -100 ? -100 : e);
}

void backend_host_fp8_cast_current(struct backend *k, const void *x, int64_t n, int64_t c,
				   const struct fp8_copies *to)
{
	struct fp8_scale *s = to->scale;
	bool fits = s->largest != 0 && isfinite(s->largest);
	s->scale = fits ? scale_of(s->largest, to->format) : 0;
	s->inverse = fits ? 1 / s->scale : 0;
	cast_rows(k, x, n, c, to);
}

void backend_host_fp8_update_scales(struct backend *k, struct fp8_scale *s, int64_t n,
				    enum fp8 format, bool ends)
{
	(void)k;
	for (; n > 0; n--, s++) {
		float most = 0;
		if (ends) {
			const uint32_t at = (uint32_t)s->updates % FP8_SCALE_HISTORY;
			s->history[at] = isfinite(s->largest) ? s->largest : 0;
			s->updates++;
			s->largest = 0;
		}
		for (int i = 0; i < FP8_SCALE_HISTORY; i++)
			if (isfinite(s->history[i]))
				most = fmaxf(most, s->history[i]);
		s->scale = most > 0 ? scale_of(most, format) : 1;
		s->inverse = 1 / s->scale;
	}
}
