/*
 * Conversions, built once for each instruction set (kernels.mk) and once for none ("base", the
 * specification). The loops have no branches, so that the compiler vectorizes them, and use F16C
 * where it exists.
 */
#include "base/numbers.h"
#include "kernels/cpu/philox.h"
#include "kernels/low_precision/low_precision.h"

#include <string.h>

#ifdef __F16C__
#include <immintrin.h>
#endif

static inline uint32_t bits_of(float x)
{
	uint32_t b;
	memcpy(&b, &x, sizeof b);
	return b;
}

static inline float float_of(uint32_t b)
{
	float x;
	memcpy(&x, &b, sizeof x);
	return x;
}

static const uint32_t infinite = 0x7f800000, magnitude = 0x7fffffff;

/* --- bf16: the upper half of a float --- */

static void bf16_to_fp32(float *restrict y, const uint16_t *restrict x, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = float_of((uint32_t)x[i] << 16);
}

/* A number added below the cut carries into the upper half. A NaN keeps its upper half and is
 * quiet. */
static inline uint16_t bf16_cut(uint32_t b, uint32_t add)
{
	uint32_t rounded = (b + add) >> 16, nan = b >> 16 | 0x40;
	return (uint16_t)((b & magnitude) > infinite ? nan : rounded);
}

static void bf16_from_fp32(uint16_t *restrict y, const float *restrict x, int64_t n)
{
	for (int64_t i = 0; i < n; i++) {
		uint32_t b = bits_of(x[i]);
		y[i] = bf16_cut(b, 0x7fff + (b >> 16 & 1));
	}
}

static void bf16_random(uint16_t *restrict y, const float *restrict x,
			const uint32_t *restrict words, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = bf16_cut(bits_of(x[i]), words[i] >> 16);
}

/* --- fp16: 5 bits of exponent, 10 of fraction --- */

/* As floats: the smallest normal fp16, 2^-14, and the first number beyond the range, 2^16. */
static const uint32_t fp16_normal = 0x38800000, fp16_beyond = 0x47800000;

/* Cuts the magnitude a, which is in the range of normal fp16, after adding `add` below the cut. The
 * carry may give infinity. */
static inline uint32_t fp16_cut(uint32_t a, uint32_t add)
{
	return (a + add - ((uint32_t)(127 - 15) << 23)) >> 13;
}

static inline uint16_t fp16_join(uint32_t b, uint32_t in_range)
{
	uint32_t a = b & magnitude, nan = 0x7e00 | (a >> 13 & 0x3ff);
	uint32_t h = a >= fp16_beyond ? 0x7c00 : in_range;
	h = a > infinite ? nan : h;
	return (uint16_t)((b >> 16 & 0x8000) | h);
}

/* Below 2^-14 the quantum is 2^-24, which is the quantum of floats in [0.5, 1). */
static inline uint16_t fp16_nearest(float x)
{
	uint32_t b = bits_of(x), a = b & magnitude;
	uint32_t small = bits_of(float_of(a) + 0.5f) - bits_of(0.5f);
	uint32_t large = fp16_cut(a, 0xfff + (a >> 13 & 1));
	return fp16_join(b, a < fp16_normal ? small : large);
}

static inline uint16_t fp16_cut_random(float x, uint32_t word)
{
	uint32_t b = bits_of(x), a = b & magnitude;
	float quanta = a < fp16_normal ? float_of(a) * 0x1p24f : 0;
	uint32_t whole = (uint32_t)quanta;
	uint32_t small = whole + ((double)word < (double)(quanta - (float)whole) * 0x1p32);
	return fp16_join(b, a < fp16_normal ? small : fp16_cut(a, word >> 19));
}

static inline float fp16_value(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, a = (uint32_t)(h & 0x7fff) << 13;
	uint32_t normal = a + ((uint32_t)(127 - 15) << 23);
	uint32_t small = bits_of((float)(int32_t)(a >> 13) * 0x1p-24f);
	uint32_t special = a | infinite | ((h & 0x3ff) ? 0x400000 : 0);
	uint32_t b = (h & 0x7c00) == 0 ? small : (h & 0x7c00) == 0x7c00 ? special : normal;
	return float_of(sign | b);
}

static void fp16_to_fp32(float *restrict y, const uint16_t *restrict x, int64_t n)
{
	int64_t i = 0;
#if defined __AVX512F__
	for (; i + 16 <= n; i += 16)
		_mm512_storeu_ps(y + i, _mm512_cvtph_ps(_mm256_loadu_si256((const void *)(x + i))));
#elif defined __F16C__
	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(y + i, _mm256_cvtph_ps(_mm_loadu_si128((const void *)(x + i))));
#endif
	for (; i < n; i++)
		y[i] = fp16_value(x[i]);
}

static void fp16_from_fp32(uint16_t *restrict y, const float *restrict x, int64_t n)
{
	int64_t i = 0;
#if defined __AVX512F__
	for (; i + 16 <= n; i += 16)
		_mm256_storeu_si256((void *)(y + i), _mm512_cvtps_ph(_mm512_loadu_ps(x + i),
								     _MM_FROUND_TO_NEAREST_INT));
#elif defined __F16C__
	for (; i + 8 <= n; i += 8)
		_mm_storeu_si128((void *)(y + i), _mm256_cvtps_ph(_mm256_loadu_ps(x + i),
								  _MM_FROUND_TO_NEAREST_INT));
#endif
	for (; i < n; i++)
		y[i] = fp16_nearest(x[i]);
}

static void fp16_random(uint16_t *restrict y, const float *restrict x,
			const uint32_t *restrict words, int64_t n)
{
	for (int64_t i = 0; i < n; i++)
		y[i] = fp16_cut_random(x[i], words[i]);
}

/* --- random rounding: the stream's words, a batch at a time --- */

typedef void random_fn(uint16_t *restrict y, const float *restrict x,
		       const uint32_t *restrict words, int64_t n);

static inline void from_fp32_random(random_fn *round, uint16_t *y, const float *x,
				    struct philox_key key, uint64_t first, int64_t n)
{
	for (int64_t at = -(int64_t)(first % 4); at < n; at += PHILOX_WORDS) {
		uint32_t words[PHILOX_WORDS];
		philox_words(key, (first + (uint64_t)at) / 4, words);
		int64_t lo = max_int64(at, 0), hi = min_int64(n, at + PHILOX_WORDS);
		round(y + lo, x + lo, words + (lo - at), hi - lo);
	}
}

static void bf16_from_fp32_random(uint16_t *y, const float *x, struct philox_key key,
				  uint64_t first, int64_t n)
{
	from_fp32_random(bf16_random, y, x, key, first, n);
}

static void fp16_from_fp32_random(uint16_t *y, const float *x, struct philox_key key,
				  uint64_t first, int64_t n)
{
	from_fp32_random(fp16_random, y, x, key, first, n);
}

const struct low_precision_type LOW_PRECISION_EXPAND(LOW_PRECISION_ISA,
						     types)[LOW_PRECISION_TYPES] = {
	{ "bf16", bf16_to_fp32, bf16_from_fp32, bf16_from_fp32_random },
	{ "fp16", fp16_to_fp32, fp16_from_fp32, fp16_from_fp32_random },
};
