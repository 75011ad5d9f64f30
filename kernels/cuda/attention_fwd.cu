/*
 * Attention forward on tensor cores: FlashAttention-2's loop (Dao, arXiv 2307.08691, algorithm 1).
 *
 * A block has 128 queries of one head, 32 per warp; for masks and dropout, one per lane. It goes
 * over the keys that any of them sees, 64 at a time: S = q·kᵀ, its running maximum and sum, o +=
 * p·v with p in the storage type. Tiles of k and v are copied while the ones before them are used:
 * two stages, one barrier per tile. A warp skips tiles of which its queries see nothing, and
 * compares positions only where they see a part. Within a head, blocks of late queries come first,
 * since they see most keys. The blocks of a head are consecutive, so that its k and v stay in the
 * L2 cache.
 *
 * Shared memory: q takes 16 KiB and a stage 16 at D = 64, 32 and 32 at D = 128, and what the
 * queries see 1; 49 or 97 KiB in all. A multiprocessor holds two blocks on sm_80 (with one stage at
 * D = 128) and on sm_90. Registers are what is scarce: what a turn can compute again or read from
 * shared memory is not kept across it (thread_again), or ptxas spills at D = 128.
 * Registers: o takes D and S 64 per thread; 128 threads have at most 255 each. Work: 4 q_len k_len
 * dim heads FLOPs (half when causal). S and o of 128 queries and 64 keys are 4.2 MFLOP at D = 128,
 * or about 1650 cycles of a Hopper multiprocessor by mma.sync, for which 160 KiB are read from
 * shared memory (1280 cycles) and 32 KiB from L2. The limit is 60 % of the chip's peak, which only
 * wgmma reaches. Expected on an H200: 350 to 400 of 790 TFLOP/s.
 */
#include "kernels/cuda/attention_tile.cuh"
#include "kernels/cuda/attention_host.cuh"

enum { QUERIES = 128, KEYS = 64, WARPS = 4, THREADS = WARPS * WARP };

/* A query's running maximum of raw scores, and sum of weights. This lane has its part of the sums
 * of four queries. */
struct running {
	float max[2][2], sum[2][2];
};

/* Sets the scores of keys that a query does not see to -INFINITY. seen: what the warp's queries
 * see. */
static __device__ __forceinline__ void mask_scores(float (&s)[2][KEYS / 8][4],
						   const struct range *seen, int key0)
{
	int lane = lane_id();
	#pragma unroll
	for (int m = 0; m < 2; m++)
		#pragma unroll
		for (int i = 0; i < 2; i++) {
			const int lo = seen[lane / 4 + 8 * i + 16 * m].lo,
				  hi = seen[lane / 4 + 8 * i + 16 * m].hi;
			#pragma unroll
			for (int n = 0; n < KEYS / 8; n++)
				#pragma unroll
				for (int e = 0; e < 2; e++) {
					int key = key0 + 8 * n + 2 * (lane % 4) + e;
					if (key < lo || key >= hi)
						s[m][n][2 * i + e] = -INFINITY;
				}
		}
}

/* s becomes exp((s - max) scale). max and sum are updated, and o is rescaled to the new maximum. */
template <int D>
static __device__ __forceinline__ void softmax_online(float (&s)[2][KEYS / 8][4], struct running *r,
						      float (&o)[2][D / 8][4], float scale)
{
	#pragma unroll
	for (int m = 0; m < 2; m++)
		#pragma unroll
		for (int i = 0; i < 2; i++) {
			float max = r->max[m][i];
			#pragma unroll
			for (int n = 0; n < KEYS / 8; n++)
				max = fmaxf(max, fmaxf(s[m][n][2 * i], s[m][n][2 * i + 1]));
			max = fmaxf(max, __shfl_xor_sync(WARP_ALL, max, 1));
			max = fmaxf(max, __shfl_xor_sync(WARP_ALL, max, 2));
			float from = max == -INFINITY ? 0 : max * scale;
			float shrink = exp2_approx(r->max[m][i] * scale - from), sum = 0;
			r->max[m][i] = max;
			#pragma unroll
			for (int n = 0; n < KEYS / 8; n++)
				#pragma unroll
				for (int e = 0; e < 2; e++) {
					s[m][n][2 * i + e] =
						exp2_approx(fmaf(s[m][n][2 * i + e], scale, -from));
					sum += s[m][n][2 * i + e];
				}
			r->sum[m][i] = r->sum[m][i] * shrink + sum;
			#pragma unroll
			for (int n = 0; n < D / 8; n++) {
				o[m][n][2 * i] *= shrink;
				o[m][n][2 * i + 1] *= shrink;
			}
		}
}

/* Sets weights that dropout does not keep to 0. number: of the weight of this lane's query and the
 * tile's first key. */
static __device__ __forceinline__ void drop_weights(float (&s)[2][KEYS / 8][4],
						    const struct attention &a, uint64_t number)
{
	int lane = lane_id();
	uint32_t bits[2] = { kept_bits<32>(a, number), kept_bits<32>(a, number + 32) };
	#pragma unroll
	for (int m = 0; m < 2; m++)
		#pragma unroll
		for (int i = 0; i < 2; i++)
			#pragma unroll
			for (int n = 0; n < KEYS / 8; n++) {
				uint32_t row = __shfl_sync(WARP_ALL, bits[n / 4],
							   lane / 4 + 8 * i + 16 * m);
				row >>= 8 * (n % 4) + 2 * (lane % 4);
				s[m][n][2 * i] = row & 1 ? s[m][n][2 * i] : 0;
				s[m][n][2 * i + 1] = row & 2 ? s[m][n][2 * i + 1] : 0;
			}
}

/* Sets the warp's rows of o, from row t0 on, and their log-sum-exps. */
template <class T, int D>
static __device__ __forceinline__ void put_result(const struct attention &a, const struct head &at,
						  int64_t t0, const struct running *r,
						  const float (&o)[2][D / 8][4])
{
	float by[2][2];
	int lane = lane_id();
	#pragma unroll
	for (int m = 0; m < 2; m++)
		#pragma unroll
		for (int i = 0; i < 2; i++) {
			float sum = r->sum[m][i];
			sum += __shfl_xor_sync(WARP_ALL, sum, 1);
			sum += __shfl_xor_sync(WARP_ALL, sum, 2);
			bool nothing = r->max[m][i] == -INFINITY && sum == 0;
			by[m][i] = nothing ? 0 : a.keep / sum;
			int64_t t = t0 + 16 * m + 8 * i + lane / 4;
			if (lane % 4 == 0 && t < a.s.q_len)
				a.lse[at.pair * a.s.q_len + t] =
					nothing ? -INFINITY : r->max[m][i] * a.scale + logf(sum);
		}
	put_rows<T, D, 2>((T *)a.out + at.o, o_row(a), t0, a.s.q_len, a.s.dim, o, by, false);
}

template <class T, int D>
static __device__ __forceinline__ void copy_keys(T *stage, const struct attention &a,
						 const struct head &at, int key0)
{
	tile_copy<T, D, KEYS, THREADS>(stage, (const T *)a.key + at.kv, a.s.kv_row, key0, a.s.k_len,
				       a.s.dim);
	tile_copy<T, D, KEYS, THREADS>(stage + KEYS * D, (const T *)a.v + at.kv, a.s.kv_row, key0,
				       a.s.k_len, a.s.dim);
	cp_async_commit();
}

template <class T, int D>
static __global__ void __launch_bounds__(THREADS, 2) attention_fwd_kernel(struct attention a)
{
	__shared__ int room[2 * WARPS];
	/* in shared memory to save registers: the head, the block's first query, and the keys that
	 * each query sees */
	__shared__ struct head at;
	__shared__ int64_t t0;
	__shared__ struct range seen[QUERIES];
	T *q = dynamic_shared<T>(), *stages = q + QUERIES * D;
	const int tiles = (int)((a.s.q_len + QUERIES - 1) / QUERIES);
	const int64_t pair = a.first + blockIdx.x / tiles,
		      first = (int64_t)(tiles - 1 - (int)(blockIdx.x % tiles)) * QUERIES;
	if (threadIdx.x == 0) {
		at = head_of(a, pair);
		t0 = first;
	}
	const struct range mine = keys_seen(a, pair / a.s.heads, first + (int)threadIdx.x);
	seen[threadIdx.x] = mine;
	const struct range all = block_range<WARPS>(mine, room);
	float o[2][D / 8][4], s[2][KEYS / 8][4];
	struct running r;
	clear(o);
	for (int i = 0; i < 4; i++) {
		r.max[i / 2][i % 2] = -INFINITY;
		r.sum[i / 2][i % 2] = 0;
	}
	if (all.lo < all.hi) {
		tile_copy<T, D, QUERIES, THREADS>(q, (const T *)a.q + at.q, a.s.q_row, t0,
						  a.s.q_len, a.s.dim);
		copy_keys<T, D>(stages, a, at, all.lo);
	}
	int turn = 0;
	for (int key0 = all.lo; key0 < all.hi; key0 += KEYS, turn ^= 1) {
		T *stage = stages + (turn & (a.stages - 1)) * 2 * KEYS * D;
		cp_async_wait<0>();
		/* the tiles are complete, and no thread reads those of the previous turn */
		__syncthreads();
		if (a.stages == 2 && key0 + KEYS < all.hi)
			copy_keys<T, D>(stages + (turn ^ 1) * 2 * KEYS * D, a, at, key0 + KEYS);
		enum view view = warp_sees<KEYS>(seen[thread_again()],
						 t0 + thread_again() < a.s.q_len, key0);
		if (view != SEES_NOTHING) {
			score_product<T, D, 2, KEYS / 8>(s, q, warp_id() * WARP, stage, 0);
			if (view == SEES_SOME)
				mask_scores(s, seen + warp_id() * WARP, key0);
			softmax_online<D>(s, &r, o, a.scale * LOG2E);
			if (a.threshold)
				drop_weights(s, a,
					     weight_number(a, at.pair, t0 + thread_again(), key0));
			weighted_sum<T, D, 2, KEYS / 8>(o, s, stage + KEYS * D, 0);
		}
		if (a.stages == 1) {
			__syncthreads();
			if (key0 + KEYS < all.hi)
				copy_keys<T, D>(stages, a, at, key0 + KEYS);
		}
	}
	put_result<T, D>(a, at, t0 + warp_id() * WARP, &r, o);
}

template <class T, int D> static void queue(struct backend *k, struct attention *a)
{
	const size_t fixed = QUERIES * D * sizeof(T), stage = 2 * KEYS * D * sizeof(T);
	a->stages = attention_stages(k, fixed, stage);
	launch(k, "attention_fwd", attention_fwd_kernel<T, D>,
	       attention_blocks(a->pairs, a->s.q_len, QUERIES), THREADS,
	       fixed + (size_t)a->stages * stage, *a);
}

void attention_fwd_tiles(struct backend *k, struct attention *a)
{
	bool wide = a->s.dim > 64;
	if (cuda_of(k)->storage == STORE_BF16)
		wide ? queue<__nv_bfloat16, 128>(k, a) : queue<__nv_bfloat16, 64>(k, a);
	else
		wide ? queue<__half, 128>(k, a) : queue<__half, 64>(k, a);
}
