/*
 * The backward passes of LayerNorm and RMSNorm. Each block goes over rows and keeps its threads'
 * columns of dw and dbias in registers. sums.cuh adds those of all blocks. Rows that are too wide, or
 * not whole packs, are in norm_wide.cu.
 *
 * Where 8-bit copies of dx are wanted, the same kernel writes them: a block takes panels of FP8_ROW
 * rows, and turns a panel in shared memory into pieces of 16 bytes of the transposed copy. For each
 * element it reads dy, x and dres, and writes dx and two copies: 10 bytes with storage of 2. A cast
 * after it would read dx again: 12 bytes. A kernel for the sums and one for the tiles, as in the
 * forward pass, would read dy and x twice: 14 bytes.
 */
#include "kernels/cuda/cast.cuh"
#include "kernels/cuda/norm.cuh"
#include "kernels/cuda/ptx.cuh"
#include "kernels/cuda/sums.cuh"

/*
 * Each thread holds NUMBERS sums of dw, and of dbias if there is one, for P packs of columns. A block
 * takes R rows at a time, whose sums share two barriers. It loads the packs of the next rows before it
 * works on the present ones, so that loads are always under way. Packs in the storage type need few
 * registers for this.
 */
enum { BWD_NUMBERS = 16, BWD_MAX = 512 };

/* What the kernel makes of dx besides: nothing, its largest number, or also copies in 8 bits. */
enum bwd_more { BWD_ONLY, BWD_LARGEST, BWD_COPIES };

/* A block of 512 threads has 128 registers for each thread. Where the packs of the next rows do not
 * fit in them, nothing is loaded ahead, and dres is loaded as late as possible. */
template <class T, int NUMBERS>
constexpr int bwd_rows_of = NUMBERS < BWD_NUMBERS && sizeof(T) < sizeof(float) ? 2 : 1;
template <class T, int NUMBERS, bwd_more MORE>
constexpr bool bwd_ahead = NUMBERS < BWD_NUMBERS ||
			   (sizeof(T) < sizeof(float) && MORE != BWD_COPIES);

struct bwd_copies {
	uint8_t *at, *transposed;
	__nv_fp8_interpretation_t kind;
	int64_t padded; /* numbers of a row of transposed */
	bool sums;      /* of dx's columns, after those of dw and dbias in the parts */
};

/* Bytes of V columns of a panel in shared memory. An odd number of words, so that threads which
 * write neighbouring packs meet no bank conflict. */
template <int V> constexpr int panel_pack = V *FP8_ROW + 4;

/* Casts V numbers of dx from element `at` on, and stages them in the panel at `turn`. Of rows beyond
 * the last one, the panel has zeros. */
template <int V>
__device__ inline void stage_pack(const bwd_copies &to, const float (&x)[V], bool there, int64_t at,
				  uint8_t *turn, float scale)
{
	uint32_t word[V / 4] = {};
	#pragma unroll
	for (int i = 0; i < V && there; i += 4)
		word[i / 4] = to_fp8_pair(x[i], x[i + 1], scale, to.kind) |
			      to_fp8_pair(x[i + 2], x[i + 3], scale, to.kind) << 16;
	#pragma unroll
	for (int i = 0; i < V; i++)
		turn[i * FP8_ROW] = (uint8_t)(word[i / 4] >> i % 4 * 8);
	#pragma unroll
	for (int i = 0; i < V / 4; i++)
		if (there && to.at)
			*(uint32_t *)(to.at + at + 4 * i) = word[i];
}

/* Writes the panel of rows from `row` on. */
template <int V>
__device__ inline void store_panel(const bwd_copies &to, const uint8_t *turn, int64_t row,
				   int64_t c)
{
	for (int64_t j = threadIdx.x; j < c; j += blockDim.x) {
		const uint32_t *from =
			(const uint32_t *)(turn + j / V * panel_pack<V> + j % V * FP8_ROW);
		*(uint4 *)(to.transposed + j * to.padded + row) = make_uint4(from[0], from[1],
									     from[2], from[3]);
	}
}

/* A thread's packs of R rows, as they are in memory. */
template <int P, int R> struct bwd_packs {
	uint4 dy[R][P], x[R][P], dres[R][P];
};
/* dy and x in fp32, dres as it is in memory, and 1 / standard deviation of each row. */
template <int P, int R, int V> struct bwd_rows {
	float dy[R][P][V], x[R][P][V], rstd[R];
	uint4 dres[R][P];
};
/* Sums of columns, over all rows of the block. */
template <int P, int V> struct bwd_columns {
	float dw[P][V], db[P][V], dx[P][V];
};

/* Rows beyond the last one are zeros, which add nothing to the sums. */
template <class T, int P, int R>
__device__ inline void bwd_load(bwd_packs<P, R> &t, const norm_bwd_args<T> &a, int64_t row)
{
	t = {};
	#pragma unroll
	for (int r = 0; r < R; r++)
		#pragma unroll
		for (int p = 0; p < P; p++) {
			const int64_t j = ((int64_t)threadIdx.x + p * blockDim.x) * pack_of<T>,
				      at = (row + r) * a.c + j;
			if (row + r < a.n && j < a.c) {
				t.dy[r][p] = *(const uint4 *)(a.dy + at);
				t.x[r][p] = *(const uint4 *)(a.x + at);
				if (a.dres)
					t.dres[r][p] = *(const uint4 *)(a.dres + at);
			}
		}
}

/* From packs that were loaded ahead, or else from memory. */
template <bool AHEAD, class T, int P, int R, int V>
__device__ inline void bwd_open(bwd_rows<P, R, V> &t, const bwd_packs<P, R> &packs,
				const norm_bwd_args<T> &a, int64_t row)
{
	#pragma unroll
	for (int r = 0; r < R; r++)
		#pragma unroll
		for (int p = 0; p < P; p++) {
			const int64_t j = ((int64_t)threadIdx.x + p * blockDim.x) * V,
				      at = (row + r) * a.c + j;
			if (AHEAD) {
				load<V>(t.dy[r][p], (const T *)&packs.dy[r][p]);
				load<V>(t.x[r][p], (const T *)&packs.x[r][p]);
				t.dres[r][p] = packs.dres[r][p];
			} else if (row + r < a.n && j < a.c) {
				load<V>(t.dy[r][p], a.dy + at);
				load<V>(t.x[r][p], a.x + at);
			}
		}
}

/* Replaces x by the normalized input h, and dy by g = dy w. sums: of g, and of g h, for each row. */
template <class T, bool CENTRED, int P, int R, int V>
__device__ inline void bwd_sum(bwd_rows<P, R, V> &t, bwd_columns<P, V> &columns,
			       float (&sums)[2 * R], const norm_bwd_args<T> &a, int64_t row)
{
	#pragma unroll
	for (int r = 0; r < R; r++) {
		const bool there = row + r < a.n;
		const float mean = CENTRED && there ? a.mean[row + r] : 0;
		t.rstd[r] = there ? a.rstd[row + r] : 0;
		#pragma unroll
		for (int p = 0; p < P; p++) {
			const int64_t j = ((int64_t)threadIdx.x + p * blockDim.x) * V;
			if (j < a.c) {
				float w[V];
				load<V>(w, a.w + j);
				#pragma unroll
				for (int i = 0; i < V; i++) {
					const float d = t.dy[r][p][i],
						    h = (t.x[r][p][i] - mean) * t.rstd[r],
						    g = d * w[i];
					columns.dw[p][i] += d * h;
					columns.db[p][i] += CENTRED ? d : 0;
					sums[2 * r] += CENTRED ? g : 0;
					sums[2 * r + 1] += g * h;
					t.x[r][p][i] = h;
					t.dy[r][p][i] = g;
				}
			}
		}
	}
}

/* Stores the columns' sums of this block: of dw, dbias and dx. */
template <bool CENTRED, bool COPIES, int P, int V>
__device__ inline void bwd_store_columns(const bwd_columns<P, V> &columns, float *parts, int64_t c,
					 bool sums)
{
	const int64_t next = (int64_t)gridDim.x * c;
	#pragma unroll
	for (int p = 0; p < P; p++) {
		const int64_t j = ((int64_t)threadIdx.x + p * blockDim.x) * V;
		float *at = parts + blockIdx.x * c + j;
		if (j >= c)
			return;
		store<V>(at, columns.dw[p]);
		if (CENTRED)
			store<V>(at + next, columns.db[p]);
		if (COPIES && sums)
			store<V>(at + (CENTRED ? 2 : 1) * next, columns.dx[p]);
	}
}

/* Stores row `row`, number r of those in t, and makes of it what MORE says. turn: its place in the
 * panel. */
template <bool AHEAD, bwd_more MORE, class T, int P, int R, int V>
__device__ inline void bwd_store(const bwd_rows<P, R, V> &t, bwd_columns<P, V> &columns,
				 const float (&sums)[2 * R], const norm_bwd_args<T> &a, int64_t row,
				 int r, const bwd_copies &to, uint8_t *turn, float scale,
				 uint32_t &most)
{
	const float g_mean = sums[2 * r] / (float)a.c, gh_mean = sums[2 * r + 1] / (float)a.c;
	const bool there = row < a.n;
	#pragma unroll
	for (int p = 0; p < P; p++) {
		const int64_t j = ((int64_t)threadIdx.x + p * blockDim.x) * V, at = row * a.c + j;
		float dx[V] = {};
		if (j >= a.c || (MORE != BWD_COPIES && !there))
			return;
		if (AHEAD)
			load<V>(dx, (const T *)&t.dres[r][p]);
		else if (there && a.dres)
			load<V>(dx, a.dres + at);
		#pragma unroll
		for (int i = 0; i < V; i++)
			dx[i] += t.rstd[r] * (t.dy[r][p][i] - g_mean - t.x[r][p][i] * gh_mean);
		if (there)
			store<V>(a.dx + at, dx);
		if (MORE != BWD_ONLY && there)
			most = most_of<T, V>(dx, most);
		if (MORE == BWD_COPIES) {
			#pragma unroll
			for (int i = 0; i < V; i++) {
				dx[i] = there ? stored<T>(dx[i]) : 0;
				columns.dx[p][i] += dx[i];
			}
			stage_pack<V>(to, dx, there, at, turn + j / V * panel_pack<V>, scale);
		}
	}
}

template <class T, bool CENTRED, int P, int R, bool AHEAD, bwd_more MORE>
__global__ void __launch_bounds__(BWD_MAX)
	norm_bwd_kernel(struct norm_bwd_args<T> a, float *parts, const bwd_copies to)
{
	constexpr int V = pack_of<T>, rows = MORE == BWD_COPIES ? (int)FP8_ROW : R;
	uint8_t *turn = MORE == BWD_COPIES ? dynamic_shared<uint8_t>() : NULL;
	const float scale = MORE == BWD_COPIES ? a.scale->scale : 0;
	const int64_t stride = (int64_t)gridDim.x * rows;
	bwd_columns<P, V> columns = {};
	bwd_packs<P, R> packs = {};
	uint32_t most = 0;
	if (AHEAD)
		bwd_load(packs, a, (int64_t)blockIdx.x * rows);
	for (int64_t panel = (int64_t)blockIdx.x * rows; panel < a.n; panel += stride) {
		for (int64_t row = panel; row < panel + rows; row += R) {
			bwd_rows<P, R, V> t = {};
			float sums[2 * R] = {};
			bwd_open<AHEAD>(t, packs, a, row);
			if (AHEAD)
				bwd_load(packs, a,
					 row + R < panel + rows ? row + R : panel + stride);
			bwd_sum<T, CENTRED>(t, columns, sums, a, row);
			block_sums<2 * R>(sums);
			#pragma unroll
			for (int r = 0; r < R; r++)
				bwd_store<AHEAD, MORE>(t, columns, sums, a, row + r, r, to,
						       turn + (row - panel) + r, scale, most);
		}
		if (MORE == BWD_COPIES && to.transposed) {
			__syncthreads();
			store_panel<V>(to, turn, panel, a.c);
		}
	}
	if (MORE != BWD_ONLY)
		raise_largest_of_warp(a.scale, most);
	bwd_store_columns<CENTRED, MORE == BWD_COPIES>(columns, parts, a.c, to.sums);
}

template <class T> static bool consists_of_packs(const struct norm_bwd_args<T> *a)
{
	return a->c <= (int64_t)BWD_MAX * BWD_NUMBERS && pack_fits(a->dx, a->c) &&
	       pack_fits(a->dy, a->c) && pack_fits(a->dres, a->c) && pack_fits(a->x, a->c) &&
	       pack_fits(a->w, 0);
}

/* Bytes of shared memory for a panel. */
template <class T> static size_t panel_bytes(const struct norm_bwd_args<T> *a)
{
	return (size_t)(a->c / pack_of<T>)*panel_pack<pack_of<T>>;
}

/* Whether the kernel can write such copies. `at` has 4 numbers per access, `transposed` 16. */
template <class T>
static bool copies_fit(const struct backend *k, const struct norm_bwd_args<T> *a,
		       const struct fp8_copies *to)
{
	return a->n && consists_of_packs<T>(a) && (uintptr_t)to->at % 4 == 0 &&
	       (uintptr_t)to->transposed % FP8_ROW == 0 &&
	       panel_bytes(a) <= cuda_of(k)->shared_most;
}

/* to: the copies; NULL: none. */
template <class T, bool CENTRED, int NUMBERS, bwd_more MORE>
static void norm_bwd_rows(struct backend *k, const char *op, const struct norm_bwd_args<T> *a,
			  const struct fp8_copies *to)
{
	constexpr int V = pack_of<T>, P = NUMBERS / V, R = bwd_rows_of<T, NUMBERS>,
		      rows = MORE == BWD_COPIES ? (int)FP8_ROW : R;
	float *const outs[2] = { a->dw, CENTRED ? a->dbias : NULL };
	float *const sums[2] = { to ? to->sums : NULL, NULL };
	int threads = (int)((a->c / V + P - 1) / P + WARP - 1) / WARP * WARP;
	int each = BWD_MAX / threads > 8 ? 8 : BWD_MAX / threads; /* that an SM can hold at once */
	unsigned blocks = cuda_blocks_most(k, a->n, rows, each);
	float *parts = (float *)cuda_scratch(k, 3 * blocks * (size_t)a->c * sizeof *parts, op);
	bwd_copies copies = {};
	if (!parts)
		return;
	if (to)
		copies = { to->at, to->transposed, kind_of(to->format),
			   (a->n + FP8_ROW - 1) / FP8_ROW * FP8_ROW, to->sums != NULL };
	launch(k, op, norm_bwd_kernel<T, CENTRED, P, R, bwd_ahead<T, NUMBERS, MORE>, MORE>, blocks,
	       threads, MORE == BWD_COPIES ? panel_bytes(a) : 0, *a, parts, copies);
	cuda_add_columns(k, op, outs, parts, blocks, a->c, a->add);
	if (to && to->sums)
		cuda_add_columns(k, op, sums, parts + (CENTRED ? 2 : 1) * blocks * a->c, blocks,
				 a->c, to->add);
}

/* Short rows have half as many sums per thread, and twice as many threads. */
template <class T, bool CENTRED, bwd_more MORE>
static void norm_bwd_any(struct backend *k, const char *op, const struct norm_bwd_args<T> *a,
			 const struct fp8_copies *to)
{
	if (a->c <= (int64_t)BWD_MAX * BWD_NUMBERS / 2)
		norm_bwd_rows<T, CENTRED, BWD_NUMBERS / 2, MORE>(k, op, a, to);
	else
		norm_bwd_rows<T, CENTRED, BWD_NUMBERS, MORE>(k, op, a, to);
}

template <class T, bool CENTRED>
static void norm_bwd(struct backend *k, const char *op, const struct norm_bwd_args<T> *a)
{
	float *const outs[2] = { a->dw, CENTRED ? a->dbias : NULL };
	if (a->n == 0) {
		for (int i = 0; i < 2 && !a->add; i++)
			if (outs[i])
				cuda_memory_zero(k, outs[i], (size_t)a->c * sizeof(float));
		return;
	}
	if (!consists_of_packs<T>(a))
		norm_bwd_wide<T>(k, op, a, CENTRED);
	else if (a->scale)
		norm_bwd_any<T, CENTRED, BWD_LARGEST>(k, op, a, NULL);
	else
		norm_bwd_any<T, CENTRED, BWD_ONLY>(k, op, a, NULL);
}

template <class T, bool CENTRED>
static void norm_bwd_cast(struct backend *k, const char *op, struct norm_bwd_args<T> *a,
			  const struct fp8_copies *to)
{
	a->scale = to->scale;
	if (only_largest(to)) {
		norm_bwd<T, CENTRED>(k, op, a);
	} else if (copies_fit(k, a, to)) {
		norm_bwd_any<T, CENTRED, BWD_COPIES>(k, op, a, to);
	} else {
		a->scale = NULL;
		norm_bwd<T, CENTRED>(k, op, a);
		k->ops.fp8_cast(k, a->dx, a->n, a->c, to);
	}
}

template <class T>
static struct norm_bwd_args<T> bwd_args(void *dx, float *dw, float *dbias, const void *dy,
					const void *dres, const void *x, const float *mean,
					const float *rstd, const void *w, int64_t n, int64_t c,
					bool add) {
	return { (T *)dx,
		 dw,
		 dbias,
		 (const T *)dy,
		 (const T *)dres,
		 (const T *)x,
		 mean,
		 rstd,
		 (const T *)w,
		 n,
		 c,
		 add,
		 NULL };
}

template <class T>
static void layernorm_bwd(struct backend *k, void *dx, float *dw, float *dbias, const void *dy,
			  const void *dres, const void *x, const float *mean, const float *rstd,
			  const void *w, int64_t n, int64_t c, bool add)
{
	struct norm_bwd_args<T> a = bwd_args<T>(dx, dw, dbias, dy, dres, x, mean, rstd, w, n, c,
						add);
	norm_bwd<T, true>(k, "layernorm_bwd", &a);
}

template <class T>
static void layernorm_bwd_cast(struct backend *k, void *dx, float *dw, float *dbias, const void *dy,
			       const void *dres, const void *x, const float *mean,
			       const float *rstd, const void *w, int64_t n, int64_t c, bool add,
			       const struct fp8_copies *to)
{
	struct norm_bwd_args<T> a = bwd_args<T>(dx, dw, dbias, dy, dres, x, mean, rstd, w, n, c,
						add);
	norm_bwd_cast<T, true>(k, "layernorm_bwd_cast", &a, to);
}

template <class T>
static void rmsnorm_bwd(struct backend *k, void *dx, float *dw, const void *dy, const void *dres,
			const void *x, const float *rstd, const void *w, int64_t n, int64_t c,
			bool add)
{
	struct norm_bwd_args<T> a = bwd_args<T>(dx, dw, NULL, dy, dres, x, NULL, rstd, w, n, c,
						add);
	norm_bwd<T, false>(k, "rmsnorm_bwd", &a);
}

template <class T>
static void rmsnorm_bwd_cast(struct backend *k, void *dx, float *dw, const void *dy,
			     const void *dres, const void *x, const float *rstd, const void *w,
			     int64_t n, int64_t c, bool add, const struct fp8_copies *to)
{
	struct norm_bwd_args<T> a = bwd_args<T>(dx, dw, NULL, dy, dres, x, NULL, rstd, w, n, c,
						add);
	norm_bwd_cast<T, false>(k, "rmsnorm_bwd_cast", &a, to);
}

template <class T> void norm_fill_bwd(struct ops *o)
{
	o->layernorm_bwd = layernorm_bwd<T>;
	o->rmsnorm_bwd = rmsnorm_bwd<T>;
	o->layernorm_bwd_cast = layernorm_bwd_cast<T>;
	o->rmsnorm_bwd_cast = rmsnorm_bwd_cast<T>;
}

template void norm_fill_bwd<float>(struct ops *);
template void norm_fill_bwd<__nv_bfloat16>(struct ops *);
template void norm_fill_bwd<__half>(struct ops *);
