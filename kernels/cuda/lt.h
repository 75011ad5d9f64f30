/* lt — the functions of cuBLASLt that products need, loaded by dlopen. */
#ifndef MUSTER_KERNELS_CUDA_LT_H
#define MUSTER_KERNELS_CUDA_LT_H

#include "base/err.h"

#include <cublasLt.h>

/* clang-format off */
#define LT_FUNCTIONS(X) \
	X(Create) \
	X(Destroy) \
	X(GetVersion) \
	X(GetStatusString) \
	X(Matmul) \
	X(MatmulAlgoGetHeuristic) \
	X(MatmulAlgoCheck) \
	X(MatmulAlgoConfigGetAttribute) \
	X(MatmulDescCreate) \
	X(MatmulDescDestroy) \
	X(MatmulDescSetAttribute) \
	X(MatrixLayoutCreate) \
	X(MatrixLayoutDestroy) \
	X(MatmulPreferenceCreate) \
	X(MatmulPreferenceDestroy) \
	X(MatmulPreferenceSetAttribute)
/* clang-format on */

struct lt {
#define LT_FIELD(f) __typeof__(&cublasLt##f) f;
	LT_FUNCTIONS(LT_FIELD)
#undef LT_FIELD
};

/* Loads the library at the first call; it stays loaded. */
int lt_load(const struct lt **out, struct err *e);

#endif
