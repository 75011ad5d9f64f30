/* Ops on single elements: sums, and conversions between the storage type and fp32. */
#include "kernels/cuda/convert.cuh"
#include "kernels/cuda/launch.cuh"

template <class T, int V>
__global__ void __launch_bounds__(FLAT) add_kernel(T *y, const T *x, int64_t count)
{
	float a[FLAT_TURNS][V], b[FLAT_TURNS][V];
	#pragma unroll
	for (int t = 0; t < FLAT_TURNS; t++) {
		load_some<V>(a[t], y + flat_at<V>(t), count - flat_at<V>(t));
		load_some<V>(b[t], x + flat_at<V>(t), count - flat_at<V>(t));
	}
	#pragma unroll
	for (int t = 0; t < FLAT_TURNS; t++) {
		#pragma unroll
		for (int i = 0; i < V; i++)
			a[t][i] += b[t][i];
		store_some<V>(y + flat_at<V>(t), a[t], count - flat_at<V>(t));
	}
}

template <class T>
static void add_to(struct backend *k, const char *op, T *y, const T *x, int64_t count)
{
	constexpr int v = pack_of<T>;
	if (pack_fits(y, 0) && pack_fits(x, 0))
		launch(k, op, add_kernel<T, v>, flat_blocks(count, v), FLAT, 0, y, x, count);
	else
		launch(k, op, add_kernel<T, 1>, flat_blocks(count, 1), FLAT, 0, y, x, count);
}

template <class T> static void add(struct backend *k, void *y, const void *x, int64_t count)
{
	add_to<T>(k, "add", (T *)y, (const T *)x, count);
}

static void accumulate(struct backend *k, float *y, const float *x, int64_t count)
{
	add_to<float>(k, "accumulate", y, x, count);
}

template <class T, int V>
__global__ void __launch_bounds__(FLAT) to_fp32_kernel(float *y, const T *x, int64_t count)
{
	float a[FLAT_TURNS][V];
	#pragma unroll
	for (int t = 0; t < FLAT_TURNS; t++)
		load_some<V>(a[t], x + flat_at<V>(t), count - flat_at<V>(t));
	#pragma unroll
	for (int t = 0; t < FLAT_TURNS; t++)
		store_some<V>(y + flat_at<V>(t), a[t], count - flat_at<V>(t));
}

template <class T>
static void storage_to_fp32(struct backend *k, float *y, const void *xv, int64_t count)
{
	const T *x = (const T *)xv;
	constexpr int v = pack_of<T>;
	if (sizeof(T) == sizeof(float))
		k->ops.copy_rows(k, y, count, x, count, 1, count);
	else if (pack_fits(y, 0) && pack_fits(x, 0))
		launch(k, "storage_to_fp32", to_fp32_kernel<T, v>, flat_blocks(count, v), FLAT, 0,
		       y, x, count);
	else
		launch(k, "storage_to_fp32", to_fp32_kernel<T, 1>, flat_blocks(count, 1), FLAT, 0,
		       y, x, count);
}

template <class T, int V, bool RANDOM>
__global__ void __launch_bounds__(FLAT)
	from_fp32_kernel(T *y, const float *x, int64_t count, struct philox_key key, uint64_t first)
{
	float a[FLAT_TURNS][V];
	#pragma unroll
	for (int t = 0; t < FLAT_TURNS; t++)
		load_some<V>(a[t], x + flat_at<V>(t), count - flat_at<V>(t));
	#pragma unroll
	for (int t = 0; t < FLAT_TURNS; t++) {
		if (RANDOM)
			round_randomly<T, V>(a[t], key, first + (uint64_t)flat_at<V>(t));
		store_some<V>(y + flat_at<V>(t), a[t], count - flat_at<V>(t));
	}
}

template <class T, int V>
static void from_fp32_by(struct backend *k, T *y, const float *x, int64_t count,
			 const struct philox_key *key, uint64_t first)
{
	const struct philox_key none = {};
	launch(k, "fp32_to_storage",
	       key ? from_fp32_kernel<T, V, true> : from_fp32_kernel<T, V, false>,
	       flat_blocks(count, V), FLAT, 0, y, x, count, key ? *key : none, first);
}

template <class T>
static void fp32_to_storage(struct backend *k, void *yv, const float *x, int64_t count,
			    const struct philox_key *key, uint64_t first)
{
	T *y = (T *)yv;
	if (sizeof(T) == sizeof(float))
		k->ops.copy_rows(k, y, count, x, count, 1, count);
	else if (pack_fits(y, 0) && pack_fits(x, 0))
		from_fp32_by<T, pack_of<T>>(k, y, x, count, key, first);
	else
		from_fp32_by<T, 1>(k, y, x, count, key, first);
}

template <class T> static void fill(struct ops *o)
{
	o->add = add<T>;
	o->accumulate = accumulate;
	o->storage_to_fp32 = storage_to_fp32<T>;
	o->fp32_to_storage = fp32_to_storage<T>;
}

CUDA_FILL(convert)
