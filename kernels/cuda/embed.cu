/*
 * Token and position embeddings.
 *
 * The backward pass adds rows of dy by id, without atomics. The items are ordered by id (order.cuh)
 * and split into pieces of a warp's lanes. Each warp adds the rows of a piece, id after id. This
 * completes the ids that are within one piece. An id that continues over pieces leaves a part in
 * each, and the last kernel adds these parts. So a token that is at every second position is the work
 * of many warps.
 */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/order.cuh"
#include "kernels/cuda/tile.cuh"

template <class T, int V>
__global__ void __launch_bounds__(TILE)
	embed_fwd_kernel(T *y, const int32_t *tokens, const int32_t *positions, const T *wte,
			 const T *wpe, struct tile tile, int32_t lo, int32_t hi)
{
	const int64_t row = tile_row(tile), c = tile.packs * V;
	float a[TILE_TURNS][V], b[TILE_TURNS][V];
	if (row >= tile.n)
		return;
	const int32_t token = tokens[row], position = wpe ? positions[row] : 0;
	const bool mine = token >= lo && token < hi;
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++) {
		#pragma unroll
		for (int i = 0; i < V; i++)
			a[t][i] = b[t][i] = 0;
		if (mine && tile_pack(tile, t) < tile.packs)
			load<V>(a[t], wte + (int64_t)(token - lo) * c + tile_pack(tile, t) * V);
		if (wpe && tile_pack(tile, t) < tile.packs)
			load<V>(b[t], wpe + position * c + tile_pack(tile, t) * V);
	}
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++)
		if (tile_pack(tile, t) < tile.packs) {
			#pragma unroll
			for (int i = 0; i < V; i++)
				a[t][i] += b[t][i];
			store<V>(y + row * c + tile_pack(tile, t) * V, a[t]);
		}
}

template <class T>
static void embed_fwd(struct backend *k, void *yv, const int32_t *tokens, const int32_t *positions,
		      const void *wtev, const void *wpev, int64_t n, int64_t c, int32_t lo,
		      int32_t hi)
{
	T *y = (T *)yv;
	const T *wte = (const T *)wtev, *wpe = (const T *)wpev;
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(y, c) && pack_fits(wte, c) && pack_fits(wpe, c);
	struct tile tile = tile_over(n, packs ? c / v : c);
	launch(k, "embed_fwd", packs ? embed_fwd_kernel<T, v> : embed_fwd_kernel<T, 1>,
	       tile_blocks(&tile), TILE, 0, y, tokens, positions, wte, wpe, tile, lo, hi);
}

/* --- backward --- */

/* items of a piece; threads of a block; rows of dy loaded at once */
enum { PIECE = WARP, ADD = 256, ADD_TURNS = 4 };

/* Items in the order of their ids. */
struct sorted {
	int2 *items; /* id, and row of dy */
	int *total;
};

/* The keys of a block: ids from `first` on, of those in [lo, hi). */
struct id_keys {
	const int32_t *ids;
	int32_t lo, hi;
	int64_t first;
	__device__ int operator()(int64_t i) const
	{
		const int32_t id = ids[i];
		const int64_t key = id - first;
		return id < lo || id >= hi || key >= ORDER_KEYS ? (int)ORDER_NOT
		       : key < 0                                ? -1
								: (int)key;
	}
};

struct id_put {
	int2 *items;
	int64_t first;
	__device__ void operator()(int64_t i, int key, int place) const
	{
		items[place] = make_int2((int)(first + key), (int)i);
	}
};

__device__ inline int block_most(const int32_t *x, int64_t n)
{
	__shared__ int most;
	if (threadIdx.x == 0)
		most = 0;
	__syncthreads();
	int own = 0;
	for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
		own = x[i] > own ? x[i] : own;
	atomicMax(&most, own);
	__syncthreads();
	return most;
}

/* Each block has ORDER_KEYS ids, then those a grid further on. hi = -1: up to the largest id. */
__global__ void __launch_bounds__(ORDER)
	order_kernel(struct sorted out, const int32_t *ids, int64_t n, int32_t lo, int32_t hi)
{
	__shared__ struct order_room room;
	const int64_t end = hi < 0 ? (int64_t)block_most(ids, n) + 1 : hi;
	for (int64_t first = lo + (int64_t)blockIdx.x * ORDER_KEYS; first < end;
	     first += (int64_t)gridDim.x * ORDER_KEYS) {
		const struct id_keys keys = { ids, lo, (int32_t)end, first };
		const struct id_put put = { out.items, first };
		order_begin(room, order_count(room, keys, n));
		order_place(room, keys, put, n);
		if (first + ORDER_KEYS >= end && threadIdx.x == 0)
			*out.total = room.first[ORDER_KEYS - 1] + room.count[ORDER_KEYS - 1];
	}
}

template <int V> __device__ inline void row_add(float *row, const float (&sum)[V])
{
	float a[V];
	load<V>(a, row);
	#pragma unroll
	for (int i = 0; i < V; i++)
		a[i] += sum[i];
	store<V>(row, a);
}

/* This warp's piece, and the strip of columns of its lanes. */
struct strip {
	int64_t piece, column;
};

template <int V> __device__ inline struct strip strip_of(int64_t c)
{
	const int64_t strips = (c + WARP * V - 1) / (WARP * V),
		      warp = (int64_t)blockIdx.x * (ADD / WARP) + warp_id();
	return { warp / strips, (warp % strips * WARP + lane_id()) * V };
}

/* parts[2, pieces, c]: first those of ids that continue from the piece before, then those of ids
 * that begin here and continue. */
template <class T, int V>
__global__ void __launch_bounds__(ADD)
	add_kernel(float *dw, float *parts, const T *dy, struct sorted in, int64_t pieces,
		   int64_t c, int32_t lo)
{
	const struct strip s = strip_of<V>(c);
	const int total = *in.total;
	const int64_t first = s.piece * PIECE;
	if (first >= total)
		return;
	const int count = total - first < PIECE ? (int)(total - first) : (int)PIECE;
	const int2 item = lane_id() < count ? in.items[first + lane_id()] : make_int2(-1, 0);
	const int after = first + count < total ? in.items[first + count].x : -1;
	bool head = first > 0 && in.items[first - 1].x == __shfl_sync(WARP_ALL, item.x, 0);
	float sum[V] = {};
	for (int i = 0; i < count; i += ADD_TURNS) {
		float a[ADD_TURNS][V];
		#pragma unroll
		for (int t = 0; t < ADD_TURNS; t++) {
			const int64_t row = __shfl_sync(WARP_ALL, item.y, (i + t) % PIECE);
			if (i + t < count && s.column < c)
				load<V>(a[t], dy + row * c + s.column);
		}
		#pragma unroll
		for (int t = 0; t < ADD_TURNS; t++) {
			const int id = __shfl_sync(WARP_ALL, item.x, (i + t) % PIECE);
			const int next = __shfl_sync(WARP_ALL, item.x, (i + t + 1) % PIECE);
			if (i + t >= count)
				continue;
			#pragma unroll
			for (int l = 0; l < V; l++)
				sum[l] += s.column < c ? a[t][l] : 0;
			if ((i + t + 1 < count ? next : after) == id)
				continue;
			if (s.column < c && head)
				store<V>(parts + s.piece * c + s.column, sum);
			else if (s.column < c)
				row_add<V>(dw + (int64_t)(id - lo) * c + s.column, sum);
			head = false;
			#pragma unroll
			for (int l = 0; l < V; l++)
				sum[l] = 0;
		}
	}
	if (after == __shfl_sync(WARP_ALL, item.x, count - 1) && s.column < c)
		store<V>(parts + ((head ? 0 : pieces) + s.piece) * c + s.column, sum);
}

/* Adds the parts of the id that begins in this piece and continues. */
template <int V>
__global__ void __launch_bounds__(ADD) join_kernel(float *dw, const float *parts, struct sorted in,
						   int64_t pieces, int64_t c, int32_t lo)
{
	const struct strip s = strip_of<V>(c);
	const int64_t total = *in.total, first = s.piece * PIECE, behind = first + PIECE;
	if (behind >= total)
		return;
	const int id = in.items[behind - 1].x;
	if (in.items[behind].x != id || (first > 0 && in.items[first - 1].x == id))
		return;
	float sum[V] = {};
	if (s.column < c)
		load<V>(sum, parts + (pieces + s.piece) * c + s.column);
	for (int64_t next = s.piece + 1;; next += WARP) {
		const int64_t at = (next + lane_id()) * PIECE;
		const unsigned ends = ~__ballot_sync(WARP_ALL, at < total && in.items[at].x == id);
		const int count = ends ? __ffs(ends) - 1 : (int)WARP;
		#pragma unroll 4
		for (int i = 0; i < (s.column < c ? count : 0); i++) {
			float a[V];
			load<V>(a, parts + (next + i) * c + s.column);
			#pragma unroll
			for (int l = 0; l < V; l++)
				sum[l] += a[l];
		}
		if (count < WARP)
			break;
	}
	if (s.column < c)
		row_add<V>(dw + (int64_t)(id - lo) * c + s.column, sum);
}

/* Handles at most as many tokens as the scratch has room for. */
template <class T>
static void add_ids(struct backend *k, float *dw, const T *dy, const int32_t *ids, int64_t n,
		    int64_t c, int32_t lo, int32_t hi)
{
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(dy, c) && pack_fits(dw, c);
	int64_t strips = cuda_blocks(c, WARP * (packs ? v : 1)), pieces = (n + PIECE - 1) / PIECE;
	unsigned blocks = cuda_blocks(pieces * strips, ADD / WARP);
	unsigned orders = hi < 0 ? cuda_blocks_most(k, n, ORDER_KEYS, 2)
				 : cuda_blocks((int64_t)hi - lo, ORDER_KEYS);
	char *room = (char *)cuda_scratch(k,
					  CUDA_ALIGN + (size_t)n * sizeof(int2) +
						  (size_t)(2 * pieces * c + 4) * sizeof(float),
					  "embed_bwd");
	if (!room)
		return;
	struct sorted in = { (int2 *)(room + CUDA_ALIGN), (int *)room };
	float *parts = (float *)(in.items + (n + 1) / 2 * 2);
	launch(k, "embed_bwd", order_kernel, orders, ORDER, 0, in, ids, n, lo, hi);
	launch(k, "embed_bwd", packs ? add_kernel<T, v> : add_kernel<T, 1>, blocks, ADD, 0, dw,
	       parts, dy, in, pieces, c, lo);
	launch(k, "embed_bwd", packs ? join_kernel<v> : join_kernel<1>, blocks, ADD, 0, dw, parts,
	       in, pieces, c, lo);
}

/* The most tokens that fit in the scratch: each takes its item, and its share of a piece's two
 * parts. */
static int64_t tokens_most(int64_t c)
{
	int64_t each = (int64_t)sizeof(int2) + 2 * c * (int64_t)sizeof(float) / PIECE + 1;
	return (CUDA_SCRATCH - 2 * CUDA_ALIGN) / each / PIECE * PIECE;
}

template <class T>
static void embed_bwd(struct backend *k, float *dwte, float *dwpe, const void *dyv,
		      const int32_t *tokens, const int32_t *positions, int64_t n, int64_t c,
		      int32_t lo, int32_t hi)
{
	const T *dy = (const T *)dyv;
	int64_t most = c > 0 ? tokens_most(c) : 0;
	for (int64_t i = 0; i < n && most > 0; i += most) {
		int64_t rows = n - i < most ? n - i : most;
		if (dwte && hi > lo)
			add_ids<T>(k, dwte, dy + i * c, tokens + i, rows, c, lo, hi);
		if (dwpe)
			add_ids<T>(k, dwpe, dy + i * c, positions + i, rows, c, 0, -1);
	}
}

template <class T> static void fill(struct ops *o)
{
	o->embed_fwd = embed_fwd<T>;
	o->embed_bwd = embed_bwd<T>;
}

CUDA_FILL(embed)
