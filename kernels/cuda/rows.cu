/* Rows that are sent to experts and come back, blocks of columns, and a bias. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"
#include "kernels/cuda/tile.cuh"

/* y[i] = x[from[i]], zeros if from[i] < 0. from = NULL: y[i] = x[i]. */
template <class T, int V>
__global__ void __launch_bounds__(TILE) move_kernel(T *y, int64_t y_row, const T *x, int64_t x_row,
						    const int64_t *from, struct tile tile)
{
	const int64_t row = tile_row(tile);
	float a[TILE_TURNS][V];
	if (row >= tile.n)
		return;
	const int64_t source = from ? from[row] : row;
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++) {
		#pragma unroll
		for (int i = 0; i < V; i++)
			a[t][i] = 0;
		if (source >= 0 && tile_pack(tile, t) < tile.packs)
			load<V>(a[t], x + source * x_row + tile_pack(tile, t) * V);
	}
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++)
		if (tile_pack(tile, t) < tile.packs)
			store<V>(y + row * y_row + tile_pack(tile, t) * V, a[t]);
}

template <class T>
static void move(struct backend *k, const char *op, T *y, int64_t y_row, const T *x, int64_t x_row,
		 const int64_t *from, int64_t n, int64_t c)
{
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(y, y_row) && pack_fits(x, x_row) && c % v == 0;
	struct tile tile = tile_over(n, packs ? c / v : c);
	launch(k, op, packs ? move_kernel<T, v> : move_kernel<T, 1>, tile_blocks(&tile), TILE, 0, y,
	       y_row, x, x_row, from, tile);
}

template <class T>
static void gather_rows(struct backend *k, void *y, const void *x, const int64_t *from, int64_t n,
			int64_t c)
{
	move<T>(k, "gather_rows", (T *)y, c, (const T *)x, c, from, n, c);
}

template <class T>
static void copy_rows(struct backend *k, void *y, int64_t y_row, const void *x, int64_t x_row,
		      int64_t n, int64_t c)
{
	bool dense = n == 1 || (y_row == c && x_row == c);
	if (dense && n * c > 0)
		cuda_copy(k, y, x, (size_t)(n * c) * sizeof(T));
	else
		move<T>(k, "copy_rows", (T *)y, y_row, (const T *)x, x_row, NULL, n, c);
}

/* Sums over the choices in their order, with all of a pack in registers. */
template <class T, int V>
__global__ void __launch_bounds__(TILE)
	combine_fwd_kernel(T *y, const T *x, const int64_t *at, const float *weights, int64_t top,
			   struct tile tile)
{
	const int64_t row = tile_row(tile), c = tile.packs * V;
	float sum[TILE_TURNS][V] = {};
	if (row >= tile.n)
		return;
	#pragma unroll 2
	for (int64_t j = row * top; j < (row + 1) * top; j++) {
		const int64_t source = at[j];
		const float w = weights ? weights[j] : 1;
		#pragma unroll
		for (int t = 0; t < TILE_TURNS; t++)
			if (source >= 0 && tile_pack(tile, t) < tile.packs) {
				float a[V];
				load<V>(a, x + source * c + tile_pack(tile, t) * V);
				#pragma unroll
				for (int i = 0; i < V; i++)
					sum[t][i] += w * a[i];
			}
	}
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++)
		if (tile_pack(tile, t) < tile.packs)
			store<V>(y + row * c + tile_pack(tile, t) * V, sum[t]);
}

template <class T>
static void combine_fwd(struct backend *k, void *yv, const void *xv, const int64_t *at,
			const float *weights, int64_t n, int64_t top, int64_t c)
{
	T *y = (T *)yv;
	const T *x = (const T *)xv;
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(y, c) && pack_fits(x, c);
	struct tile tile = tile_over(n, packs ? c / v : c);
	launch(k, "combine_fwd", packs ? combine_fwd_kernel<T, v> : combine_fwd_kernel<T, 1>,
	       tile_blocks(&tile), TILE, 0, y, x, at, weights, top, tile);
}

enum { COMBINE = 256 };

/* One warp per choice: it sets the choice's row of dx, and sums the gradient of its weight. */
template <class T, int V>
__global__ void __launch_bounds__(COMBINE)
	combine_bwd_kernel(T *__restrict__ dx, float *dweights, const T *__restrict__ dy,
			   const T *__restrict__ x, const int64_t *at, const float *weights,
			   int64_t choices, int64_t top, int64_t c)
{
	const int64_t j = (int64_t)blockIdx.x * (COMBINE / WARP) + warp_id();
	if (j >= choices)
		return;
	const int64_t to = at[j] * c, from = j / top * c;
	const float w = weights ? weights[j] : 1;
	float sum = 0;
	if (to >= 0) {
		#pragma unroll 4
		for (int64_t l = lane_id() * V; l < c; l += WARP * V) {
			float d[V], a[V];
			load<V>(d, dy + from + l);
			if (dweights) {
				load<V>(a, x + to + l);
				#pragma unroll
				for (int i = 0; i < V; i++)
					sum += d[i] * a[i];
			}
			#pragma unroll
			for (int i = 0; i < V; i++)
				d[i] *= w;
			store<V>(dx + to + l, d);
		}
	}
	sum = warp_sum(sum);
	if (dweights && lane_id() == 0)
		dweights[j] = sum;
}

template <class T>
static void combine_bwd(struct backend *k, void *dxv, float *dweights, const void *dyv,
			const void *xv, const int64_t *at, const float *weights, int64_t n,
			int64_t top, int64_t c)
{
	T *dx = (T *)dxv;
	const T *dy = (const T *)dyv, *x = (const T *)xv;
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(dx, c) && pack_fits(dy, c) && pack_fits(x, c);
	launch(k, "combine_bwd", packs ? combine_bwd_kernel<T, v> : combine_bwd_kernel<T, 1>,
	       cuda_blocks(n * top, COMBINE / WARP), COMBINE, 0, dx, dweights, dy, x, at, weights,
	       n * top, top, c);
}

template <class T, int V>
__global__ void __launch_bounds__(TILE) add_bias_kernel(T *x, const T *bias, struct tile tile)
{
	const int64_t row = tile_row(tile), c = tile.packs * V;
	if (row >= tile.n)
		return;
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++)
		if (tile_pack(tile, t) < tile.packs) {
			T *at = x + row * c + tile_pack(tile, t) * V;
			float a[V], b[V];
			load<V>(a, at);
			load<V>(b, bias + tile_pack(tile, t) * V);
			#pragma unroll
			for (int i = 0; i < V; i++)
				a[i] += b[i];
			store<V>(at, a);
		}
}

template <class T>
static void add_bias(struct backend *k, void *xv, const void *biasv, int64_t n, int64_t c)
{
	T *x = (T *)xv;
	const T *bias = (const T *)biasv;
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(x, c) && pack_fits(bias, 0);
	struct tile tile = tile_over(n, packs ? c / v : c);
	launch(k, "add_bias", packs ? add_bias_kernel<T, v> : add_bias_kernel<T, 1>,
	       tile_blocks(&tile), TILE, 0, x, bias, tile);
}

template <class T> static void fill(struct ops *o)
{
	o->gather_rows = gather_rows<T>;
	o->copy_rows = copy_rows<T>;
	o->combine_fwd = combine_fwd<T>;
	o->combine_bwd = combine_bwd<T>;
	o->add_bias = add_bias<T>;
}

CUDA_FILL(rows)
