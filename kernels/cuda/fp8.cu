/*
 * fp8: casts with their transposed copies, scales, and products that cuBLASLt does not support.
 *
 * A cast reads a tile of EDGE × EDGE once, writes it, and transposes it through shared memory. A
 * thread of each block raises the largest |x|.
 */
#include "kernels/cuda/fp8.h"
#include "kernels/cuda/largest.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

enum {
	EDGE = 64,
	CAST_THREADS = 256,
	CHUNK = 8,
	CHUNKS = EDGE * EDGE / CHUNK,
	TURN_ROW = EDGE + 4
};

/* fp8(scale x). Only infinities do not saturate: they become NaN. */
__device__ inline uint8_t to_fp8(float x, float scale, __nv_fp8_interpretation_t kind)
{
	const bool infinite = magnitude(x) == 0x7f800000u;
	return __nv_cvt_float_to_fp8(infinite ? __uint_as_float(0x7fffffffu) : x * scale,
				     __NV_SATFINITE, kind);
}

__device__ inline float of_fp8(uint8_t x, __nv_fp8_interpretation_t kind)
{
	__half_raw raw = __nv_cvt_fp8_to_halfraw(x, kind);
	return __half2float(__half(raw));
}

static __nv_fp8_interpretation_t kind_of(enum fp8 format)
{
	return format == FP8_E4M3 ? __NV_E4M3 : __NV_E5M2;
}

/* --- casts --- */

template <class T> struct cast_call {
	uint8_t *y, *transposed;
	fp8_scale *s;
	const T *x;
	__nv_fp8_interpretation_t kind;
	int64_t n, c, padded; /* padded: numbers of a row of transposed */
	float current; /* the format's largest number: s->scale follows from s->largest; 0: it is set */
	bool whole, transposed_whole; /* rows of y, and of transposed, are aligned to 8 bytes */
};

/* Writes 8 bytes, in one access if `whole`. */
__device__ inline void put_chunk(uint8_t *to, const uint8_t *from, int64_t left, bool whole)
{
	if (whole && left >= CHUNK) {
		uint2 w;
		w.x = from[0] | from[1] << 8 | from[2] << 16 | (uint32_t)from[3] << 24;
		w.y = from[4] | from[5] << 8 | from[6] << 16 | (uint32_t)from[7] << 24;
		*(uint2 *)to = w;
		return;
	}
	#pragma unroll
	for (int i = 0; i < CHUNK; i++)
		if (i < left)
			to[i] = from[i];
}

/* The largest power of 2 with which `most` fits, as in kernels/fp8.c. */
__device__ inline float scale_of(float most, float largest)
{
	int e = (int)(__float_as_uint(largest / most) >> 23 & 255) - 127;
	e = e > 100 ? 100 : e < -100 ? -100 : e;
	return __uint_as_float((uint32_t)(e + 127) << 23);
}

__device__ inline bool has_scale(uint32_t most)
{
	return most != 0 && most < 0x7f800000u;
}

/* The scale to cast with. All blocks compute the same one, and one block stores it. */
template <class T> __device__ inline float cast_scale(const cast_call<T> &a)
{
	if (a.current == 0)
		return a.s->scale;
	const float most = a.s->largest;
	const float scale = has_scale(__float_as_uint(most)) ? scale_of(most, a.current) : 0;
	if (blockIdx.x == 0 && threadIdx.x == 0) {
		a.s->scale = scale;
		a.s->inverse = scale == 0 ? 0 : 1.0f / scale;
	}
	return scale;
}

template <class T, bool PACKS>
static __global__ void __launch_bounds__(CAST_THREADS) fp8_cast_kernel(const cast_call<T> a)
{
	__shared__ uint8_t turn[EDGE][TURN_ROW]; /* [column][row] */
	__shared__ uint32_t largest[CAST_THREADS / WARP];
	const int64_t across = (a.c + EDGE - 1) / EDGE, i0 = blockIdx.x / across * EDGE,
		      j0 = blockIdx.x % across * EDGE;
	const float scale = cast_scale(a);
	uint32_t most = 0;
	for (int q = threadIdx.x; q < CHUNKS; q += CAST_THREADS) {
		const int i = q / (EDGE / CHUNK), j = q % (EDGE / CHUNK) * CHUNK;
		const int64_t left = i0 + i < a.n ? a.c - j0 - j : 0;
		float x[CHUNK] = {};
		uint8_t bits[CHUNK];
		const T *from = a.x + (i0 + i) * a.c + j0 + j;
		if (PACKS && left > 0) {
			load_some<CHUNK>(x, from, left);
		} else {
			#pragma unroll
			for (int l = 0; l < CHUNK; l++)
				x[l] = l < left ? to_fp32(from[l]) : 0;
		}
		#pragma unroll
		for (int l = 0; l < CHUNK; l++) {
			most = max(most, magnitude(x[l]));
			bits[l] = to_fp8(x[l], scale, a.kind);
			turn[j + l][i] = bits[l];
		}
		if (a.y)
			put_chunk(a.y + (i0 + i) * a.c + j0 + j, bits, left, a.whole);
	}
	most = warp_most(most);
	if (lane_id() == 0)
		largest[warp_id()] = most;
	__syncthreads();
	if (threadIdx.x == 0 && a.current == 0) {
		#pragma unroll
		for (int w = 1; w < CAST_THREADS / WARP; w++)
			most = max(most, largest[w]);
		raise_largest(a.s, most);
	}
	if (!a.transposed)
		return;
	for (int q = threadIdx.x; q < CHUNKS; q += CAST_THREADS) {
		const int j = q / (EDGE / CHUNK), i = q % (EDGE / CHUNK) * CHUNK;
		const int64_t left = j0 + j < a.c ? a.padded - i0 - i : 0;
		if (left > 0)
			put_chunk(a.transposed + (j0 + j) * a.padded + i0 + i, &turn[j][i], left,
				  a.transposed_whole);
	}
}

static float largest_of(enum fp8 format)
{
	return format == FP8_E4M3 ? 448.0f : 57344.0f;
}

template <class T>
static void queue_cast(struct backend *k, const char *op, float current, uint8_t *y,
		       uint8_t *transposed, struct fp8_scale *s, const void *xv, enum fp8 format,
		       int64_t n, int64_t c)
{
	const T *x = (const T *)xv;
	const cast_call<T> a = { y,
				 transposed,
				 s,
				 x,
				 kind_of(format),
				 n,
				 c,
				 (n + FP8_ROW - 1) / FP8_ROW * FP8_ROW,
				 current,
				 (uintptr_t)y % CHUNK == 0 && c % CHUNK == 0,
				 (uintptr_t)transposed % CHUNK == 0 };
	const unsigned blocks = cuda_blocks((n + EDGE - 1) / EDGE * ((c + EDGE - 1) / EDGE), 1);
	if ((uintptr_t)x % 16 == 0 && c % CHUNK == 0)
		launch(k, op, fp8_cast_kernel<T, true>, blocks, CAST_THREADS, 0, a);
	else
		launch(k, op, fp8_cast_kernel<T, false>, blocks, CAST_THREADS, 0, a);
}

template <class T>
static void cast_op(struct backend *k, uint8_t *y, uint8_t *transposed, struct fp8_scale *s,
		    const void *x, enum fp8 format, int64_t n, int64_t c)
{
	queue_cast<T>(k, "fp8_cast", 0, y, transposed, s, x, format, n, c);
}

template <class T>
static void cast_current_op(struct backend *k, uint8_t *y, uint8_t *transposed, struct fp8_scale *s,
			    const void *x, enum fp8 format, int64_t n, int64_t c)
{
	queue_cast<T>(k, "fp8_cast_current", largest_of(format), y, transposed, s, x, format, n, c);
}

/* --- products: one element per thread --- */

enum { SIDE = 16 };

template <class T> struct product_call {
	T *d;
	const uint8_t *left, *right;
	const fp8_scale *left_scale, *right_scale;
	__nv_fp8_interpretation_t left_kind, right_kind;
	const T *bias;
	int64_t m, n, k, left_row, right_row;
	bool add;
};

template <class T>
static __global__ void __launch_bounds__(SIDE *SIDE) fp8_product_kernel(const product_call<T> c)
{
	const int64_t across = (c.n + SIDE - 1) / SIDE;
	const int64_t i = blockIdx.x / across * SIDE + threadIdx.x / SIDE,
		      j = blockIdx.x % across * SIDE + threadIdx.x % SIDE;
	float sum = 0;
	if (i >= c.m || j >= c.n)
		return;
	for (int64_t l = 0; l < c.k; l++)
		sum = fmaf(of_fp8(c.left[i * c.left_row + l], c.left_kind),
			   of_fp8(c.right[j * c.right_row + l], c.right_kind), sum);
	sum *= c.left_scale->inverse;
	sum *= c.right_scale->inverse;
	sum += c.bias ? to_fp32(c.bias[j]) : 0;
	T *d = c.d + i * c.n + j;
	*d = from_fp32<T>(c.add ? to_fp32(*d) + sum : sum);
}

template <class T>
static void product_op(struct backend *k, void *d, const struct fp8_tensor *left,
		       const struct fp8_tensor *right, const void *bias, bool add, int64_t m,
		       int64_t n, int64_t depth)
{
	const product_call<T> c = { (T *)d,
				    left->at,
				    right->at,
				    left->scale,
				    right->scale,
				    kind_of(left->format),
				    kind_of(right->format),
				    (const T *)bias,
				    m,
				    n,
				    depth,
				    left->row ? left->row : depth,
				    right->row ? right->row : depth,
				    add };
	launch(k, "fp8_product", fp8_product_kernel<T>,
	       cuda_blocks((m + SIDE - 1) / SIDE * ((n + SIDE - 1) / SIDE), 1), SIDE * SIDE, 0, c);
}

extern "C" void fp8_fallback_product(struct backend *k, void *d, const struct fp8_tensor *left,
				     const struct fp8_tensor *right, const void *bias, bool single,
				     bool add, int64_t m, int64_t n, int64_t depth)
{
	if (single || cuda_of(k)->storage == STORE_FP32)
		product_op<float>(k, d, left, right, bias, single && add, m, n, depth);
	else if (cuda_of(k)->storage == STORE_BF16)
		product_op<__nv_bfloat16>(k, d, left, right, bias, false, m, n, depth);
	else
		product_op<__half>(k, d, left, right, bias, false, m, n, depth);
}

/* --- scales --- */

static __global__ void fp8_scale_kernel(fp8_scale *s, int64_t n, float largest, bool ends)
{
	const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
	if (i >= n)
		return;
	s += i;
	uint32_t most = 0;
	if (ends) {
		s->history[s->updates % FP8_SCALE_HISTORY] = has_scale(magnitude(s->largest))
								     ? s->largest
								     : 0;
		s->updates++;
		s->largest = 0;
	}
	for (int j = 0; j < FP8_SCALE_HISTORY; j++)
		if (has_scale(magnitude(s->history[j])))
			most = max(most, magnitude(s->history[j]));
	s->scale = most ? scale_of(__uint_as_float(most), largest) : 1;
	s->inverse = 1.0f / s->scale;
}

static void fp8_update_scales(struct backend *k, struct fp8_scale *s, int64_t n, enum fp8 format,
			      bool ends)
{
	launch(k, "fp8_update_scales", fp8_scale_kernel, cuda_blocks(n, 128), 128, 0, s, n,
	       largest_of(format), ends);
}

template <class T> static void fill(struct ops *o)
{
	o->fp8_cast = cast_op<T>;
	o->fp8_cast_current = cast_current_op<T>;
	o->fp8_update_scales = fp8_update_scales;
}

CUDA_FILL(fp8)
