/*
 * attention_any — what the passes of attention without tensor cores share: fp32, heads of any width
 * up to ATTN_DIM_MAX, rows of any alignment.
 *
 * The loops over tiles are those of the tensor-core kernels, in fp32. A block of 256 threads has 64
 * rows by 64 columns. A thread has the 16 sums of rows 4 (thread / 16) + i and columns
 * thread % 16 + 16 j. The 16 threads of a row are half a warp, and warps without rows skip the
 * products. Rows go to shared memory as floats, 32 of their elements at a time (products of rows) or
 * 64 (sums). A block uses 34 KiB of shared memory. A thread does 16 multiplications for 8 words from
 * shared memory, so these kernels reach at most half of the chip's fp32 rate.
 */
#ifndef MUSTER_KERNELS_CUDA_ATTENTION_ANY_CUH
#define MUSTER_KERNELS_CUDA_ATTENTION_ANY_CUH

#include "kernels/cuda/attention.cuh"
#include "kernels/cuda/attention_host.cuh"

enum { EDGE = 64, PART = 32, SPREAD = 16, EACH = EDGE / SPREAD, ANY_THREADS = SPREAD * SPREAD };

/* The rows of one head: row 0, elements from one row to the next, number of rows, width. */
template <class T> struct rows {
	const T *at;
	int64_t apart, count;
	int dim;
};

/* The block's shared memory. */
struct any_room {
	float part[2 * EDGE * (PART + 1)]; /* of rows; EDGE (EDGE + 1) floats fit too */
	float weights[EDGE][EDGE + 1];
};

static __device__ __forceinline__ int any_row(int i)
{
	return (int)threadIdx.x / SPREAD * EACH + i;
}

static __device__ __forceinline__ int any_column(int j)
{
	return (int)threadIdx.x % SPREAD + SPREAD * j;
}

/* Whether this warp has any of the block's `left` rows. */
static __device__ __forceinline__ bool any_busy(int64_t left)
{
	return warp_id() * (WARP / SPREAD) * EACH < left;
}

/* Elements d … d + WIDE - 1 of EDGE rows from `first` on, as floats; zeros beyond. */
template <int WIDE, class T>
static __device__ void any_copy(float *to, const struct rows<T> &from, int64_t first, int d)
{
	#pragma unroll 4
	for (int turn = 0; turn < EDGE * WIDE / ANY_THREADS; turn++) {
		int i = (int)threadIdx.x + turn * ANY_THREADS, r = i / WIDE, c = i % WIDE;
		bool there = first + r < from.count && d + c < from.dim;
		to[r * (WIDE + 1) + c] = there ? to_fp32(from.at[(first + r) * from.apart + d + c])
					       : 0;
	}
}

/* s = EDGE rows of a from a0 on by EDGE rows of b from b0 on. */
template <class T>
static __device__ void any_scores(float (&s)[EACH][EACH], struct any_room *room,
				  const struct rows<T> &a, int64_t a0, const struct rows<T> &b,
				  int64_t b0)
{
	const float *left = room->part + any_row(0) * (PART + 1),
		    *right = room->part + (EDGE + any_column(0)) * (PART + 1);
	const bool busy = any_busy(a.count - a0);
	#pragma unroll
	for (int i = 0; i < EACH * EACH; i++)
		s[i / EACH][i % EACH] = 0;
	for (int d = 0; d < a.dim; d += PART) {
		__syncthreads();
		any_copy<PART>(room->part, a, a0, d);
		any_copy<PART>(room->part + EDGE * (PART + 1), b, b0, d);
		__syncthreads();
		#pragma unroll 4
		for (int k = 0; k < (busy ? PART : 0); k++) {
			float x[EACH], y[EACH];
			#pragma unroll
			for (int i = 0; i < EACH; i++) {
				x[i] = left[i * (PART + 1) + k];
				y[i] = right[i * SPREAD * (PART + 1) + k];
			}
			#pragma unroll
			for (int i = 0; i < EACH; i++)
				#pragma unroll
				for (int j = 0; j < EACH; j++)
					s[i][j] = fmaf(x[i], y[j], s[i][j]);
		}
	}
}

/* Writes the block's weights to shared memory. The next any_sum waits until all are written. */
static __device__ __forceinline__ void any_put_weights(struct any_room *room,
						       const float (&w)[EACH][EACH])
{
	__syncthreads();
	#pragma unroll
	for (int i = 0; i < EACH; i++)
		#pragma unroll
		for (int j = 0; j < EACH; j++)
			room->weights[any_row(i)][any_column(j)] = w[i][j];
}

/* sum += weights · EDGE rows of b from b0 on. sum has `left` rows and PIECES * EDGE columns. */
template <int PIECES, class T>
static __device__ void any_sum(float (&sum)[PIECES][EACH][EACH], int64_t left,
			       struct any_room *room, const struct rows<T> &b, int64_t b0)
{
	const int terms = !any_busy(left) ? 0 : b.count - b0 < EDGE ? (int)(b.count - b0) : EDGE;
	#pragma unroll
	for (int p = 0; p < PIECES; p++) {
		if (p * EDGE >= b.dim)
			break;
		__syncthreads();
		any_copy<EDGE>(room->part, b, b0, p * EDGE);
		__syncthreads();
		#pragma unroll 4
		for (int k = 0; k < terms; k++) {
			float x[EACH], y[EACH];
			#pragma unroll
			for (int i = 0; i < EACH; i++) {
				x[i] = room->weights[any_row(i)][k];
				y[i] = room->part[k * (EDGE + 1) + any_column(i)];
			}
			#pragma unroll
			for (int i = 0; i < EACH; i++)
				#pragma unroll
				for (int j = 0; j < EACH; j++)
					sum[p][i][j] = fmaf(x[i], y[j], sum[p][i][j]);
		}
	}
}

template <int PIECES>
static __device__ __forceinline__ void any_clear(float (&sum)[PIECES][EACH][EACH])
{
	#pragma unroll
	for (int p = 0; p < PIECES; p++)
		#pragma unroll
		for (int i = 0; i < EACH * EACH; i++)
			sum[p][i / EACH][i % EACH] = 0;
}

/* Writes the sums to rows first … of an array of `count` rows, `apart` elements from one to the
 * next. Row i of the sums is multiplied by by[i]. */
template <int PIECES, class T>
static __device__ void any_put(T *to, int64_t apart, int64_t first, int64_t count, int dim,
			       const float (&sum)[PIECES][EACH][EACH], const float (&by)[EACH],
			       bool add)
{
	#pragma unroll
	for (int p = 0; p < PIECES; p++)
		#pragma unroll
		for (int i = 0; i < EACH; i++)
			#pragma unroll
			for (int j = 0; j < EACH; j++) {
				int64_t r = first + any_row(i);
				int c = p * EDGE + any_column(j);
				if (r >= count || c >= dim)
					continue;
				T *at = to + r * apart + c;
				*at = from_fp32<T>(sum[p][i][j] * by[i] + (add ? to_fp32(*at) : 0));
			}
}

/* The factor that dropout gives the weight of query t and key u. */
static __device__ __forceinline__ float any_keep(const struct attention &a, int64_t pair, int64_t t,
						 int64_t u)
{
	uint32_t words[4];
	if (!a.threshold)
		return 1;
	uint64_t number = weight_number(a, pair, t, u);
	philox_words(words, a.s.drop.key, number / 4);
	return philox_pick(words, (unsigned)(number % 4)) >= a.threshold ? a.keep : 0;
}

/* The arrays of one head. */
template <class T>
static __device__ __forceinline__ struct rows<T> q_rows(const struct attention &a,
							const struct head &at) {
	struct rows<T> r = {
		(const T *)a.q + at.q, a.s.q_row, a.s.q_len, a.s.dim
	};
	return r;
}

template <class T>
static __device__ __forceinline__ struct rows<T> dout_rows(const struct attention &a,
							   const struct head &at) {
	struct rows<T> r = {
		(const T *)a.dout + at.o, o_row(a), a.s.q_len, a.s.dim
	};
	return r;
}

template <class T>
static __device__ __forceinline__ struct rows<T> kv_rows(const struct attention &a,
							 const struct head &at, const void *of) {
	struct rows<T> r = {
		(const T *)of + at.kv, a.s.kv_row, a.s.k_len, a.s.dim
	};
	return r;
}

/* Calls f<T, PIECES>(k, a) for the backend's storage type and the heads' width. Storage of 2 bytes
 * comes here only with rare shapes. */
#define ANY_CALL(f, k, a) \
	switch (cuda_of(k)->storage) { \
	case STORE_FP32: \
		(a)->s.dim <= 64    ? f<float, 1>(k, a) \
		: (a)->s.dim <= 128 ? f<float, 2>(k, a) \
				    : f<float, 4>(k, a); \
		break; \
	case STORE_BF16: \
		f<__nv_bfloat16, 4>(k, a); \
		break; \
	case STORE_FP16: \
		f<__half, 4>(k, a); \
		break; \
	}

#endif
