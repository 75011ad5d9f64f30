/* Attention forward in fp32, for shapes that the tensor-core kernels do not support
 * (attention_any.cuh). A block has 64 queries of one head. */
#include "kernels/cuda/attention_any.cuh"

#include <math.h>

/* The running maximum and sum of the queries of this thread's rows; all 16 threads of a row have
 * the same. */
struct any_running {
	float max[EACH], sum[EACH];
};

static __device__ __forceinline__ float row_max(float x)
{
	for (int i = SPREAD / 2; i > 0; i /= 2)
		x = fmaxf(x, __shfl_xor_sync(WARP_ALL, x, i));
	return x;
}

static __device__ __forceinline__ float row_sum(float x)
{
	for (int i = SPREAD / 2; i > 0; i /= 2)
		x += __shfl_xor_sync(WARP_ALL, x, i);
	return x;
}

/* s becomes exp((s - max) scale) for keys that the query sees, and 0 for others. o and sum are
 * rescaled to the new maximum. */
template <int PIECES>
static __device__ void any_softmax_online(float (&s)[EACH][EACH], struct any_running *r,
					  float (&o)[PIECES][EACH][EACH],
					  const struct range (&seen)[EACH], int key0, float scale)
{
	#pragma unroll
	for (int i = 0; i < EACH; i++) {
		float max = r->max[i], sum = 0;
		#pragma unroll
		for (int j = 0; j < EACH; j++) {
			int key = key0 + any_column(j);
			s[i][j] = key >= seen[i].lo && key < seen[i].hi ? s[i][j] * scale
									: -INFINITY;
			max = fmaxf(max, s[i][j]);
		}
		max = row_max(max);
		float from = max == -INFINITY ? 0 : max, shrink = exp2f(r->max[i] - from);
		r->max[i] = max;
		#pragma unroll
		for (int j = 0; j < EACH; j++) {
			s[i][j] = exp2f(s[i][j] - from);
			sum += s[i][j];
		}
		r->sum[i] = r->sum[i] * shrink + row_sum(sum);
		#pragma unroll
		for (int p = 0; p < PIECES; p++)
			#pragma unroll
			for (int j = 0; j < EACH; j++)
				o[p][i][j] *= shrink;
	}
}

template <class T, int PIECES>
static __global__ void __launch_bounds__(ANY_THREADS) attention_fwd_any_kernel(struct attention a)
{
	__shared__ struct any_room room;
	__shared__ int ranges[2 * ANY_THREADS / WARP];
	const int tiles = (int)((a.s.q_len + EDGE - 1) / EDGE);
	const struct head at = head_of(a, a.first + blockIdx.x / tiles);
	const int64_t t0 = (int64_t)(tiles - 1 - (int)(blockIdx.x % tiles)) * EDGE;
	const struct rows<T> q = q_rows<T>(a, at), key = kv_rows<T>(a, at, a.key),
			     v = kv_rows<T>(a, at, a.v);
	float o[PIECES][EACH][EACH], s[EACH][EACH], by[EACH];
	struct any_running r;
	struct range seen[EACH], mine = { 0, 0 };
	any_clear(o);
	#pragma unroll
	for (int i = 0; i < EACH; i++) {
		r.max[i] = -INFINITY;
		r.sum[i] = 0;
		seen[i] = keys_seen(a, at.b, t0 + any_row(i));
		mine = join_ranges(mine, seen[i]);
	}
	const struct range all = block_range<ANY_THREADS / WARP>(mine, ranges);
	for (int key0 = all.lo; key0 < all.hi; key0 += EDGE) {
		any_scores(s, &room, q, t0, key, key0);
		any_softmax_online(s, &r, o, seen, key0, a.scale * LOG2E);
		#pragma unroll
		for (int i = 0; i < EACH; i++)
			#pragma unroll
			for (int j = 0; j < EACH; j++)
				s[i][j] *= any_keep(a, at.pair, t0 + any_row(i),
						    key0 + any_column(j));
		any_put_weights(&room, s);
		any_sum(o, a.s.q_len - t0, &room, v, key0);
	}
	#pragma unroll
	for (int i = 0; i < EACH; i++) {
		int64_t t = t0 + any_row(i);
		bool nothing = r.max[i] == -INFINITY && r.sum[i] == 0;
		by[i] = nothing ? 0 : 1 / r.sum[i];
		if (any_column(0) == 0 && t < a.s.q_len)
			a.lse[at.pair * a.s.q_len + t] =
				nothing ? -INFINITY : r.max[i] / LOG2E + logf(r.sum[i]);
	}
	any_put((T *)a.out + at.o, o_row(a), t0, a.s.q_len, a.s.dim, o, by, false);
}

template <class T, int PIECES> static void queue(struct backend *k, struct attention *a)
{
	unsigned blocks = attention_blocks(a->pairs, a->s.q_len, EDGE);
	launch(k, "attention_fwd", attention_fwd_any_kernel<T, PIECES>, blocks, ANY_THREADS, 0, *a);
}

void attention_fwd_any(struct backend *k, struct attention *a)
{
	ANY_CALL(queue, k, a)
}
