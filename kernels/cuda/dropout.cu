/* Dropout of the same elements as in kernels/reference. Random numbers come in fours, so rows of
 * whole packs draw each number once. */
#include <math.h>

#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/tile.cuh"

/* An element is dropped if its word is below `threshold`; the others are multiplied by `by`. y may be
 * x. */
template <class T, int V>
__global__ void __launch_bounds__(TILE)
	dropout_kernel(T *y, const T *x, const int64_t *rows, struct tile tile,
		       struct philox_key key, uint32_t threshold, float by)
{
	const int64_t row = tile_row(tile), c = tile.packs * V;
	float a[TILE_TURNS][V];
	if (row >= tile.n)
		return;
	const uint64_t element = (uint64_t)rows[row] * (uint64_t)c;
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++)
		if (tile_pack(tile, t) < tile.packs)
			load<V>(a[t], x + row * c + tile_pack(tile, t) * V);
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++)
		if (tile_pack(tile, t) < tile.packs) {
			uint32_t words[V];
			philox_run<V>(words, key, element + (uint64_t)(tile_pack(tile, t) * V));
			#pragma unroll
			for (int i = 0; i < V; i++)
				a[t][i] = words[i] < threshold ? 0 : a[t][i] * by;
			store<V>(y + row * c + tile_pack(tile, t) * V, a[t]);
		}
}

template <class T>
static void dropout_rows(struct backend *k, void *yv, const void *xv, const int64_t *rows,
			 int64_t n, int64_t c, const struct dropout *d)
{
	T *y = (T *)yv;
	const T *x = (const T *)xv;
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(y, c) && pack_fits(x, c);
	struct tile tile = tile_over(n, packs ? c / v : c);
	if (d->p <= 0) {
		if (y != x)
			k->ops.copy_rows(k, y, c, x, c, n, c);
		return;
	}
	uint32_t threshold = (uint32_t)ceil((double)d->p * 0x1p32);
	float by = (float)(1 / (1 - (double)d->p));
	launch(k, "dropout", packs ? dropout_kernel<T, v> : dropout_kernel<T, 1>,
	       tile_blocks(&tile), TILE, 0, y, x, rows, tile, d->key, threshold, by);
}

template <class T> static void fill(struct ops *o)
{
	o->dropout = dropout_rows<T>;
}

CUDA_FILL(dropout)
