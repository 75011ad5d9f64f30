/*
 * tile — how the threads of a block are distributed over rows of packs.
 *
 * A block of TILE threads covers a tile: 1 << shift threads along a row, each with the packs j and
 * j + (1 << shift), and the others on the rows below. Rows wider than a tile are split into `across`
 * tiles. Thus rows of any width, few or many, fill the device, and neighbouring threads read
 * neighbouring packs.
 */
#ifndef MUSTER_KERNELS_CUDA_TILE_CUH
#define MUSTER_KERNELS_CUDA_TILE_CUH

#include "kernels/cuda/cuda.h"

enum { TILE = 256, TILE_TURNS = 2 };

struct tile {
	int64_t n, packs; /* rows, and packs per row */
	int shift;
	unsigned across;
};

static inline struct tile tile_over(int64_t n, int64_t packs)
{
	struct tile t = { n, packs, 0, 1 };
	while ((1 << t.shift) < TILE && ((int64_t)TILE_TURNS << t.shift) < packs)
		t.shift++;
	t.across = cuda_blocks(packs, (int64_t)TILE_TURNS << t.shift);
	return t;
}

static inline unsigned tile_blocks(const struct tile *t)
{
	return t->packs ? cuda_blocks(t->n, TILE >> t->shift) * t->across : 0;
}

/* This thread's row; it has none if the result is t.n or more. */
__device__ inline int64_t tile_row(const struct tile &t)
{
	return (int64_t)(blockIdx.x / t.across) * (TILE >> t.shift) + (threadIdx.x >> t.shift);
}

/* This thread's pack of each turn; it has none if the result is t.packs or more. */
__device__ inline int64_t tile_pack(const struct tile &t, int turn)
{
	return ((int64_t)(blockIdx.x % t.across) * TILE_TURNS + turn << t.shift) +
	       (threadIdx.x & ((1 << t.shift) - 1));
}

#endif
