/*
 * attention — what the kernels of attention share: their argument, which keys a query sees, which
 * weights dropout keeps.
 *
 * o = softmax(q·kᵀ / sqrt(dim)) · v is computed tile by tile with a running maximum and sum, and
 * the backward pass computes the scores again (Dao, arXiv 2307.08691, algorithms 1 and 2).
 * kernels/reference/attention.c is the specification.
 *
 * A pair is a head of a sequence: number b * heads + h. A launch takes `pairs` of them from `first`
 * on, whole groups of heads that share a k/v head.
 */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/reduce.cuh"

/* Keys lo … hi - 1 of the piece; 0, 0 when there are none. */
struct span {
	int lo, hi;
};

/* What the backward pass has of each query beside its rows, 16 bytes. All 0: a query that sees
 * nothing. */
struct __align__(16) query
{
	float lse;   /* over log 2: of powers of 2 */
	float delta; /* dout · o */
	struct span seen;
};

struct attention {
	struct attn_shape s;
	const void *q, *key, *v, *o, *dout;
	void *out, *dq, *dk, *dv;
	float *lse;            /* [batch, heads, q_len] */
	struct query *queries; /* [pairs, q_len] */
	int64_t first, pairs;
	float scale;        /* 1 / sqrt(dim) */
	float keep;         /* what dropout multiplies a kept weight with */
	uint32_t threshold; /* it drops weights whose word is below; 0: nothing is dropped */
	bool add;
	/* of the pipeline of tiles: 2, or 1 where that lets two blocks share a multiprocessor */
	int stages;
};

static const float LOG2E = 1.4426950408889634f;

/* A head of a sequence: where its first elements lie. */
struct head {
	int64_t pair, b;
	int64_t q, kv, o;
};

static __device__ __forceinline__ struct head head_of(const struct attention &a, int64_t pair)
{
	/* pairs fit a grid */
	int64_t b = (uint32_t)pair / (uint32_t)a.s.heads, h = (uint32_t)pair % (uint32_t)a.s.heads;
	struct head at;
	at.pair = pair;
	at.b = b;
	at.q = b * a.s.q_batch + h * a.s.dim;
	at.kv = b * a.s.kv_batch + h / (a.s.heads / a.s.kv_heads) * a.s.dim;
	at.o = b * a.s.o_batch + h * a.s.dim;
	return at;
}

static __device__ __forceinline__ int64_t o_row(const struct attention &a)
{
	return (int64_t)a.s.heads * a.s.dim;
}

static __device__ __forceinline__ int clamp_to(int64_t x, int64_t most)
{
	return (int)(x < 0 ? 0 : x > most ? most : x);
}

/* Those that query t of sequence b sees; none behind the last query. */
static __device__ __forceinline__ struct span keys_seen(const struct attention &a, int64_t b,
							int64_t t)
{
	struct span none = { 0, 0 }, seen;
	if (t >= a.s.q_len)
		return none;
	int64_t start = a.s.starts ? a.s.starts[b * a.s.starts_batch + t] : 0;
	seen.lo = clamp_to(start - a.s.k_first, a.s.k_len);
	seen.hi = clamp_to(a.s.q_first + t + 1 - a.s.k_first, a.s.k_len);
	return seen.lo < seen.hi ? seen : none;
}

/* The smallest span that holds both. */
static __device__ __forceinline__ struct span span_join(struct span a, struct span b)
{
	if (a.lo >= a.hi || b.lo >= b.hi)
		return a.lo < a.hi ? a : b;
	a.lo = min(a.lo, b.lo);
	a.hi = max(a.hi, b.hi);
	return a;
}

/* That of all threads' spans, the same in every thread. room: 2 ints a warp, shared. */
template <int WARPS>
static __device__ __forceinline__ struct span block_span(struct span mine, int *room)
{
	for (int i = WARP / 2; i > 0; i /= 2) {
		struct span other = { __shfl_xor_sync(WARP_ALL, mine.lo, i),
				      __shfl_xor_sync(WARP_ALL, mine.hi, i) };
		mine = span_join(mine, other);
	}
	if (lane_id() == 0) {
		room[2 * warp_id()] = mine.lo;
		room[2 * warp_id() + 1] = mine.hi;
	}
	__syncthreads();
	struct span all = { 0, 0 };
	for (int w = 0; w < WARPS; w++) {
		struct span one = { room[2 * w], room[2 * w + 1] };
		all = span_join(all, one);
	}
	return all;
}

/* Dropout's number of the weight of query t and key u of a head. */
static __device__ __forceinline__ uint64_t weight_number(const struct attention &a, int64_t pair,
							 int64_t t, int64_t u)
{
	uint64_t head = (uint64_t)a.s.samples[pair / a.s.heads] * (uint64_t)a.s.heads_all +
			(uint64_t)(a.s.head_first + pair % a.s.heads);
	return (head * (uint64_t)a.s.seq + (uint64_t)(a.s.q_first + t)) * (uint64_t)a.s.seq +
	       (uint64_t)(a.s.k_first + u);
}

/* Bit i: the weight with number first + i is kept, for i of COUNT (at most 32; a multiple of 4). */
template <int COUNT>
static __device__ __forceinline__ uint32_t kept_bits(const struct attention &a, uint64_t first)
{
	uint64_t bits = 0;
	int skip = (int)(first % 4);
	#pragma unroll 1
	for (int i = 0; i < COUNT / 4 + (skip > 0); i++) {
		uint32_t w[4];
		philox_words(w, a.s.drop.key, first / 4 + (uint64_t)i);
		for (int j = 0; j < 4; j++)
			bits |= (uint64_t)(w[j] >= a.threshold) << (4 * i + j);
	}
	return (uint32_t)(bits >> skip);
}

#endif
