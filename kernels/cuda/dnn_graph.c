/* Tensors and operations of cuDNN's graphs. */
#include "kernels/cuda/dnn.h"

#ifdef HAVE_CUDNN

#include <string.h>

/* --- Descriptors -------------------------------------------------------------------------- */

static void keep_failure(struct dnn_graph *g, cudnnStatus_t rc, const char *where)
{
	if (g->rc != CUDNN_STATUS_SUCCESS || rc == CUDNN_STATUS_SUCCESS)
		return;
	g->rc = rc;
	g->where = where;
}

/* NULL after a failure. */
static cudnnBackendDescriptor_t new_descriptor(struct dnn_graph *g,
					       cudnnBackendDescriptorType_t type, const char *where)
{
	cudnnBackendDescriptor_t d = NULL;
	if (g->made_count == DNN_DESCRIPTORS)
		keep_failure(g, CUDNN_STATUS_INTERNAL_ERROR, "more descriptors than fit");
	if (g->rc == CUDNN_STATUS_SUCCESS)
		keep_failure(g, g->dnn->BackendCreateDescriptor(type, &d), where);
	if (g->rc != CUDNN_STATUS_SUCCESS)
		return NULL;
	return g->made[g->made_count++] = d;
}

static void set(struct dnn_graph *g, cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t count, const void *value,
		const char *where)
{
	if (g->rc == CUDNN_STATUS_SUCCESS)
		keep_failure(g, g->dnn->BackendSetAttribute(d, name, type, count, value), where);
}

static void set_descriptor(struct dnn_graph *g, cudnnBackendDescriptor_t d,
			   cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t value,
			   const char *where)
{
	if (value)
		set(g, d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value, where);
}

static void finalize(struct dnn_graph *g, cudnnBackendDescriptor_t d, const char *where)
{
	if (g->rc == CUDNN_STATUS_SUCCESS)
		keep_failure(g, g->dnn->BackendFinalize(d), where);
}

static void finalize_operation(struct dnn_graph *g, cudnnBackendDescriptor_t d, const char *where)
{
	finalize(g, d, where);
	if (g->operation_count == DNN_OPERATIONS)
		keep_failure(g, CUDNN_STATUS_INTERNAL_ERROR, "more operations than fit");
	if (g->rc == CUDNN_STATUS_SUCCESS)
		g->operations[g->operation_count++] = d;
}

void dnn_graph_init(struct dnn_graph *g, const struct dnn *dnn)
{
	memset(g, 0, sizeof *g);
	g->dnn = dnn;
	g->rc = CUDNN_STATUS_SUCCESS;
	g->next_virtual = DNN_VIRTUAL;
}

void dnn_graph_fini(struct dnn_graph *g)
{
	while (g->made_count > 0)
		g->dnn->BackendDestroyDescriptor(g->made[--g->made_count]);
}

/* --- Tensors ------------------------------------------------------------------------------ */

struct dnn_extent dnn_dense(int64_t a, int64_t b, int64_t c, int64_t d)
{
	return (struct dnn_extent){ { a, b, c, d }, { b * c * d, c * d, d, 1 } };
}

struct dnn_extent dnn_transposed(struct dnn_extent x)
{
	return (struct dnn_extent){
		{ x.size[0], x.size[1], x.size[3], x.size[2] },
		{ x.stride[0], x.stride[1], x.stride[3], x.stride[2] },
	};
}

/* flag: CUDNN_ATTR_TENSOR_IS_VIRTUAL or ..._IS_BY_VALUE, or CUDNN_ATTR_TENSOR_DATA_TYPE for
 * neither. */
static cudnnBackendDescriptor_t new_tensor(struct dnn_graph *g, int64_t uid, cudnnDataType_t type,
					   const struct dnn_extent *x, int64_t align,
					   cudnnBackendAttributeName_t flag)
{
	static const char where[] = "a tensor";
	bool yes = true;
	cudnnBackendDescriptor_t d = new_descriptor(g, CUDNN_BACKEND_TENSOR_DESCRIPTOR, where);
	set(g, d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, where);
	set(g, d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, DNN_RANK, x->size, where);
	set(g, d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, DNN_RANK, x->stride, where);
	set(g, d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid, where);
	set(g, d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &align, where);
	if (flag != CUDNN_ATTR_TENSOR_DATA_TYPE)
		set(g, d, flag, CUDNN_TYPE_BOOLEAN, 1, &yes, where);
	finalize(g, d, where);
	return d;
}

cudnnBackendDescriptor_t dnn_tensor(struct dnn_graph *g, int64_t uid, cudnnDataType_t type,
				    struct dnn_extent x, int64_t align)
{
	return new_tensor(g, uid, type, &x, align, CUDNN_ATTR_TENSOR_DATA_TYPE);
}

cudnnBackendDescriptor_t dnn_virtual(struct dnn_graph *g, cudnnDataType_t type, struct dnn_extent x)
{
	return new_tensor(g, g->next_virtual++, type, &x, 16, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
}

cudnnBackendDescriptor_t dnn_number(struct dnn_graph *g, int64_t uid)
{
	struct dnn_extent one = dnn_dense(1, 1, 1, 1);
	return new_tensor(g, uid, CUDNN_DATA_FLOAT, &one, 16, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
}

/* --- Operations --------------------------------------------------------------------------- */

void dnn_matmul(struct dnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
		cudnnBackendDescriptor_t c)
{
	static const char where[] = "a product";
	cudnnDataType_t type = CUDNN_DATA_FLOAT;
	cudnnBackendDescriptor_t kind = new_descriptor(g, CUDNN_BACKEND_MATMUL_DESCRIPTOR, where);
	set(g, kind, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, where);
	finalize(g, kind, where);
	cudnnBackendDescriptor_t op = new_descriptor(g, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR,
						     where);
	set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a, where);
	set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b, where);
	set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c, where);
	set_descriptor(g, op, CUDNN_ATTR_OPERATION_MATMUL_DESC, kind, where);
	finalize_operation(g, op, where);
}

/* axis: of the mode GEN_INDEX. */
static void add_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type,
			  int64_t axis, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
			  cudnnBackendDescriptor_t t, cudnnBackendDescriptor_t y)
{
	static const char where[] = "a pointwise operation";
	const float one = 1;
	cudnnBackendDescriptor_t kind = new_descriptor(g, CUDNN_BACKEND_POINTWISE_DESCRIPTOR,
						       where);
	set(g, kind, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode, where);
	set(g, kind, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &type, where);
	if (mode == CUDNN_POINTWISE_GEN_INDEX)
		set(g, kind, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis, where);
	finalize(g, kind, where);
	cudnnBackendDescriptor_t op =
		new_descriptor(g, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, where);
	set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind, where);
	set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x, where);
	set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y, where);
	set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b, where);
	set_descriptor(g, op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t, where);
	set(g, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_TYPE_FLOAT, 1, &one, where);
	set(g, op, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, CUDNN_TYPE_FLOAT, 1, &one, where);
	finalize_operation(g, op, where);
}

void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type,
		   cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
		   cudnnBackendDescriptor_t t, cudnnBackendDescriptor_t y)
{
	add_pointwise(g, mode, type, 0, x, b, t, y);
}

void dnn_index(struct dnn_graph *g, int64_t axis, cudnnBackendDescriptor_t x,
	       cudnnBackendDescriptor_t y)
{
	add_pointwise(g, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, axis, x, NULL, NULL, y);
}

void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t op, cudnnBackendDescriptor_t x,
		cudnnBackendDescriptor_t y)
{
	static const char where[] = "a reduction";
	cudnnDataType_t type = CUDNN_DATA_FLOAT;
	cudnnBackendDescriptor_t kind = new_descriptor(g, CUDNN_BACKEND_REDUCTION_DESCRIPTOR,
						       where);
	set(g, kind, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type, where);
	set(g, kind, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &op,
	    where);
	finalize(g, kind, where);
	cudnnBackendDescriptor_t d = new_descriptor(g, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR,
						    where);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind, where);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x, where);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y, where);
	finalize_operation(g, d, where);
}

void dnn_reshape(struct dnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y)
{
	static const char where[] = "a reshape";
	cudnnBackendDescriptor_t d = new_descriptor(g, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR,
						    where);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x, where);
	set_descriptor(g, d, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y, where);
	finalize_operation(g, d, where);
}

#endif
