#include "agent/engine/hf/numbers.h"

#include <math.h>
#include <string.h>

static const struct hf_type types[] = {
	{ "fp32", "F32", "float32", 4 },
	{ "bf16", "BF16", "bfloat16", 2 },
	{ "fp16", "F16", "float16", 2 },
};

enum { FP32, BF16, FP16, TYPES };

const struct hf_type *hf_numbers_type(const char *name)
{
	for (int i = 0; i < TYPES; i++)
		if (!strcmp(types[i].name, name))
			return &types[i];
	return NULL;
}

const struct hf_type *hf_numbers_dtype(const char *dtype)
{
	for (int i = 0; i < TYPES; i++)
		if (!strcmp(types[i].dtype, dtype))
			return &types[i];
	return NULL;
}

const struct hf_type *hf_numbers_torch(const char *torch)
{
	for (int i = 0; torch && i < TYPES; i++)
		if (!strcmp(types[i].torch, torch))
			return &types[i];
	return NULL;
}

static uint32_t bits_of(float x)
{
	uint32_t b;
	memcpy(&b, &x, sizeof b);
	return b;
}

static float float_of(uint32_t b)
{
	float x;
	memcpy(&x, &b, sizeof x);
	return x;
}

static float from_fp16(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, exponent = h >> 10 & 31, mantissa = h & 1023;
	if (exponent == 31)
		return float_of(sign | 0x7f800000 | mantissa << 13);
	if (exponent == 0)
		return float_of(sign | bits_of((float)mantissa * 0x1p-24f));
	return float_of(sign | (exponent + 112) << 23 | mantissa << 13);
}

/* A NaN keeps its upper bits. If they are all zero, it must not become an infinity. */
static uint16_t nan_to(uint32_t b, int dropped, uint32_t mask, uint16_t quiet)
{
	uint16_t h = (uint16_t)(b >> dropped & mask);
	return h ? h : quiet;
}

static uint16_t to_bf16(float x)
{
	uint32_t b = bits_of(x);
	if (isnan(x))
		return (uint16_t)((b >> 16 & 0xff80) | nan_to(b, 16, 0x7f, 0x40));
	return (uint16_t)((b + 0x7fff + (b >> 16 & 1)) >> 16);
}

static uint16_t to_fp16(float x)
{
	uint32_t b = bits_of(x), a = b & 0x7fffffff, r;
	uint16_t sign = (uint16_t)(b >> 16 & 0x8000);
	if (isnan(x))
		return (uint16_t)(sign | 0x7c00 | nan_to(b, 13, 0x3ff, 0x200));
	if (a >= 0x477ff000) /* 65520 and above */
		return sign | 0x7c00;
	if (a < 0x38800000) /* below the smallest normal number: a multiple of 2^-24 */
		r = (uint32_t)rintf(float_of(a) * 0x1p24f);
	else
		r = (a + 0xfff + (a >> 13 & 1) - (112u << 23)) >> 13;
	return (uint16_t)(sign | r);
}

void hf_numbers_widen(const struct hf_type *t, const void *from, size_t n, float *to)
{
	const uint16_t *h = from;
	if (t == &types[FP32])
		memmove(to, from, n * sizeof *to);
	else if (t == &types[BF16])
		for (size_t i = 0; i < n; i++)
			to[i] = float_of((uint32_t)h[i] << 16);
	else
		for (size_t i = 0; i < n; i++)
			to[i] = from_fp16(h[i]);
}

bool hf_numbers_narrow(const struct hf_type *t, const float *from, size_t n, void *to)
{
	/* `to` may be `from`: output elements are smaller, so the output never overtakes the input.
	 */
	unsigned char *out = to;
	bool fits = true;
	if (t == &types[FP32]) {
		memmove(to, from, n * sizeof *from);
		return true;
	}
	for (size_t i = 0; i < n; i++) {
		float x = from[i];
		uint16_t h = t == &types[BF16] ? to_bf16(x) : to_fp16(x);
		memcpy(out + i * sizeof h, &h, sizeof h);
		fits &= !isfinite(x) || (h & 0x7fff) != (t == &types[BF16] ? 0x7f80 : 0x7c00);
	}
	return fits;
}
