/*
 * attention — what the kernels of attention share: their argument, the keys that a query sees, and
 * the weights that dropout keeps.
 *
 * o = softmax(q·kᵀ / sqrt(dim)) · v is computed tile by tile with a running maximum and sum, and
 * the backward pass computes the scores again (Dao, arXiv 2307.08691, algorithms 1 and 2).
 * kernels/reference/attention.c is the specification.
 *
 * A pair is a head of a sequence, number b * heads + h. A launch handles `pairs` of them, beginning
 * with `first`. These are whole groups of heads that share a k/v head.
 */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_CUH

#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/philox.cuh"
#include "kernels/cuda/reduce.cuh"

/* Keys lo … hi - 1 of the piece; 0, 0 when there are none. */
struct range {
	int lo, hi;
};

/* What the backward pass needs of each query besides its rows, 16 bytes. A query that sees nothing
 * is all 0. */
struct __align__(16) query
{
	float lse;   /* in units of log 2, for powers of 2 */
	float delta; /* dout · o */
	struct range seen;
};

struct attention {
	struct attn_shape s;
	const void *q, *key, *v, *o, *dout;
	void *out, *dq, *dk, *dv;
	float *lse;            /* [batch, heads, q_len] */
	struct query *queries; /* [pairs, q_len] */
	int64_t first, pairs;
	float scale;        /* 1 / sqrt(dim) */
	float keep;         /* the factor of a weight that dropout keeps */
	uint32_t threshold; /* weights whose word is below it are dropped; 0: none are */
	bool add;
	/* stages of the pipeline of tiles: 2, or 1 if only that lets two blocks share a
	 * multiprocessor */
	int stages;
};

static const float LOG2E = 1.4426950408889634f;

/* A head of a sequence: pointers to its first elements. */
struct head {
	int64_t pair, b;
	int64_t q, kv, o;
};

static __device__ __forceinline__ struct head head_of(const struct attention &a, int64_t pair)
{
	/* the number of pairs fits in a grid */
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

/* The keys that query t of sequence b sees; none for t beyond the last query. */
static __device__ __forceinline__ struct range keys_seen(const struct attention &a, int64_t b,
							 int64_t t)
{
	struct range none = { 0, 0 }, seen;
	if (t >= a.s.q_len)
		return none;
	int64_t start = a.s.starts ? a.s.starts[b * a.s.starts_batch + t] : 0;
	seen.lo = clamp_to(start - a.s.k_first, a.s.k_len);
	seen.hi = clamp_to(a.s.q_first + t + 1 - a.s.k_first, a.s.k_len);
	return seen.lo < seen.hi ? seen : none;
}

/* The smallest range that holds both. */
static __device__ __forceinline__ struct range join_ranges(struct range a, struct range b)
{
	if (a.lo >= a.hi || b.lo >= b.hi)
		return a.lo < a.hi ? a : b;
	a.lo = min(a.lo, b.lo);
	a.hi = max(a.hi, b.hi);
	return a;
}

/* The smallest range that holds the ranges of all threads; every thread gets it. room: 2 ints per
 * warp, in shared memory. */
template <int WARPS>
static __device__ __forceinline__ struct range block_range(struct range mine, int *room)
{
	for (int i = WARP / 2; i > 0; i /= 2) {
		struct range other = { __shfl_xor_sync(WARP_ALL, mine.lo, i),
				       __shfl_xor_sync(WARP_ALL, mine.hi, i) };
		mine = join_ranges(mine, other);
	}
	if (lane_id() == 0) {
		room[2 * warp_id()] = mine.lo;
		room[2 * warp_id() + 1] = mine.hi;
	}
	__syncthreads();
	struct range all = { 0, 0 };
	for (int w = 0; w < WARPS; w++) {
		struct range one = { room[2 * w], room[2 * w + 1] };
		all = join_ranges(all, one);
	}
	return all;
}

/* The number by which dropout knows the weight of query t and key u of a head. */
static __device__ __forceinline__ uint64_t weight_number(const struct attention &a, int64_t pair,
							 int64_t t, int64_t u)
{
	uint64_t head = (uint64_t)a.s.samples[pair / a.s.heads] * (uint64_t)a.s.heads_all +
			(uint64_t)(a.s.head_first + pair % a.s.heads);
	return (head * (uint64_t)a.s.seq + (uint64_t)(a.s.q_first + t)) * (uint64_t)a.s.seq +
	       (uint64_t)(a.s.k_first + u);
}

/* Bit i is set if the weight with number first + i is kept. i < COUNT, a multiple of 4, at most
 * 32. */
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
