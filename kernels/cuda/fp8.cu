/* fp8: casts with their transposed copies (cast.cuh), scales, and products that cuBLASLt does not
 * support. */
#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/fp8.h"

__device__ inline float of_fp8(uint8_t x, __nv_fp8_interpretation_t kind)
{
	__half_raw raw = __nv_cvt_fp8_to_halfraw(x, kind);
	return __half2float(__half(raw));
}

/* --- casts --- */

/* A tensor that is read. */
template <class T> struct tensor_source {
	static constexpr int PARTS = 1;
	static constexpr bool GRADIENT = true;
	const T *x;
	int64_t c;
	template <bool PACKS>
	__device__ void values(float (&v)[PARTS][CHUNK], int64_t i, int64_t j, int64_t left) const
	{
		chunk_load<PACKS>(v[0], x + i * c + j, left);
	}
};

static float largest_of(enum fp8 format)
{
	return format == FP8_E4M3 ? 448.0f : 57344.0f;
}

template <class T>
static void cast(struct backend *k, const char *op, const struct fp8_copies *to, float current,
		 const void *x, int64_t n, int64_t c)
{
	const tensor_source<T> source = { (const T *)x, c };
	queue_cast(k, op, to, current, source, chunk_fits(source.x, c), n, c);
}

template <class T>
static void cast_op(struct backend *k, const void *x, int64_t n, int64_t c,
		    const struct fp8_copies *to)
{
	cast<T>(k, "fp8_cast", to, 0, x, n, c);
}

template <class T>
static void cast_current_op(struct backend *k, const void *x, int64_t n, int64_t c,
			    const struct fp8_copies *to)
{
	cast<T>(k, "fp8_cast_current", to, largest_of(to->format), x, n, c);
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
		const uint32_t at = (uint32_t)s->updates % FP8_SCALE_HISTORY;
		s->history[at] = has_scale(magnitude(s->largest)) ? s->largest : 0;
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
