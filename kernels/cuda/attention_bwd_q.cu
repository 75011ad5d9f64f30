/*
 * Attention's gradient of the queries on tensor cores; attention_bwd_kv.cu has those of keys and
 * values. Each computes the scores again and sums in its own order. So several blocks never add to
 * the same memory, and the bits are the same every time. This takes 7 products, where a kernel that
 * adds dq atomically takes 5 (Dao, arXiv 2307.08691, algorithm 2).
 *
 * A block has 128 queries of one head, 32 per warp; for masks and dropout, one per lane. It goes
 * over the keys that any of them sees, 32 at a time:
 *     p = exp(q·kᵀ scale - lse), ds = p (m dout·vᵀ - delta), dq += ds·k, at the end times scale.
 * Tiles of k and v come in stages of 64 keys (D = 64) or 32 (D = 128). A stage is copied while the
 * one before it is used.
 *
 * Shared memory: q and dout take 32 KiB (D = 64) or 64, a stage 16; 64 or 96 KiB in all. Registers:
 * dq takes D, S and dP 32 each; 128 threads have at most 255 each. A multiprocessor holds two
 * blocks (D = 128: one with 2 stages if it has less than 196 KiB of shared memory). Work: 6 q_len
 * k_len dim heads FLOPs (half when causal). 128 queries and 32 keys at D = 128 are 3.1 MFLOP, or
 * 1240 cycles of a Hopper multiprocessor by mma.sync, for which 160 KiB are read from shared memory
 * (1280 cycles). Expected on an H200: about 350 of 790 TFLOP/s.
 */
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/attention_host.cuh"

enum { QUERIES = 128, STEP = 32, WARPS = 4, THREADS = WARPS * WARP };

template <int D> constexpr int stage_keys = D == 64 ? 64 : 32;

/* s becomes the weights; 0 where a query does not see the key. */
static __device__ __forceinline__ void softmax_bwd(float (&s)[2][STEP / 8][4],
						   const struct query &mine, int key0, bool part,
						   float scale)
{
	int lane = lane_id();
	#pragma unroll
	for (int m = 0; m < 2; m++)
		#pragma unroll
		for (int i = 0; i < 2; i++) {
			int from = lane / 4 + 8 * i + 16 * m;
			float lse = __shfl_sync(WARP_ALL, mine.lse, from);
			#pragma unroll
			for (int n = 0; n < STEP / 8; n++)
				#pragma unroll
				for (int e = 0; e < 2; e++)
					s[m][n][2 * i + e] =
						exp2_approx(fmaf(s[m][n][2 * i + e], scale, -lse));
			if (!part)
				continue;
			int lo = __shfl_sync(WARP_ALL, mine.seen.lo, from),
			    hi = __shfl_sync(WARP_ALL, mine.seen.hi, from);
			#pragma unroll
			for (int n = 0; n < STEP / 8; n++)
				#pragma unroll
				for (int e = 0; e < 2; e++) {
					int key = key0 + 8 * n + 2 * (lane % 4) + e;
					if (key < lo || key >= hi)
						s[m][n][2 * i + e] = 0;
				}
		}
}

/* s = s (m dp - delta). kept: the weights of this lane's query that dropout keeps. */
static __device__ __forceinline__ void score_gradient(float (&s)[2][STEP / 8][4],
						      const float (&dp)[2][STEP / 8][4],
						      const struct query &mine, uint32_t kept,
						      float keep)
{
	int lane = lane_id();
	#pragma unroll
	for (int m = 0; m < 2; m++)
		#pragma unroll
		for (int i = 0; i < 2; i++) {
			int from = lane / 4 + 8 * i + 16 * m;
			float delta = __shfl_sync(WARP_ALL, mine.delta, from);
			uint32_t row = __shfl_sync(WARP_ALL, kept, from) >> (2 * (lane % 4));
			#pragma unroll
			for (int n = 0; n < STEP / 8; n++)
				#pragma unroll
				for (int e = 0; e < 2; e++) {
					float d = row >> (8 * n + e) & 1
							  ? dp[m][n][2 * i + e] * keep
							  : 0;
					s[m][n][2 * i + e] *= d - delta;
				}
		}
}

template <class T, int D>
static __device__ __forceinline__ void copy_keys(T *stage, const struct attention &a,
						 const struct head &at, int key0)
{
	constexpr int KEYS = stage_keys<D>;
	tile_copy<T, D, KEYS, THREADS>(stage, (const T *)a.key + at.kv, a.s.kv_row, key0, a.s.k_len,
				       a.s.dim);
	tile_copy<T, D, KEYS, THREADS>(stage + KEYS * D, (const T *)a.v + at.kv, a.s.kv_row, key0,
				       a.s.k_len, a.s.dim);
	cp_async_commit();
}

template <class T, int D>
static __global__ void __launch_bounds__(THREADS, 2) attention_bwd_q_kernel(struct attention a)
{
	constexpr int KEYS = stage_keys<D>;
	__shared__ int room[2 * WARPS];
	__shared__ struct head at; /* in shared memory to save registers */
	T *q = dynamic_shared<T>(), *dout = q + QUERIES * D, *stages = dout + QUERIES * D;
	const int tiles = (int)((a.s.q_len + QUERIES - 1) / QUERIES);
	const int64_t pair = a.first + blockIdx.x / tiles,
		      tile0 = (int64_t)(tiles - 1 - (int)(blockIdx.x % tiles)) * QUERIES;
	const int64_t t = tile0 + (int)threadIdx.x;
	const struct query none = {}, mine = t < a.s.q_len
						     ? a.queries[(pair - a.first) * a.s.q_len + t]
						     : none;
	if (threadIdx.x == 0)
		at = head_of(a, pair);
	const struct range all = block_range<WARPS>(mine.seen, room);
	float dq[2][D / 8][4];
	clear(dq);
	if (all.lo < all.hi) {
		tile_copy<T, D, QUERIES, THREADS>(q, (const T *)a.q + at.q, a.s.q_row, tile0,
						  a.s.q_len, a.s.dim);
		tile_copy<T, D, QUERIES, THREADS>(dout, (const T *)a.dout + at.o, o_row(a), tile0,
						  a.s.q_len, a.s.dim);
		copy_keys<T, D>(stages, a, at, all.lo);
	}
	int turn = 0;
	for (int key0 = all.lo; key0 < all.hi; key0 += KEYS, turn ^= 1) {
		const T *stage = stages + (turn & (a.stages - 1)) * 2 * KEYS * D;
		cp_async_wait<0>();
		/* the tiles are complete, and no thread reads those of the previous turn */
		__syncthreads();
		if (a.stages == 2 && key0 + KEYS < all.hi)
			copy_keys<T, D>(stages + (turn ^ 1) * 2 * KEYS * D, a, at, key0 + KEYS);
		#pragma unroll 1
		for (int at0 = 0; at0 < KEYS; at0 += STEP) {
			enum view view = warp_sees<STEP>(mine.seen, t < a.s.q_len, key0 + at0);
			if (view == SEES_NOTHING)
				continue;
			float s[2][STEP / 8][4], dp[2][STEP / 8][4];
			score_product<T, D, 2, STEP / 8>(s, q, warp_id() * WARP, stage, at0);
			softmax_bwd(s, mine, key0 + at0, view == SEES_SOME, a.scale * LOG2E);
			score_product<T, D, 2, STEP / 8>(dp, dout, warp_id() * WARP,
							 stage + KEYS * D, at0);
			uint32_t kept = ~0u;
			if (a.threshold)
				kept = kept_bits<STEP>(a, weight_number(a, pair, t, key0 + at0));
			score_gradient(s, dp, mine, kept, a.keep);
			weighted_sum<T, D, 2, STEP / 8>(dq, s, stage, at0);
		}
		if (a.stages == 1) {
			__syncthreads();
			if (key0 + KEYS < all.hi)
				copy_keys<T, D>(stages, a, at, key0 + KEYS);
		}
	}
	const float by[2][2] = { { a.scale, a.scale }, { a.scale, a.scale } };
	put_rows<T, D, 2>((T *)a.dq + at.q, a.s.q_row, tile0 + warp_id() * WARP, a.s.q_len, a.s.dim,
			  dq, by, a.add);
}

template <class T, int D> static void queue(struct backend *k, struct attention *a)
{
	const size_t fixed = 2 * QUERIES * D * sizeof(T), stage = 2 * stage_keys<D> * D * sizeof(T);
	a->stages = attention_stages(k, fixed, stage);
	launch(k, "attention_bwd", attention_bwd_q_kernel<T, D>,
	       attention_blocks(a->pairs, a->s.q_len, QUERIES), THREADS,
	       fixed + (size_t)a->stages * stage, *a);
}

void attention_bwd_q_tiles(struct backend *k, struct attention *a)
{
	bool wide = a->s.dim > 64;
	if (cuda_of(k)->storage == STORE_BF16)
		wide ? queue<__nv_bfloat16, 128>(k, a) : queue<__nv_bfloat16, 64>(k, a);
	else
		wide ? queue<__half, 128>(k, a) : queue<__half, 64>(k, a);
}
