/* vmath — elementary functions without branches, so that the compiler vectorizes loops over them. */
#ifndef MUSTER_KERNELS_CPU_VMATH_H
#define MUSTER_KERNELS_CPU_VMATH_H

#include <stdint.h>
#include <string.h>

/*
 * exp(x) to about 1 ulp. x = k ln 2 + r with |r| <= ln(2)/2. exp(r) is its Taylor sum to r^7/7!, whose
 * remainder is below 6e-9 there. 2^k is built from bits. ln 2 is split in two so that k times the
 * first part is exact. Results below 2^-125 are 0; those above the largest float are infinity; NaN
 * stays NaN.
 *
 * Adding 1.5 * 2^23 puts k, rounded, into the low bits of a float.
 */
static inline float v_exp(float x)
{
	const float log2e = 0x1.715476p+0f, ln2_hi = 0x1.62e4p-1f, ln2_lo = 0x1.7f7d1cp-20f,
		    round = 0x1.8p+23f;
	float in = x < -88.0f ? -88.0f : x;
	in = in > 89.0f ? 89.0f : in;
	float t = in * log2e + round;
	float k = t - round;
	float r = (in - k * ln2_hi) - k * ln2_lo;
	float p = 1.0f / 5040;
	p = p * r + 1.0f / 720;
	p = p * r + 1.0f / 120;
	p = p * r + 1.0f / 24;
	p = p * r + 1.0f / 6;
	p = p * r + 0.5f;
	p = p * r + 1.0f;
	p = p * r + 1.0f;
	/* 2^(k-1) has an exponent for every remaining k, up to 128. k <= -126 gives 0. */
	uint32_t bits;
	memcpy(&bits, &t, sizeof bits);
	bits = (bits + 126) << 23;
	float half;
	memcpy(&half, &bits, sizeof half);
	float y = p * half * 2.0f;
	return x < -86.5f ? 0.0f : y;
}

/* 1 / (1 + exp(-x)) */
static inline float v_sigmoid(float x)
{
	return 1.0f / (1.0f + v_exp(-x));
}

#endif
