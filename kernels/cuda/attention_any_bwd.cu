/*
 * Attention backward in fp32, for shapes that the tensor-core kernels do not support.
 * attention_any.cuh describes the tiles; attention_bwd_q.cu and attention_bwd_kv.cu have the
 * formulas. A block has 64 queries of one head, or 64 keys of one k/v head.
 */
#include "kernels/cuda/attention_any.cuh"

#include <math.h>

/* The weight of a score: exp(s scale - lse) if the query sees the key, otherwise 0. */
static __device__ __forceinline__ float any_weight(float s, float scale, const struct query &of,
						   int64_t key)
{
	return key >= of.seen.lo && key < of.seen.hi ? exp2f(s * scale - of.lse) : 0;
}

static __device__ __forceinline__ struct query query_of(const struct attention &a, int64_t pair,
							int64_t t)
{
	const struct query none = { 0, 0, { 0, 0 } };
	return t < a.s.q_len ? a.queries[(pair - a.first) * a.s.q_len + t] : none;
}

template <class T, int PIECES>
static __global__ void __launch_bounds__(ANY_THREADS) attention_bwd_q_any_kernel(struct attention a)
{
	__shared__ struct any_room room;
	__shared__ int ranges[2 * ANY_THREADS / WARP];
	const int tiles = (int)((a.s.q_len + EDGE - 1) / EDGE);
	const struct head at = head_of(a, a.first + blockIdx.x / tiles);
	const int64_t t0 = (int64_t)(tiles - 1 - (int)(blockIdx.x % tiles)) * EDGE;
	const struct rows<T> q = q_rows<T>(a, at), dout = dout_rows<T>(a, at);
	const struct rows<T> key = kv_rows<T>(a, at, a.key), v = kv_rows<T>(a, at, a.v);
	float dq[PIECES][EACH][EACH], s[EACH][EACH], dp[EACH][EACH], by[EACH];
	struct query of[EACH];
	struct range mine = { 0, 0 };
	any_clear(dq);
	#pragma unroll
	for (int i = 0; i < EACH; i++) {
		of[i] = query_of(a, at.pair, t0 + any_row(i));
		mine = join_ranges(mine, of[i].seen);
		by[i] = a.scale;
	}
	const struct range all = block_range<ANY_THREADS / WARP>(mine, ranges);
	for (int key0 = all.lo; key0 < all.hi; key0 += EDGE) {
		any_scores(s, &room, q, t0, key, key0);
		any_scores(dp, &room, dout, t0, v, key0);
		#pragma unroll
		for (int i = 0; i < EACH; i++)
			#pragma unroll
			for (int j = 0; j < EACH; j++) {
				int64_t t = t0 + any_row(i), u = key0 + any_column(j);
				float keep = any_keep(a, at.pair, t, u);
				s[i][j] = any_weight(s[i][j], a.scale * LOG2E, of[i], u) *
					  (keep * dp[i][j] - of[i].delta);
			}
		any_put_weights(&room, s);
		any_sum(dq, a.s.q_len - t0, &room, key, key0);
	}
	any_put((T *)a.dq + at.q, a.s.q_row, t0, a.s.q_len, a.s.dim, dq, by, a.add);
}

/* Adds one head's part to the sums of a k/v head's keys. */
template <class T, int PIECES>
static __device__ void any_head(float (&dk)[PIECES][EACH][EACH], float (&dv)[PIECES][EACH][EACH],
				struct any_room *room, const struct attention &a,
				const struct head &at, int key0)
{
	const struct rows<T> q = q_rows<T>(a, at), dout = dout_rows<T>(a, at);
	const struct rows<T> key = kv_rows<T>(a, at, a.key), v = kv_rows<T>(a, at, a.v);
	float s[EACH][EACH], dp[EACH][EACH], w[EACH][EACH];
	int64_t first = a.s.k_first + key0 - a.s.q_first;
	for (int64_t t0 = first < 0 ? 0 : first; t0 < a.s.q_len; t0 += EDGE) {
		struct query of[EACH];
		bool some = false;
		#pragma unroll
		for (int j = 0; j < EACH; j++) {
			of[j] = query_of(a, at.pair, t0 + any_column(j));
			some |= of[j].seen.lo < key0 + EDGE && of[j].seen.hi > key0;
		}
		if (!__any_sync(WARP_ALL, some))
			continue; /* each warp has all queries of the tile, so all skip it */
		any_scores(s, room, key, key0, q, t0);
		any_scores(dp, room, v, key0, dout, t0);
		#pragma unroll
		for (int i = 0; i < EACH; i++)
			#pragma unroll
			for (int j = 0; j < EACH; j++) {
				int64_t t = t0 + any_column(j), u = key0 + any_row(i);
				float keep = any_keep(a, at.pair, t, u),
				      p = any_weight(s[i][j], a.scale * LOG2E, of[j], u);
				w[i][j] = p * keep;
				s[i][j] = p * (keep * dp[i][j] - of[j].delta);
			}
		any_put_weights(room, w);
		any_sum(dv, a.s.k_len - key0, room, dout, t0);
		any_put_weights(room, s);
		any_sum(dk, a.s.k_len - key0, room, q, t0);
	}
}

template <class T, int PIECES>
static __global__ void __launch_bounds__(ANY_THREADS)
	attention_bwd_kv_any_kernel(struct attention a)
{
	__shared__ struct any_room room;
	const int tiles = (int)((a.s.k_len + EDGE - 1) / EDGE), heads = a.s.heads / a.s.kv_heads;
	const int64_t pair = a.first + (int64_t)(blockIdx.x / tiles) * heads;
	const int key0 = (int)(blockIdx.x % tiles) * EDGE;
	const struct head at = head_of(a, pair);
	float dk[PIECES][EACH][EACH], dv[PIECES][EACH][EACH];
	any_clear(dk);
	any_clear(dv);
	for (int h = 0; h < heads; h++)
		any_head<T, PIECES>(dk, dv, &room, a, head_of(a, pair + h), key0);
	const float by_k[EACH] = { a.scale, a.scale, a.scale, a.scale },
		    by_v[EACH] = { 1, 1, 1, 1 };
	any_put((T *)a.dk + at.kv, a.s.kv_row, key0, a.s.k_len, a.s.dim, dk, by_k, a.add);
	any_put((T *)a.dv + at.kv, a.s.kv_row, key0, a.s.k_len, a.s.dim, dv, by_v, a.add);
}

template <class T, int PIECES> static void queue(struct backend *k, struct attention *a)
{
	unsigned q_blocks = attention_blocks(a->pairs, a->s.q_len, EDGE);
	unsigned kv_blocks = attention_blocks(a->pairs / (a->s.heads / a->s.kv_heads), a->s.k_len,
					      EDGE);
	launch(k, "attention_bwd", attention_bwd_q_any_kernel<T, PIECES>, q_blocks, ANY_THREADS, 0,
	       *a);
	launch(k, "attention_bwd", attention_bwd_kv_any_kernel<T, PIECES>, kv_blocks, ANY_THREADS,
	       0, *a);
}

void attention_bwd_any(struct backend *k, struct attention *a)
{
	ANY_CALL(queue, k, a)
}
