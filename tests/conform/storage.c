#include "tests/conform/storage.h"

#include <math.h>
#include <string.h>

const struct storage storage_fp64 = { "fp64", 8, 52, 11, 0 };
const struct storage storage_fp32 = { "fp32", 4, 23, 8, 1e-5 };
const struct storage storage_bf16 = { "bf16", 2, 7, 8, 5e-3 };
const struct storage storage_fp16 = { "fp16", 2, 10, 5, 7e-4 };

const struct storage *storage_of(const char *backend_name)
{
	const char *colon = strchr(backend_name, ':');
	if (!colon)
		return &storage_fp32;
	return strcmp(colon + 1, "bf16") ? &storage_fp16 : &storage_bf16;
}

static int bias(const struct storage *s)
{
	return (1 << (s->exponent - 1)) - 1;
}

/* The distance between neighbouring numbers around x, as an exponent of 2. */
static int quantum(const struct storage *s, double x)
{
	int e;
	frexp(x, &e);
	e = x == 0 || e - 1 < 1 - bias(s) ? 1 - bias(s) : e - 1;
	return e - s->fraction;
}

double storage_round(const struct storage *s, double x)
{
	if (!isfinite(x))
		return x;
	int q = quantum(s, x);
	double y = ldexp(nearbyint(ldexp(x, -q)), q);
	return fabs(y) >= ldexp(1, bias(s) + 1) ? copysign((double)INFINITY, x) : y;
}

static double decode(const struct storage *s, uint16_t bits)
{
	int e = bits >> s->fraction & ((1 << s->exponent) - 1), f = bits & ((1 << s->fraction) - 1);
	double y = e ? ldexp((1 << s->fraction) + f, e - bias(s) - s->fraction)
		     : ldexp(f, 1 - bias(s) - s->fraction);
	if (e == (1 << s->exponent) - 1)
		y = f ? (double)NAN : (double)INFINITY;
	return bits & 0x8000 ? -y : y;
}

static uint16_t encode(const struct storage *s, double x)
{
	unsigned all = (1u << s->exponent) - 1, sign = signbit(x) ? 0x8000 : 0;
	if (isnan(x) || isinf(x))
		return (uint16_t)(sign | all << s->fraction |
				  (isnan(x) ? 1u << (s->fraction - 1) : 0));
	int q = quantum(s, x);
	unsigned f = (unsigned)ldexp(fabs(x), -q), one = 1u << s->fraction;
	unsigned e = f < one ? 0 : (unsigned)(q + s->fraction + bias(s));
	return (uint16_t)(sign | e << s->fraction | (f & (one - 1)));
}

double storage_get(const struct storage *s, const void *array, int64_t i)
{
	if (s->width == sizeof(uint16_t))
		return decode(s, ((const uint16_t *)array)[i]);
	return s->width == sizeof(float) ? (double)((const float *)array)[i]
					 : ((const double *)array)[i];
}

void storage_put(const struct storage *s, void *array, int64_t i, double x)
{
	if (s->width == sizeof(uint16_t))
		((uint16_t *)array)[i] = encode(s, x);
	else if (s->width == sizeof(float))
		((float *)array)[i] = (float)x;
	else
		((double *)array)[i] = x;
}
