/* Handles, layouts, descriptions and preferences of cuBLASLt's double. */
#include "tests/gpu/doubles/blaslt.h"

#include "tests/gpu/doubles/runtime.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct blas_layout) <= sizeof(cublasLtMatrixLayoutOpaque_t),
	       "a layout must fit in the caller's opaque one");
_Static_assert(sizeof(struct blas_desc) <= sizeof(cublasLtMatmulDescOpaque_t),
	       "so must a description");
_Static_assert(sizeof(struct blas_pref) <= sizeof(cublasLtMatmulPreferenceOpaque_t),
	       "so must a preference");

/* --- Handles and layouts ------------------------------------------------------------------ */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
	struct cublasLtContext *c = malloc(sizeof *c);
	c->device = double_device();
	*out = c;
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
	free(handle);
	return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
	return CUBLAS_VERSION;
}

size_t cublasLtGetCudartVersion(void)
{
	return CUDART_VERSION;
}

const char *cublasLtGetStatusName(cublasStatus_t status)
{
	return status == CUBLAS_STATUS_SUCCESS         ? "CUBLAS_STATUS_SUCCESS"
	       : status == CUBLAS_STATUS_NOT_SUPPORTED ? "CUBLAS_STATUS_NOT_SUPPORTED"
						       : "CUBLAS_STATUS_INVALID_VALUE";
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
	return cublasLtGetStatusName(status);
}

cublasStatus_t cublasLtMatrixLayoutInit_internal(cublasLtMatrixLayout_t layout, size_t size,
						 cudaDataType type, uint64_t rows, uint64_t cols,
						 int64_t ld)
{
	struct blas_layout *l = (struct blas_layout *)(void *)layout;
	if (size < sizeof *l || !blas_width(type))
		return CUBLAS_STATUS_INVALID_VALUE;
	*l = (struct blas_layout){
		.type = type, .batch = 1, .rows = (int64_t)rows, .cols = (int64_t)cols, .ld = ld
	};
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
					  uint64_t rows, uint64_t cols, int64_t ld)
{
	*out = malloc(sizeof **out);
	return cublasLtMatrixLayoutInit_internal(*out, sizeof **out, type, rows, cols, ld);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
	free(layout);
	return CUBLAS_STATUS_SUCCESS;
}

/* Where one attribute is stored. */
struct attribute_place {
	void *at;
	size_t bytes;
};

static cublasStatus_t put(struct attribute_place p, const void *from, size_t bytes,
			  const char *what, int attr)
{
	if (!p.at)
		double_misuse("the double does not know attribute %d of a %s", attr, what);
	if (bytes != p.bytes)
		double_misuse("attribute %d of a %s has %zu bytes, not %zu", attr, what, p.bytes,
			      bytes);
	memcpy(p.at, from, bytes);
	return CUBLAS_STATUS_SUCCESS;
}

#define PLACE(field) \
	(struct attribute_place) \
	{ \
		&(field), sizeof(field) \
	}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
						cublasLtMatrixLayoutAttribute_t attr,
						const void *from, size_t bytes)
{
	struct blas_layout *l = (struct blas_layout *)(void *)layout;
	struct attribute_place p = { 0 };
	int32_t order = CUBLASLT_ORDER_COL;
	switch (attr) {
	case CUBLASLT_MATRIX_LAYOUT_TYPE:
		p = PLACE(l->type);
		break;
	case CUBLASLT_MATRIX_LAYOUT_ROWS:
		p = PLACE(l->rows);
		break;
	case CUBLASLT_MATRIX_LAYOUT_COLS:
		p = PLACE(l->cols);
		break;
	case CUBLASLT_MATRIX_LAYOUT_LD:
		p = PLACE(l->ld);
		break;
	case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
		p = PLACE(l->batch);
		break;
	case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
		p = PLACE(l->stride);
		break;
	case CUBLASLT_MATRIX_LAYOUT_ORDER:
		p = PLACE(order);
		break;
	default:
		break;
	}
	cublasStatus_t rc = put(p, from, bytes, "layout", (int)attr);
	if (order != CUBLASLT_ORDER_COL)
		double_misuse("the double takes matrices in column-major order");
	return rc;
}

cublasStatus_t cublasLtMatmulDescInit_internal(cublasLtMatmulDesc_t desc, size_t size,
					       cublasComputeType_t compute, cudaDataType_t scale)
{
	struct blas_desc *d = (struct blas_desc *)(void *)desc;
	if (size < sizeof *d)
		return CUBLAS_STATUS_INVALID_VALUE;
	*d = (struct blas_desc){ .compute = compute,
				 .scale = scale,
				 .epilogue = CUBLASLT_EPILOGUE_DEFAULT,
				 .bias_type = -1,
				 .aux_type = -1 };
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
					cudaDataType_t scale)
{
	*out = malloc(sizeof **out);
	return cublasLtMatmulDescInit_internal(*out, sizeof **out, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
	free(desc);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
					      cublasLtMatmulDescAttributes_t attr, const void *from,
					      size_t bytes)
{
	struct blas_desc *d = (struct blas_desc *)(void *)desc;
	struct attribute_place p = { 0 };
	int32_t mode = CUBLASLT_POINTER_MODE_HOST;
	switch (attr) {
	case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
		p = PLACE(d->compute);
		break;
	case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
		p = PLACE(d->scale);
		break;
	case CUBLASLT_MATMUL_DESC_POINTER_MODE:
		p = PLACE(mode);
		break;
	case CUBLASLT_MATMUL_DESC_TRANSA:
		p = PLACE(d->trans_a);
		break;
	case CUBLASLT_MATMUL_DESC_TRANSB:
		p = PLACE(d->trans_b);
		break;
	case CUBLASLT_MATMUL_DESC_EPILOGUE:
		p = PLACE(d->epilogue);
		break;
	case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
		p = PLACE(d->bias);
		break;
	case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
		p = PLACE(d->bias_stride);
		break;
	case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE:
		p = PLACE(d->bias_type);
		break;
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
		p = PLACE(d->aux);
		break;
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
		p = PLACE(d->aux_ld);
		break;
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
		p = PLACE(d->aux_stride);
		break;
	case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_DATA_TYPE:
		p = PLACE(d->aux_type);
		break;
	case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
		p = PLACE(d->scales[0]);
		break;
	case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
		p = PLACE(d->scales[1]);
		break;
	case CUBLASLT_MATMUL_DESC_C_SCALE_POINTER:
		p = PLACE(d->scales[2]);
		break;
	case CUBLASLT_MATMUL_DESC_D_SCALE_POINTER:
		p = PLACE(d->scales[3]);
		break;
	case CUBLASLT_MATMUL_DESC_AMAX_D_POINTER:
		p = PLACE(d->amax);
		break;
	case CUBLASLT_MATMUL_DESC_FAST_ACCUM:
		p = PLACE(d->fast);
		break;
	default:
		break;
	}
	cublasStatus_t rc = put(p, from, bytes, "product", (int)attr);
	if (mode != CUBLASLT_POINTER_MODE_HOST)
		double_misuse("the double takes alpha and beta in the host's memory");
	return rc;
}

cublasStatus_t cublasLtMatmulPreferenceInit_internal(cublasLtMatmulPreference_t pref, size_t size)
{
	struct blas_pref *p = (struct blas_pref *)(void *)pref;
	if (size < sizeof *p)
		return CUBLAS_STATUS_INVALID_VALUE;
	*p = (struct blas_pref){ .align = { BLAS_ALIGN, BLAS_ALIGN, BLAS_ALIGN, BLAS_ALIGN } };
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
	*out = malloc(sizeof **out);
	return cublasLtMatmulPreferenceInit_internal(*out, sizeof **out);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t pref)
{
	free(pref);
	return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t pref,
						    cublasLtMatmulPreferenceAttributes_t attr,
						    const void *from, size_t bytes)
{
	struct blas_pref *f = (struct blas_pref *)(void *)pref;
	struct attribute_place p = { 0 };
	uint32_t other;
	switch (attr) {
	case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
		p = PLACE(f->workspace);
		break;
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
		p = PLACE(f->align[0]);
		break;
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
		p = PLACE(f->align[1]);
		break;
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
		p = PLACE(f->align[2]);
		break;
	case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
		p = PLACE(f->align[3]);
		break;
	case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
		p = PLACE(other);
		break;
	default:
		break;
	}
	return put(p, from, bytes, "preference", (int)attr);
}
