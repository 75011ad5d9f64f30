/*
 * Attention by muster's own kernels: the choice of kernels for a shape, the backward pass's data of
 * each query, and the merge of two results. attention_choose.h has the choice between these and
 * cuDNN's.
 *
 * The passes over rows of o (8 threads per row, 16 bytes each where rows allow) are bound by memory
 * bandwidth. That of the backward pass reads o and dout once; the merge reads two rows and writes
 * one. They use 40 to 64 registers and no shared memory.
 *
 * The backward pass keeps 16 bytes per query and head in the scratch, and splits its heads into
 * pieces that fit there. One group of heads that share a k/v head must fit (4 Mi queries).
 */
#include "kernels/cuda/attention_choose.h"
#include "kernels/cuda/attention_host.cuh"

#include <math.h>

enum { ROW_THREADS = 256, PER_ROW = 8, ROWS = ROW_THREADS / PER_ROW };

/* A row of o: query t of pair first + `piece`, and this thread's first element of it. */
struct o_place {
	int64_t piece, t, at;
	bool there;
};

static __device__ __forceinline__ struct o_place o_place_of(const struct attention &a)
{
	struct o_place p;
	int64_t row = (int64_t)blockIdx.x * ROWS + threadIdx.x / PER_ROW;
	p.there = row < a.pairs * a.s.q_len;
	p.piece = p.there ? row / a.s.q_len : 0;
	p.t = p.there ? row % a.s.q_len : 0;
	p.at = head_of(a, a.first + p.piece).o + p.t * o_row(a);
	return p;
}

static __device__ __forceinline__ float sum_of_row(float x)
{
	for (int i = PER_ROW / 2; i > 0; i /= 2)
		x += __shfl_xor_sync(WARP_ALL, x, i);
	return x;
}

template <class T, int V>
static __global__ void __launch_bounds__(ROW_THREADS) attention_queries_kernel(struct attention a)
{
	const struct o_place p = o_place_of(a);
	const int64_t pair = a.first + p.piece;
	float sum = 0;
	for (int i = (int)threadIdx.x % PER_ROW * V; i < a.s.dim; i += PER_ROW * V) {
		float o[V], dout[V];
		load<V>(o, (const T *)a.o + p.at + i);
		load<V>(dout, (const T *)a.dout + p.at + i);
		for (int j = 0; j < V; j++)
			sum = fmaf(o[j], dout[j], sum);
	}
	sum = sum_of_row(sum);
	if (threadIdx.x % PER_ROW || !p.there)
		return;
	struct query q = { a.lse[pair * a.s.q_len + p.t] * LOG2E, sum,
			   keys_seen(a, pair / a.s.heads, p.t) };
	a.queries[p.piece * a.s.q_len + p.t] = q;
}

template <class T, int V>
static __global__ void __launch_bounds__(ROW_THREADS)
	attention_merge_kernel(struct attention a, const void *o2, const float *lse2)
{
	const struct o_place p = o_place_of(a);
	const int64_t at = (a.first + p.piece) * a.s.q_len + p.t;
	const float one = p.there ? a.lse[at] : 0, two = p.there ? lse2[at] : 0,
		    max = fmaxf(one, two);
	const float sum = expf(one - max) + expf(two - max), by = expf(one - max) / sum,
		    by2 = expf(two - max) / sum;
	__syncwarp(); /* the row's 8 threads have read its lse */
	if (max == -INFINITY || !p.there)
		return; /* neither result saw a key */
	for (int i = (int)threadIdx.x % PER_ROW * V; i < a.s.dim; i += PER_ROW * V) {
		float x[V], y[V];
		load<V>(x, (const T *)a.out + p.at + i);
		load<V>(y, (const T *)o2 + p.at + i);
		for (int j = 0; j < V; j++)
			x[j] = by * x[j] + by2 * y[j];
		store<V>((T *)a.out + p.at + i, x);
	}
	if (threadIdx.x % PER_ROW == 0)
		a.lse[at] = max + logf(sum);
}

static bool rows_fit(const struct attention &a, const void *p, int64_t batch, size_t width)
{
	return cuda_aligned(p, batch, width) && cuda_aligned(NULL, a.s.dim, width);
}

template <class T> static void queue_queries(struct backend *k, const struct attention &a)
{
	bool whole = rows_fit(a, a.o, a.s.o_batch, sizeof(T)) &&
		     rows_fit(a, a.dout, a.s.o_batch, sizeof(T));
	launch(k, "attention_bwd",
	       whole ? attention_queries_kernel<T, pack_of<T>> : attention_queries_kernel<T, 1>,
	       cuda_blocks(a.pairs * a.s.q_len, ROWS), ROW_THREADS, 0, a);
}

template <class T>
static void queue_merge(struct backend *k, const struct attention &a, const void *o2,
			const float *lse2)
{
	bool whole = rows_fit(a, a.out, a.s.o_batch, sizeof(T)) &&
		     rows_fit(a, o2, a.s.o_batch, sizeof(T));
	launch(k, "attention_merge",
	       whole ? attention_merge_kernel<T, pack_of<T>> : attention_merge_kernel<T, 1>,
	       cuda_blocks(a.pairs * a.s.q_len, ROWS), ROW_THREADS, 0, a, o2, lse2);
}

static struct attention attention_of(const struct attn_shape *s)
{
	struct attention a = {};
	a.s = *s;
	a.pairs = s->batch * s->heads;
	a.scale = (float)(1 / sqrt((double)s->dim));
	a.threshold = s->drop.p > 0 ? (uint32_t)ceil((double)s->drop.p * 4294967296.0) : 0;
	a.keep = s->drop.p > 0 ? (float)(1 / (1 - (double)s->drop.p)) : 1;
	return a;
}

/* Whether the tensor-core kernels support the shape: all rows are whole pieces of 16 bytes. */
static bool tiles_fit(struct backend *k, const struct attention &a, const void *o, const void *dout)
{
	const struct attn_shape *s = &a.s;
	return cuda_of(k)->storage != STORE_FP32 && s->dim <= 128 &&
	       rows_fit(a, a.q, s->q_batch, 2) && rows_fit(a, a.key, s->kv_batch, 2) &&
	       rows_fit(a, a.v, s->kv_batch, 2) && rows_fit(a, o, s->o_batch, 2) &&
	       rows_fit(a, dout, s->o_batch, 2) && cuda_aligned(NULL, s->q_row, 2) &&
	       cuda_aligned(NULL, s->kv_row, 2);
}

void attention_own_fwd(struct backend *k, void *o, float *lse, const void *q, const void *key,
		       const void *v, const struct attn_shape *s)
{
	struct attention a = attention_of(s);
	a.out = o;
	a.lse = lse;
	a.q = q;
	a.key = key;
	a.v = v;
	if (tiles_fit(k, a, o, NULL))
		attention_fwd_tiles(k, &a);
	else
		attention_fwd_any(k, &a);
}

/* The heads of `a` from a->first on, as many as fit in the scratch with their queries. */
static void bwd_piece(struct backend *k, struct attention *a, bool tiles)
{
	switch (cuda_of(k)->storage) {
	case STORE_FP32:
		queue_queries<float>(k, *a);
		break;
	case STORE_BF16:
		queue_queries<__nv_bfloat16>(k, *a);
		break;
	case STORE_FP16:
		queue_queries<__half>(k, *a);
		break;
	}
	if (!tiles) {
		attention_bwd_any(k, a);
		return;
	}
	attention_bwd_q_tiles(k, a);
	attention_bwd_kv_tiles(k, a);
}

void attention_own_bwd(struct backend *k, void *dq, void *dk, void *dv, const void *dout,
		       const void *o, const float *lse, const void *q, const void *key,
		       const void *v, const struct attn_shape *s, bool add)
{
	struct attention a = attention_of(s);
	int64_t all = a.pairs, group = s->heads / s->kv_heads,
		each = group * s->q_len * (int64_t)sizeof(struct query);
	a.dq = dq;
	a.dk = dk;
	a.dv = dv;
	a.dout = dout;
	a.o = o;
	a.lse = const_cast<float *>(lse);
	a.q = q;
	a.key = key;
	a.v = v;
	a.add = add;
	bool tiles = tiles_fit(k, a, o, dout) && cuda_aligned(dq, 0, 2) && cuda_aligned(dk, 0, 2) &&
		     cuda_aligned(dv, 0, 2);
	int64_t most = each > 0 && CUDA_SCRATCH / each > 0 ? CUDA_SCRATCH / each * group
		       : each > 0                          ? group
							   : all;
	for (a.first = 0; a.first < all; a.first += most) {
		a.pairs = all - a.first < most ? all - a.first : most;
		a.queries = (struct query *)cuda_scratch(k, (size_t)(a.pairs / group * each),
							 "attention_bwd");
		if (a.queries)
			bwd_piece(k, &a, tiles);
	}
}

static void attention_merge(struct backend *k, void *o, float *lse, const void *o2,
			    const float *lse2, const struct attn_shape *s)
{
	struct attention a = attention_of(s);
	a.out = o;
	a.lse = lse;
	switch (cuda_of(k)->storage) {
	case STORE_FP32:
		queue_merge<float>(k, a, o2, lse2);
		break;
	case STORE_BF16:
		queue_merge<__nv_bfloat16>(k, a, o2, lse2);
		break;
	case STORE_FP16:
		queue_merge<__half>(k, a, o2, lse2);
		break;
	}
}

extern "C" void cuda_fill_attention(struct backend *k)
{
	k->ops.attention_fwd = attention_chosen_fwd;
	k->ops.attention_bwd = attention_chosen_bwd;
	k->ops.attention_merge = attention_merge;
}
