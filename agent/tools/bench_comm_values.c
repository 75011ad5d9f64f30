#include "agent/tools/bench_comm.h"
#include "base/numbers.h"

#include <math.h>
#include <string.h>

enum { LARGEST = 8, SUM_MAX = 256, ELEMENT_MAX = 8 };

static uint32_t mix_indices(uint32_t rank, uint32_t i)
{
	uint32_t x = (rank + 1) * 0x9e3779b1u ^ (i + 1) * 0x85ebca77u;
	x = (x ^ x >> 15) * 0x2c1b3c6du;
	x = (x ^ x >> 12) * 0x297a2d39u;
	return x ^ x >> 15;
}

/* In a product one factor is not 1. In a sum all numbers are so small that the sum is at most
 * SUM_MAX. */
static double value(const struct bench_values *v, int rank, uint32_t i)
{
	uint32_t x = mix_indices((uint32_t)rank, i);
	if (v->redop == COMM_PROD)
		return i % (uint32_t)v->ranks == (uint32_t)rank ? 2 + x % 5 : 1;
	uint32_t room = SUM_MAX / (uint32_t)v->ranks + 1;
	return x % (room < 2 ? 2 : room < LARGEST ? room : LARGEST);
}

static double reduced(const struct bench_values *v, uint32_t i)
{
	double r = value(v, 0, i);
	for (int k = 1; k < v->ranks; k++) {
		double x = value(v, k, i);
		switch (v->redop) {
		case COMM_SUM:
		case COMM_AVG:
			r += x;
			break;
		case COMM_MAX:
			r = fmax(r, x);
			break;
		case COMM_MIN:
			r = fmin(r, x);
			break;
		case COMM_PROD:
			r *= x;
			break;
		}
	}
	return v->redop == COMM_AVG ? r / v->ranks : r;
}

/* Rounds x, which is positive or 0, to `bits` bits after the leading one, to nearest even. */
static float rounded(float x, int bits)
{
	if (x == 0)
		return 0;
	float unit = ldexpf(1, ilogbf(x) - bits);
	return nearbyintf(x / unit) * unit;
}

static uint16_t bf16_of(float x)
{
	uint32_t b;
	x = rounded(x, 7);
	memcpy(&b, &x, sizeof b);
	return (uint16_t)(b >> 16);
}

/* x must not be subnormal in fp16. */
static uint16_t f16_of(float x)
{
	uint32_t b;
	x = rounded(x, 10);
	memcpy(&b, &x, sizeof b);
	return x == 0 ? 0 : (uint16_t)(((b >> 23) - 112) << 10 | (b >> 13 & 1023));
}

static void store(enum comm_type type, double x, void *at)
{
	float f = (float)x;
	uint16_t half;
	int32_t i32 = (int32_t)x;
	int64_t i64 = (int64_t)x;
	uint8_t u8 = (uint8_t)i64;
	switch (type) {
	case COMM_F32:
		memcpy(at, &f, sizeof f);
		break;
	case COMM_F64:
		memcpy(at, &x, sizeof x);
		break;
	case COMM_BF16:
		half = bf16_of(f);
		memcpy(at, &half, sizeof half);
		break;
	case COMM_F16:
		half = f16_of(f);
		memcpy(at, &half, sizeof half);
		break;
	case COMM_I32:
		memcpy(at, &i32, sizeof i32);
		break;
	case COMM_I64:
		memcpy(at, &i64, sizeof i64);
		break;
	case COMM_U8:
		memcpy(at, &u8, sizeof u8);
		break;
	}
}

/* Sets the elements from `offset` on, at most one period of them. Returns how many they are. */
static size_t fill_period(const struct bench_values *v, int rank, size_t offset, size_t count,
			  void *data)
{
	size_t n = count < BENCH_PERIOD ? count : BENCH_PERIOD, size = comm_type_size(v->type);
	for (size_t k = 0; k < n; k++) {
		uint32_t i = (uint32_t)((offset + k) % BENCH_PERIOD);
		store(v->type, rank == RANK_ALL ? reduced(v, i) : value(v, rank, i),
		      (char *)data + k * size);
	}
	return n;
}

void bench_fill(const struct bench_values *v, int rank, size_t offset, void *data, size_t count)
{
	size_t size = comm_type_size(v->type), n = fill_period(v, rank, offset, count, data);
	for (size_t at = n; at < count; at += n)
		memcpy((char *)data + at * size, data, (count - at < n ? count - at : n) * size);
}

static size_t count_differing(const char *a, const char *b, size_t n, size_t size)
{
	size_t bad = 0;
	if (!memcmp(a, b, n * size))
		return 0;
	for (size_t i = 0; i < n; i++)
		bad += memcmp(a + i * size, b + i * size, size) != 0;
	return bad;
}

size_t bench_wrong(const struct bench_values *v, int rank, size_t offset, const void *data,
		   size_t count)
{
	enum { SLICE = 1024 }; /* a part of the period that fits a small stack */
	char want[SLICE * ELEMENT_MAX];
	size_t size = comm_type_size(v->type), bad = 0;
	for (size_t from = 0, whole = min_size(BENCH_PERIOD, count); from < whole; from += SLICE) {
		size_t n = fill_period(v, rank, offset + from, min_size(SLICE, whole - from), want);
		for (size_t at = from; at < count; at += BENCH_PERIOD)
			bad += count_differing((const char *)data + at * size, want,
					       min_size(n, count - at), size);
	}
	return bad;
}
