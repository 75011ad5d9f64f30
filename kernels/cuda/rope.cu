/* Rotary position embedding. A thread keeps the cosines and sines of its pack of pairs for the
 * heads that it rotates. */
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

/* threads per block; heads that a thread loads at once; heads that a thread should have */
enum { ROPE = 128, ROPE_TURNS = 2, ROPE_HEADS = 4 };

/* `wide` threads per token; `packs` per half of a head, `along` of them on neighbouring threads. */
template <class T, int V>
__global__ void __launch_bounds__(ROPE)
	rope_kernel(T *x, struct rope_shape s, const float *cosines, const float *sines, float sign,
		    int wide, int along)
{
	const int64_t i = (int64_t)blockIdx.x * (ROPE / wide) + threadIdx.x / wide;
	const int lane = threadIdx.x % wide, half = s.dim / 2, packs = half / V,
		  heads = wide / along;
	if (i >= s.n || lane >= heads * along)
		return;
	const int64_t angle = i % s.seq * half;
	for (int p = lane % along; p < packs; p += along) {
		float c[V], n[V];
		load<V>(c, cosines + angle + p * V);
		load<V>(n, sines + angle + p * V);
		for (int h = lane / along; h < s.heads; h += ROPE_TURNS * heads) {
			float a[ROPE_TURNS][V], b[ROPE_TURNS][V];
			#pragma unroll
			for (int t = 0; t < ROPE_TURNS; t++)
				if (h + t * heads < s.heads) {
					const T *at = x + i * s.row +
						      (int64_t)(h + t * heads) * s.dim + p * V;
					load<V>(a[t], at);
					load<V>(b[t], at + half);
				}
			#pragma unroll
			for (int t = 0; t < ROPE_TURNS; t++)
				if (h + t * heads < s.heads) {
					T *at = x + i * s.row + (int64_t)(h + t * heads) * s.dim +
						p * V;
					#pragma unroll
					for (int l = 0; l < V; l++) {
						float first = a[t][l], second = b[t][l],
						      sine = sign * n[l];
						a[t][l] = first * c[l] - second * sine;
						b[t][l] = first * sine + second * c[l];
					}
					store<V>(at, a[t]);
					store<V>(at + half, b[t]);
				}
		}
	}
}

template <class T>
static void rotate(struct backend *k, const char *op, T *x, const struct rope_shape *s,
		   const float *cosines, const float *sines, float sign)
{
	constexpr int v = pack_of<T>;
	bool packs = pack_fits(x, s->row) && s->dim / 2 % v == 0 && pack_fits(cosines, 0) &&
		     pack_fits(sines, 0);
	int half = s->dim / 2 / (packs ? v : 1), along = half < ROPE ? half : (int)ROPE, wide = 1;
	if (s->n == 0 || s->heads == 0 || half == 0)
		return;
	while (wide < ROPE &&
	       (wide < along || (int64_t)wide * ROPE_HEADS < (int64_t)s->heads * half))
		wide *= 2;
	launch(k, op, packs ? rope_kernel<T, v> : rope_kernel<T, 1>, cuda_blocks(s->n, ROPE / wide),
	       ROPE, 0, x, *s, cosines, sines, sign, wide, along);
}

template <class T>
static void rope_fwd(struct backend *k, void *x, const struct rope_shape *s, const float *cosines,
		     const float *sines)
{
	rotate<T>(k, "rope_fwd", (T *)x, s, cosines, sines, 1);
}

template <class T>
static void rope_bwd(struct backend *k, void *dx, const struct rope_shape *s, const float *cosines,
		     const float *sines)
{
	rotate<T>(k, "rope_bwd", (T *)dx, s, cosines, sines, -1);
}

template <class T> static void fill(struct ops *o)
{
	o->rope_fwd = rope_fwd<T>;
	o->rope_bwd = rope_bwd<T>;
}

CUDA_FILL(rope)
