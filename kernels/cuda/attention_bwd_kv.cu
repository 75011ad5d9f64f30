/*
 * Attention's gradients of keys and values on tensor cores; attention_bwd_q.cu has the gradient of
 * the queries.
 *
 * A block has 128 keys of one k/v head. It goes over the queries that see any of them, of all heads
 * that share the k/v head, one head after the other. Everything is transposed: keys are rows and
 * queries are columns, so that a warp keeps its weights in registers:
 *     pᵀ = exp(k·qᵀ scale - lse), dv += (m p)ᵀ·dout, dsᵀ = pᵀ (m v·doutᵀ - delta), dk += dsᵀ·q, at
 *     the end times scale.
 * For masks and dropout, a lane is one of 32 queries. At D = 64, 4 warps have 32 keys each; at
 * D = 128, 8 warps have 16 each, since dk and dv take 2 D rows / 32 registers. Tiles of q and dout,
 * with lse, delta and the keys that each query sees, come in stages of 64 queries (D = 64) or 32
 * (D = 128). Within a head, blocks of early keys come first, since most queries see them.
 *
 * Shared memory: k and v take 32 KiB (D = 64) or 64, a stage 17; 66 or 97 KiB in all. Registers: dk
 * and dv take 128, S and dP 64 (32 at D = 128). A multiprocessor holds 2 blocks of 128 threads, or
 * 1 of 256. Work: 8 q_len k_len dim heads FLOPs (half when causal). 128 keys and 32 queries at D =
 * 128 are 4.2 MFLOP, or 1650 cycles of a Hopper multiprocessor by mma.sync, for which 288 KiB are
 * read from shared memory (2300 cycles). Expected on an H200: about 250 to 300 of 790 TFLOP/s, 350
 * at D = 64.
 */
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/attention_host.cuh"

enum { KEYS = 128, STEP = 32 };

template <int D> constexpr int stage_queries = D == 64 ? 64 : 32;
/* tiles of 16 keys per warp */
template <int D> constexpr int row_tiles = D == 64 ? 2 : 1;
template <int D> constexpr int block_threads = KEYS / (16 * row_tiles<D>)*WARP;

/* The queries of a block: those from t0 on of heads pair0, pair0 + 1, …, in `each` stages per head
 * and `all` stages in all. */
struct course {
	int64_t pair0, t0;
	int each, all;
};

/* One more than the last query from `from` on that sees any of the block's keys. Every thread gets
 * it. */
template <int WARPS>
static __device__ __forceinline__ int64_t last_query(const struct attention &a, int64_t b, int key0,
						     int64_t from, int *room)
{
	if (!a.s.starts)
		return a.s.q_len;
	struct range mine = { 0, 0 };
	for (int64_t t = from + threadIdx.x; t < a.s.q_len; t += WARPS * WARP) {
		struct range seen = keys_seen(a, b, t);
		if (seen.lo < seen.hi && seen.lo < key0 + KEYS)
			mine.hi = (int)(t + 1 - from);
	}
	return from + block_range<WARPS>(mine, room).hi;
}

template <int WARPS>
static __device__ __forceinline__ struct course course_of(const struct attention &a, int64_t group,
							  int key0, int queries, int *room)
{
	struct course c;
	const int heads = a.s.heads / a.s.kv_heads;
	c.pair0 = a.first + group * heads;
	c.t0 = a.s.k_first + key0 - a.s.q_first;
	c.t0 = c.t0 < 0 ? 0 : c.t0;
	int64_t end = last_query<WARPS>(a, c.pair0 / a.s.heads, key0, c.t0, room);
	c.each = end > c.t0 ? (int)((end - c.t0 + queries - 1) / queries) : 0;
	c.all = heads * c.each;
	return c;
}

/* A stage: rows of q, rows of dout, and the queries. */
template <class T, int D>
constexpr int stage_bytes =
	2 * stage_queries<D> *D *(int)sizeof(T) + stage_queries<D> *(int)sizeof(struct query);

template <class T, int D>
static __device__ __forceinline__ void copy_queries(unsigned char *stage, const struct attention &a,
						    const struct course &c, int turn)
{
	constexpr int QUERIES = stage_queries<D>, THREADS = block_threads<D>;
	const struct head at = head_of(a, c.pair0 + turn / c.each);
	const int64_t t0 = c.t0 + (int64_t)(turn % c.each) * QUERIES, t = t0 + (int)threadIdx.x;
	T *q = (T *)stage, *dout = q + QUERIES * D;
	tile_copy<T, D, QUERIES, THREADS>(q, (const T *)a.q + at.q, a.s.q_row, t0, a.s.q_len,
					  a.s.dim);
	tile_copy<T, D, QUERIES, THREADS>(dout, (const T *)a.dout + at.o, o_row(a), t0, a.s.q_len,
					  a.s.dim);
	if (threadIdx.x < QUERIES) {
		const struct query *from = a.queries + (at.pair - a.first) * a.s.q_len;
		struct query *to = (struct query *)(dout + QUERIES * D) + threadIdx.x;
		cp_async16_zfill(to, t < a.s.q_len ? from + t : from, t < a.s.q_len);
	}
	cp_async_commit();
}

/* s becomes the weights; 0 where a query does not see the key. column: the first query; key0: the
 * warp's first key. */
template <int M>
static __device__ __forceinline__ void softmax_bwd(float (&s)[M][STEP / 8][4],
						   const struct query *column, int key0, bool part,
						   float scale)
{
	int lane = lane_id();
	#pragma unroll
	for (int n = 0; n < STEP / 8; n++)
		#pragma unroll
		for (int e = 0; e < 2; e++) {
			const struct query *to = &column[8 * n + 2 * (lane % 4) + e];
			float lse = to->lse;
			struct range seen = to->seen;
			#pragma unroll
			for (int m = 0; m < M; m++)
				#pragma unroll
				for (int i = 0; i < 2; i++) {
					int key = key0 + lane / 4 + 8 * i + 16 * m;
					float w =
						exp2_approx(fmaf(s[m][n][2 * i + e], scale, -lse));
					s[m][n][2 * i + e] =
						part && (key < seen.lo || key >= seen.hi) ? 0 : w;
				}
		}
}

/* w = s where dropout keeps the weight, otherwise 0. kept belongs to the query of this lane's
 * column. */
template <int M>
static __device__ __forceinline__ void kept_weights(float (&w)[M][STEP / 8][4],
						    const float (&s)[M][STEP / 8][4], uint32_t kept)
{
	int lane = lane_id();
	#pragma unroll
	for (int n = 0; n < STEP / 8; n++)
		#pragma unroll
		for (int e = 0; e < 2; e++) {
			uint32_t column = __shfl_sync(WARP_ALL, kept, 8 * n + 2 * (lane % 4) + e) >>
					  (lane / 4);
			#pragma unroll
			for (int m = 0; m < M; m++)
				#pragma unroll
				for (int i = 0; i < 2; i++)
					w[m][n][2 * i + e] = column >> (8 * i + 16 * m) & 1
								     ? s[m][n][2 * i + e]
								     : 0;
		}
}

/* s = s (m dp - delta). */
template <int M>
static __device__ __forceinline__ void score_gradient(float (&s)[M][STEP / 8][4],
						      const float (&dp)[M][STEP / 8][4],
						      const struct query *column, uint32_t kept,
						      float keep)
{
	int lane = lane_id();
	#pragma unroll
	for (int n = 0; n < STEP / 8; n++)
		#pragma unroll
		for (int e = 0; e < 2; e++) {
			float delta = column[8 * n + 2 * (lane % 4) + e].delta;
			uint32_t bits = __shfl_sync(WARP_ALL, kept, 8 * n + 2 * (lane % 4) + e) >>
					(lane / 4);
			#pragma unroll
			for (int m = 0; m < M; m++)
				#pragma unroll
				for (int i = 0; i < 2; i++) {
					float d = bits >> (8 * i + 16 * m) & 1
							  ? dp[m][n][2 * i + e] * keep
							  : 0;
					s[m][n][2 * i + e] *= d - delta;
				}
		}
}

template <class T, int D>
static __global__ void __launch_bounds__(block_threads<D>, D == 64 ? 2 : 1)
	attention_bwd_kv_kernel(struct attention a)
{
	constexpr int M = row_tiles<D>, THREADS = block_threads<D>, QUERIES = stage_queries<D>,
		      BYTES = stage_bytes<T, D>;
	__shared__ int room[2 * THREADS / WARP];
	T *key = dynamic_shared<T>(), *v = key + KEYS * D;
	unsigned char *stages = (unsigned char *)(v + KEYS * D);
	const int tiles = (int)((a.s.k_len + KEYS - 1) / KEYS);
	const int64_t group = blockIdx.x / tiles;
	const int key0 = (int)(blockIdx.x % tiles) * KEYS, row0 = warp_id() * 16 * M;
	const struct course found = course_of<THREADS / WARP>(a, group, key0, QUERIES, room);
	__shared__ struct course c; /* in shared memory to save registers */
	if (threadIdx.x == 0)
		c = found;
	__syncthreads();
	float dk[M][D / 8][4], dv[M][D / 8][4];
	clear(dk);
	clear(dv);
	if (c.all) {
		const int64_t kv = head_of(a, c.pair0).kv;
		tile_copy<T, D, KEYS, THREADS>(key, (const T *)a.key + kv, a.s.kv_row, key0,
					       a.s.k_len, a.s.dim);
		tile_copy<T, D, KEYS, THREADS>(v, (const T *)a.v + kv, a.s.kv_row, key0, a.s.k_len,
					       a.s.dim);
		copy_queries<T, D>(stages, a, c, 0);
	}
	for (int turn = 0; turn < c.all; turn++) {
		const T *q = (const T *)(stages + (turn & (a.stages - 1)) * BYTES),
			*dout = q + QUERIES * D;
		cp_async_wait<0>();
		/* the tiles are complete, and no thread reads those of the previous turn */
		__syncthreads();
		if (a.stages == 2 && turn + 1 < c.all)
			copy_queries<T, D>(stages + ((turn & 1) ^ 1) * BYTES, a, c, turn + 1);
		#pragma unroll 1
		for (int at0 = 0; at0 < QUERIES; at0 += STEP) {
			const struct query *column = (const struct query *)(dout + QUERIES * D) +
						     at0;
			enum view view = warp_sees<16 * M>(column[lane_id()].seen, true,
							   key0 + row0);
			if (view == SEES_NOTHING)
				continue;
			float s[M][STEP / 8][4], other[M][STEP / 8][4];
			uint32_t kept = ~0u;
			score_product<T, D, M, STEP / 8>(s, key, row0, q, at0);
			softmax_bwd(s, column, key0 + row0, view == SEES_SOME, a.scale * LOG2E);
			if (a.threshold) {
				int64_t t = c.t0 + (int64_t)(turn % c.each) * QUERIES + at0 +
					    lane_id();
				kept = kept_bits<16 * M>(a,
							 weight_number(a, c.pair0 + turn / c.each,
								       t, key0 + row0));
				kept_weights(other, s, kept);
				weighted_sum<T, D, M, STEP / 8>(dv, other, dout, at0);
			} else {
				weighted_sum<T, D, M, STEP / 8>(dv, s, dout, at0);
			}
			score_product<T, D, M, STEP / 8>(other, v, row0, dout, at0);
			score_gradient(s, other, column, kept, a.keep);
			weighted_sum<T, D, M, STEP / 8>(dk, s, q, at0);
		}
		if (a.stages == 1) {
			__syncthreads();
			if (turn + 1 < c.all)
				copy_queries<T, D>(stages, a, c, turn + 1);
		}
	}
	const int64_t kv = head_of(a, c.pair0).kv;
	float by_k[M][2], by_v[M][2];
	for (int i = 0; i < 2 * M; i++) {
		by_k[i / 2][i % 2] = a.scale;
		by_v[i / 2][i % 2] = a.keep;
	}
	put_rows<T, D, M>((T *)a.dk + kv, a.s.kv_row, key0 + row0, a.s.k_len, a.s.dim, dk, by_k,
			  a.add);
	put_rows<T, D, M>((T *)a.dv + kv, a.s.kv_row, key0 + row0, a.s.k_len, a.s.dim, dv, by_v,
			  a.add);
}

template <class T, int D> static void queue(struct backend *k, struct attention *a)
{
	const size_t fixed = 2 * KEYS * D * sizeof(T), stage = stage_bytes<T, D>;
	a->stages = D == 64 ? attention_stages(k, fixed, stage) : 2;
	launch(k, "attention_bwd", attention_bwd_kv_kernel<T, D>,
	       attention_blocks(a->pairs / (a->s.heads / a->s.kv_heads), a->s.k_len, KEYS),
	       block_threads<D>, fixed + (size_t)a->stages * stage, *a);
}

void attention_bwd_kv_tiles(struct backend *k, struct attention *a)
{
	bool wide = a->s.dim > 64;
	if (cuda_of(k)->storage == STORE_BF16)
		wide ? queue<__nv_bfloat16, 128>(k, a) : queue<__nv_bfloat16, 64>(k, a);
	else
		wide ? queue<__half, 128>(k, a) : queue<__half, 64>(k, a);
}
