#include "tests/gpu/emulator/tensor.h"

#include <string.h>

enum { M = 16, N = 8, K = 16 };

static uint32_t pair(uint16_t first, uint16_t second)
{
	return (uint32_t)second << 16 | first;
}

static const uint16_t *row_of(void *const lanes[EMULATED_WARP], int lane)
{
	const uint16_t *row = ((const struct emulated_matrix *)lanes[lane])->row;
	if ((uintptr_t)row % 16)
		emulated_misuse("ldmatrix: lane %d names a row at %p, which is not aligned to 16",
				lane, (const void *)row);
	return row;
}

void emulated_ldmatrix_x4(void *const lanes[EMULATED_WARP])
{
	for (int m = 0; m < 4; m++)
		for (int l = 0; l < EMULATED_WARP; l++) {
			const uint16_t *row = row_of(lanes, 8 * m + l / 4) + 2 * (l % 4);
			((struct emulated_matrix *)lanes[l])->r[m] = pair(row[0], row[1]);
		}
}

void emulated_ldmatrix_x4_trans(void *const lanes[EMULATED_WARP])
{
	for (int m = 0; m < 4; m++)
		for (int l = 0; l < EMULATED_WARP; l++) {
			int row = 8 * m + 2 * (l % 4), column = l / 4;
			((struct emulated_matrix *)lanes[l])->r[m] =
				pair(row_of(lanes, row)[column], row_of(lanes, row + 1)[column]);
		}
}

static float of_bf16(uint32_t h)
{
	uint32_t bits = h << 16;
	float x;
	memcpy(&x, &bits, sizeof x);
	return x;
}

/* A multiplication corrects the exponent, also of subnormal numbers. */
static float of_fp16(uint32_t h)
{
	uint32_t bits = (h & 0x7fff) << 13 | (h & 0x8000) << 16, special = (h & 0x7c00) == 0x7c00;
	float x;
	bits |= special ? 0x7f800000u : 0;
	memcpy(&x, &bits, sizeof x);
	return special ? x : x * 0x1p112f;
}

/* Element e of register r of lane l is in row (column, for b) g or g + 8 and at k or k + 8, depending on
 * the register. */
#define MMA(NAME, CONVERT) \
	void NAME(void *const lanes[EMULATED_WARP]) \
	{ \
		float a[M][K], b[K][N], d[M][N]; \
		for (int l = 0; l < EMULATED_WARP; l++) { \
			const struct emulated_product *p = lanes[l]; \
			int g = l / 4, k = 2 * (l % 4); \
			for (int e = 0; e < 2; e++) { \
				for (int r = 0; r < 4; r++) \
					a[g + r % 2 * 8][k + r / 2 * 8 + e] = \
						CONVERT(p->a[r] >> 16 * e & 0xffff); \
				for (int r = 0; r < 2; r++) \
					b[k + r * 8 + e][g] = CONVERT(p->b[r] >> 16 * e & 0xffff); \
				for (int r = 0; r < 2; r++) \
					d[g + r * 8][k + e] = p->d[2 * r + e]; \
			} \
		} \
		for (int i = 0; i < M; i++) \
			for (int k = 0; k < K; k++) \
				for (int j = 0; j < N; j++) \
					d[i][j] += a[i][k] * b[k][j]; \
		for (int l = 0; l < EMULATED_WARP; l++) { \
			const struct emulated_product *p = lanes[l]; \
			for (int r = 0; r < 4; r++) \
				p->d[r] = d[l / 4 + r / 2 * 8][2 * (l % 4) + r % 2]; \
		} \
	}

MMA(emulated_mma_bf16, of_bf16)
MMA(emulated_mma_fp16, of_fp16)
