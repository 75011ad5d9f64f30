/* norm — the arguments of the norms' kernels (kernels/ops_table.h describes them), and the kernels
 * for rows of any width. */
#ifndef MUSTER_KERNELS_CUDA_NORM_CUH
#define MUSTER_KERNELS_CUDA_NORM_CUH

#include "kernels/cuda/largest.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/reduce.cuh"

template <class T> struct norm_fwd_args {
	T *y, *sum; /* y NULL: only the sum, the means and the deviations are wanted */
	float *mean, *rstd;
	const T *x, *r, *w, *bias;
	int64_t n, c;
	float eps;
	struct fp8_scale *largest; /* NULL: not wanted */
};

template <class T> struct norm_bwd_args {
	T *dx;
	float *dw, *dbias;
	const T *dy, *dres, *x;
	const float *mean, *rstd;
	const T *w;
	int64_t n, c;
	bool add;
	struct fp8_scale *scale; /* whose largest number is raised; NULL: not wanted */
};

/* Enters the ops of the backward pass (norm_bwd.cu). */
template <class T> void norm_fill_bwd(struct ops *o);

/* centred: LayerNorm. Otherwise mean, bias and dbias are NULL. */
template <class T>
void norm_fwd_wide(struct backend *k, const char *op, const struct norm_fwd_args<T> *a,
		   bool centred);
template <class T>
void norm_bwd_wide(struct backend *k, const char *op, const struct norm_bwd_args<T> *a,
		   bool centred);

#endif
