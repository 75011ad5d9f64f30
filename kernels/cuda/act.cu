/* Activations, bound by memory bandwidth, one pack at a time. GELU's tanh formula equals
 * x sigmoid(2u), which loses no precision for large -x. Kernels with LARGEST also find the largest
 * number that they store. Where 8-bit copies of the result are wanted, the formulas are sources of
 * the kernel that casts (cast.cuh). */
#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/tile.cuh"

/* 2u = 2 sqrt(2/pi) (x + 0.044715 x³) */
static constexpr float two_u = 0x1.988454p+0f;
static constexpr float cubic = 0.044715f;

/* exp, as exact as the storage type needs. */
template <class T> __device__ inline float exp_for(float x)
{
	if constexpr (sizeof(T) == sizeof(float))
		return expf(x);
	else
		return __expf(x);
}

template <class T> __device__ inline float sigmoid(float x)
{
	float d = 1.0f + exp_for<T>(-x);
	if constexpr (sizeof(T) == sizeof(float))
		return 1.0f / d;
	else
		return __fdividef(1.0f, d);
}

template <class T> __device__ inline float gelu(float x)
{
	return x * sigmoid<T>(two_u * (x + cubic * x * x * x));
}

/* Beyond ±30 the slope is 0 or 1, and the cubic term would overflow. */
template <class T> __device__ inline float gelu_slope(float all)
{
	float x = all > 30.0f ? 30.0f : all < -30.0f ? -30.0f : all;
	float s = sigmoid<T>(two_u * (x + cubic * x * x * x));
	float du = two_u * (1.0f + 3.0f * cubic * x * x);
	return s + x * s * (1.0f - s) * du;
}

/* Replaces gate by the gradient of the gate, and up by that of up. */
template <class T> __device__ inline void swiglu_slopes(float &gate, float &up, float d)
{
	const float s = sigmoid<T>(gate), g = gate, u = up;
	gate = d * u * s * (1.0f + g * (1.0f - s));
	up = d * g * s;
}

template <class T, int V, bool LARGEST>
__global__ void __launch_bounds__(FLAT)
	gelu_fwd_kernel(T *y, const T *x, int64_t count, struct fp8_scale *s)
{
	uint32_t most = 0;
	float a[FLAT_TURNS][V];
	#pragma unroll
	for (int t = 0; t < FLAT_TURNS; t++)
		load_some<V>(a[t], x + flat_at<V>(t), count - flat_at<V>(t));
	#pragma unroll
	for (int t = 0; t < FLAT_TURNS; t++) {
		#pragma unroll
		for (int i = 0; i < V; i++)
			a[t][i] = gelu<T>(a[t][i]);
		store_some<V>(y + flat_at<V>(t), a[t], count - flat_at<V>(t));
		if (LARGEST)
			most = most_of_some<T, V>(a[t], count - flat_at<V>(t), most);
	}
	if (LARGEST)
		raise_largest_of_warp(s, most);
}

template <class T, int V, bool LARGEST>
__global__ void __launch_bounds__(FLAT)
	gelu_bwd_kernel(T *dx, const T *dy, const T *x, int64_t count, struct fp8_scale *s)
{
	uint32_t most = 0;
	float a[FLAT_TURNS][V], d[FLAT_TURNS][V];
	#pragma unroll
	for (int t = 0; t < FLAT_TURNS; t++) {
		load_some<V>(a[t], x + flat_at<V>(t), count - flat_at<V>(t));
		load_some<V>(d[t], dy + flat_at<V>(t), count - flat_at<V>(t));
	}
	#pragma unroll
	for (int t = 0; t < FLAT_TURNS; t++) {
		#pragma unroll
		for (int i = 0; i < V; i++)
			d[t][i] *= gelu_slope<T>(a[t][i]);
		store_some<V>(dx + flat_at<V>(t), d[t], count - flat_at<V>(t));
		if (LARGEST)
			most = most_of_some<T, V>(d[t], count - flat_at<V>(t), most);
	}
	if (LARGEST)
		raise_largest_of_warp(s, most);
}

/* A row of y has f elements, a row of gu 2 f: gate, then up. */
template <class T, int V, bool LARGEST>
__global__ void __launch_bounds__(TILE)
	swiglu_fwd_kernel(T *y, const T *gu, struct tile tile, struct fp8_scale *s)
{
	const int64_t row = tile_row(tile), f = tile.packs * V;
	const bool some = row < tile.n;
	float gate[TILE_TURNS][V], up[TILE_TURNS][V];
	uint32_t most = 0;
	if (!LARGEST && !some)
		return;
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++)
		if (some && tile_pack(tile, t) < tile.packs) {
			load<V>(gate[t], gu + row * 2 * f + tile_pack(tile, t) * V);
			load<V>(up[t], gu + row * 2 * f + f + tile_pack(tile, t) * V);
		}
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++)
		if (some && tile_pack(tile, t) < tile.packs) {
			#pragma unroll
			for (int i = 0; i < V; i++)
				gate[t][i] = gate[t][i] * sigmoid<T>(gate[t][i]) * up[t][i];
			store<V>(y + row * f + tile_pack(tile, t) * V, gate[t]);
			if (LARGEST)
				most = most_of<T, V>(gate[t], most);
		}
	if (LARGEST)
		raise_largest_of_warp(s, most);
}

template <class T, int V, bool LARGEST>
__global__ void __launch_bounds__(TILE)
	swiglu_bwd_kernel(T *dgu, const T *dy, const T *gu, struct tile tile,
			  struct fp8_scale *largest)
{
	const int64_t row = tile_row(tile), f = tile.packs * V;
	const bool some = row < tile.n;
	float gate[TILE_TURNS][V], up[TILE_TURNS][V], d[TILE_TURNS][V];
	uint32_t most = 0;
	if (!LARGEST && !some)
		return;
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++)
		if (some && tile_pack(tile, t) < tile.packs) {
			load<V>(gate[t], gu + row * 2 * f + tile_pack(tile, t) * V);
			load<V>(up[t], gu + row * 2 * f + f + tile_pack(tile, t) * V);
			load<V>(d[t], dy + row * f + tile_pack(tile, t) * V);
		}
	#pragma unroll
	for (int t = 0; t < TILE_TURNS; t++)
		if (some && tile_pack(tile, t) < tile.packs) {
			#pragma unroll
			for (int i = 0; i < V; i++)
				swiglu_slopes<T>(gate[t][i], up[t][i], d[t][i]);
			store<V>(dgu + row * 2 * f + tile_pack(tile, t) * V, gate[t]);
			store<V>(dgu + row * 2 * f + f + tile_pack(tile, t) * V, up[t]);
			if (LARGEST)
				most = most_of<T, V>(up[t], most_of<T, V>(gate[t], most));
		}
	if (LARGEST)
		raise_largest_of_warp(largest, most);
}

/* --- Sources of casts. y, dx, dgu NULL: the tensor itself is not stored. --- */

template <class T> struct gelu_source {
	static constexpr int PARTS = 1;
	static constexpr bool GRADIENT = false;
	T *y;
	const T *x;
	int64_t c;
	template <bool PACKS>
	__device__ void values(float (&v)[PARTS][CHUNK], int64_t i, int64_t j, int64_t left) const
	{
		const int64_t at = i * c + j;
		chunk_load<PACKS>(v[0], x + at, left);
		#pragma unroll
		for (int l = 0; l < CHUNK; l++)
			v[0][l] = gelu<T>(v[0][l]);
		chunk_keep<PACKS>(y, at, v[0], left);
	}
};

template <class T> struct gelu_slope_source {
	static constexpr int PARTS = 1;
	static constexpr bool GRADIENT = true;
	T *dx;
	const T *dy, *x;
	int64_t c;
	template <bool PACKS>
	__device__ void values(float (&v)[PARTS][CHUNK], int64_t i, int64_t j, int64_t left) const
	{
		const int64_t at = i * c + j;
		float all[CHUNK];
		chunk_load<PACKS>(all, x + at, left);
		chunk_load<PACKS>(v[0], dy + at, left);
		#pragma unroll
		for (int l = 0; l < CHUNK; l++)
			v[0][l] *= gelu_slope<T>(all[l]);
		chunk_keep<PACKS>(dx, at, v[0], left);
	}
};

template <class T> struct swiglu_source {
	static constexpr int PARTS = 1;
	static constexpr bool GRADIENT = false;
	T *y;
	const T *gu;
	int64_t f;
	template <bool PACKS>
	__device__ void values(float (&v)[PARTS][CHUNK], int64_t i, int64_t j, int64_t left) const
	{
		float up[CHUNK];
		chunk_load<PACKS>(v[0], gu + i * 2 * f + j, left);
		chunk_load<PACKS>(up, gu + i * 2 * f + f + j, left);
		#pragma unroll
		for (int l = 0; l < CHUNK; l++)
			v[0][l] = v[0][l] * sigmoid<T>(v[0][l]) * up[l];
		chunk_keep<PACKS>(y, i * f + j, v[0], left);
	}
};

/* The gradient of the gate, and that of up. */
template <class T> struct swiglu_slope_source {
	static constexpr int PARTS = 2;
	static constexpr bool GRADIENT = true;
	T *dgu;
	const T *dy, *gu;
	int64_t f;
	template <bool PACKS>
	__device__ void values(float (&v)[PARTS][CHUNK], int64_t i, int64_t j, int64_t left) const
	{
		const int64_t at = i * 2 * f + j;
		float d[CHUNK];
		chunk_load<PACKS>(v[0], gu + at, left);
		chunk_load<PACKS>(v[1], gu + at + f, left);
		chunk_load<PACKS>(d, dy + i * f + j, left);
		#pragma unroll
		for (int l = 0; l < CHUNK; l++)
			swiglu_slopes<T>(v[0][l], v[1][l], d[l]);
		chunk_keep<PACKS>(dgu, at, v[0], left);
		chunk_keep<PACKS>(dgu, at + f, v[1], left);
	}
};

/* --- The ops --- */

/* s NULL: the largest number is not wanted. */
template <class T, bool LARGEST>
static void queue_gelu_fwd(struct backend *k, const char *op, void *yv, const void *xv,
			   int64_t count, struct fp8_scale *s)
{
	T *y = (T *)yv;
	const T *x = (const T *)xv;
	constexpr int v = pack_of<T>;
	if (pack_fits(x, 0) && pack_fits(y, 0))
		launch(k, op, gelu_fwd_kernel<T, v, LARGEST>, flat_blocks(count, v), FLAT, 0, y, x,
		       count, s);
	else
		launch(k, op, gelu_fwd_kernel<T, 1, LARGEST>, flat_blocks(count, 1), FLAT, 0, y, x,
		       count, s);
}

template <class T, bool LARGEST>
static void queue_gelu_bwd(struct backend *k, const char *op, void *dxv, const void *dyv,
			   const void *xv, int64_t count, struct fp8_scale *s)
{
	T *dx = (T *)dxv;
	const T *dy = (const T *)dyv, *x = (const T *)xv;
	constexpr int v = pack_of<T>;
	if (pack_fits(x, 0) && pack_fits(dy, 0) && pack_fits(dx, 0))
		launch(k, op, gelu_bwd_kernel<T, v, LARGEST>, flat_blocks(count, v), FLAT, 0, dx,
		       dy, x, count, s);
	else
		launch(k, op, gelu_bwd_kernel<T, 1, LARGEST>, flat_blocks(count, 1), FLAT, 0, dx,
		       dy, x, count, s);
}

template <class T, bool LARGEST>
static void queue_swiglu_fwd(struct backend *k, const char *op, void *yv, const void *guv,
			     int64_t n, int64_t f, struct fp8_scale *s)
{
	T *y = (T *)yv;
	const T *gu = (const T *)guv;
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(y, f) && pack_fits(gu, f);
	struct tile tile = tile_over(n, packs ? f / v : f);
	launch(k, op, packs ? swiglu_fwd_kernel<T, v, LARGEST> : swiglu_fwd_kernel<T, 1, LARGEST>,
	       tile_blocks(&tile), TILE, 0, y, gu, tile, s);
}

template <class T, bool LARGEST>
static void queue_swiglu_bwd(struct backend *k, const char *op, void *dguv, const void *dyv,
			     const void *guv, int64_t n, int64_t f, struct fp8_scale *s)
{
	T *dgu = (T *)dguv;
	const T *dy = (const T *)dyv, *gu = (const T *)guv;
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(dgu, f) && pack_fits(dy, f) && pack_fits(gu, f);
	struct tile tile = tile_over(n, packs ? f / v : f);
	launch(k, op, packs ? swiglu_bwd_kernel<T, v, LARGEST> : swiglu_bwd_kernel<T, 1, LARGEST>,
	       tile_blocks(&tile), TILE, 0, dgu, dy, gu, tile, s);
}

template <class T> static void gelu_fwd(struct backend *k, void *y, const void *x, int64_t count)
{
	queue_gelu_fwd<T, false>(k, "gelu_fwd", y, x, count, NULL);
}

template <class T>
static void gelu_fwd_cast(struct backend *k, void *y, const void *x, int64_t n, int64_t c,
			  const struct fp8_copies *to)
{
	const gelu_source<T> s = { to->only ? NULL : (T *)y, (const T *)x, c };
	if (only_largest(to))
		queue_gelu_fwd<T, true>(k, "gelu_fwd_cast", y, x, n * c, to->scale);
	else
		queue_cast(k, "gelu_fwd_cast", to, 0, s, chunk_fits(s.y, c) && chunk_fits(s.x, c),
			   n, c);
}

template <class T>
static void gelu_bwd(struct backend *k, void *dx, const void *dy, const void *x, int64_t count)
{
	queue_gelu_bwd<T, false>(k, "gelu_bwd", dx, dy, x, count, NULL);
}

template <class T>
static void gelu_bwd_cast(struct backend *k, void *dx, const void *dy, const void *x, int64_t n,
			  int64_t c, const struct fp8_copies *to)
{
	const gelu_slope_source<T> s = { to->only ? NULL : (T *)dx, (const T *)dy, (const T *)x,
					 c };
	if (only_largest(to))
		queue_gelu_bwd<T, true>(k, "gelu_bwd_cast", dx, dy, x, n * c, to->scale);
	else
		queue_cast(k, "gelu_bwd_cast", to, 0, s,
			   chunk_fits(s.dx, c) && chunk_fits(s.dy, c) && chunk_fits(s.x, c), n, c);
}

template <class T>
static void swiglu_fwd(struct backend *k, void *y, const void *gu, int64_t n, int64_t f)
{
	queue_swiglu_fwd<T, false>(k, "swiglu_fwd", y, gu, n, f, NULL);
}

template <class T>
static void swiglu_fwd_cast(struct backend *k, void *y, const void *gu, int64_t n, int64_t f,
			    const struct fp8_copies *to)
{
	const swiglu_source<T> s = { to->only ? NULL : (T *)y, (const T *)gu, f };
	if (only_largest(to))
		queue_swiglu_fwd<T, true>(k, "swiglu_fwd_cast", y, gu, n, f, to->scale);
	else
		queue_cast(k, "swiglu_fwd_cast", to, 0, s,
			   chunk_fits(s.y, f) && chunk_fits(s.gu, f), n, f);
}

template <class T>
static void swiglu_bwd(struct backend *k, void *dgu, const void *dy, const void *gu, int64_t n,
		       int64_t f)
{
	queue_swiglu_bwd<T, false>(k, "swiglu_bwd", dgu, dy, gu, n, f, NULL);
}

template <class T>
static void swiglu_bwd_cast(struct backend *k, void *dgu, const void *dy, const void *gu, int64_t n,
			    int64_t f, const struct fp8_copies *to)
{
	const swiglu_slope_source<T> s = { to->only ? NULL : (T *)dgu, (const T *)dy, (const T *)gu,
					   f };
	if (only_largest(to))
		queue_swiglu_bwd<T, true>(k, "swiglu_bwd_cast", dgu, dy, gu, n, f, to->scale);
	else
		queue_cast(k, "swiglu_bwd_cast", to, 0, s,
			   chunk_fits(s.dgu, f) && chunk_fits(s.dy, f) && chunk_fits(s.gu, f), n,
			   f);
}

template <class T> static void fill(struct ops *o)
{
	o->gelu_fwd = gelu_fwd<T>;
	o->gelu_bwd = gelu_bwd<T>;
	o->swiglu_fwd = swiglu_fwd<T>;
	o->swiglu_bwd = swiglu_bwd<T>;
	o->gelu_fwd_cast = gelu_fwd_cast<T>;
	o->gelu_bwd_cast = gelu_bwd_cast<T>;
	o->swiglu_fwd_cast = swiglu_fwd_cast<T>;
	o->swiglu_bwd_cast = swiglu_bwd_cast<T>;
}

CUDA_FILL(act)
