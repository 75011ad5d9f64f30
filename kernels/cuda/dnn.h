/*
 * dnn — cuDNN 9's backend interface, loaded by dlopen, and builders of its operation graphs.
 *
 * cudnn_graph.h is needed at build time only. Where it is missing, HAVE_CUDNN is not defined, and
 * attention uses muster's own kernels.
 *
 * A graph is built from tensors and operations, and then one plan is made for it. The first failure
 * stays in the graph: later calls do nothing, so that callers check once, at the end. All
 * descriptors live as long as the graph.
 *
 * Sources: "cuDNN Backend API", chapters "cudnn_graph library" (descriptors, attributes and their
 * types), and the public headers of cudnn-frontend 1.x for what the documentation does not say.
 */
#ifndef MUSTER_KERNELS_CUDA_DNN_H
#define MUSTER_KERNELS_CUDA_DNN_H

#if defined(__has_include)
#if __has_include(<cudnn_graph.h>)
#define HAVE_CUDNN
#endif
#endif

#ifdef HAVE_CUDNN

#include "base/err.h"

#include <cudnn_graph.h>
#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
#define DNN_FUNCTIONS(X) \
	X(GetVersion) \
	X(GetErrorString) \
	X(Create) \
	X(Destroy) \
	X(SetStream) \
	X(BackendCreateDescriptor) \
	X(BackendDestroyDescriptor) \
	X(BackendSetAttribute) \
	X(BackendGetAttribute) \
	X(BackendFinalize) \
	X(BackendExecute)
/* clang-format on */

struct dnn {
#define DNN_FIELD(f) __typeof__(&cudnn##f) f;
	DNN_FUNCTIONS(DNN_FIELD)
#undef DNN_FIELD
};

/* The oldest version that is used. 9.10.0 and 9.10.1 compute attention wrongly, and from 9.15.1 on
 * the backward pass needs no padding mask for lengths that are no multiple of 128 (cudnn-frontend,
 * scaled_dot_product_flash_attention.h). launcher/doctor/programs.c warns of older ones. */
enum { DNN_OLDEST = 91501 };

/* Loads the library at the first call; it stays loaded. ERR_UNSUPPORTED: too old, or incomplete. */
int dnn_load(const struct dnn **out, struct err *e);

/* --- Graphs ------------------------------------------------------------------------------- */

enum { DNN_DESCRIPTORS = 160, DNN_OPERATIONS = 40, DNN_RANK = 4 };

struct dnn_graph {
	const struct dnn *dnn;
	cudnnStatus_t rc;  /* of the first call that failed */
	const char *where; /* it */
	cudnnBackendDescriptor_t made[DNN_DESCRIPTORS], operations[DNN_OPERATIONS];
	int made_count, operation_count;
	int64_t next_virtual; /* the number of the next tensor that is in no memory */
};

struct dnn_extent {
	int64_t size[DNN_RANK], stride[DNN_RANK]; /* in elements */
};

/* An extent without gaps. */
struct dnn_extent dnn_dense(int64_t a, int64_t b, int64_t c, int64_t d);
/* The same elements, with the last two dimensions exchanged. */
struct dnn_extent dnn_transposed(struct dnn_extent x);

void dnn_graph_init(struct dnn_graph *g, const struct dnn *dnn);
void dnn_graph_fini(struct dnn_graph *g);

/* A tensor in device memory whose address is given at execution, under the number `uid`, which is
 * below DNN_VIRTUAL. `align` is that of its address, in bytes. */
enum { DNN_VIRTUAL = 1000 };
cudnnBackendDescriptor_t dnn_tensor(struct dnn_graph *g, int64_t uid, cudnnDataType_t type,
				    struct dnn_extent x, int64_t align);
/* A tensor that stays inside the fused kernel. */
cudnnBackendDescriptor_t dnn_virtual(struct dnn_graph *g, cudnnDataType_t type,
				     struct dnn_extent x);
/* One fp32 number in host memory. */
cudnnBackendDescriptor_t dnn_number(struct dnn_graph *g, int64_t uid);

/* c = a · b over the last two dimensions, in fp32. */
void dnn_matmul(struct dnn_graph *g, cudnnBackendDescriptor_t a, cudnnBackendDescriptor_t b,
		cudnnBackendDescriptor_t c);
/* y = mode(x, b, t) in `type`; b and t are NULL where the mode has no such input. */
void dnn_pointwise(struct dnn_graph *g, cudnnPointwiseMode_t mode, cudnnDataType_t type,
		   cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
		   cudnnBackendDescriptor_t t, cudnnBackendDescriptor_t y);
/* y = each element's index along an axis; x gives the shape. */
void dnn_index(struct dnn_graph *g, int64_t axis, cudnnBackendDescriptor_t x,
	       cudnnBackendDescriptor_t y);
/* y = x reduced over the dimensions whose size is 1 in y. */
void dnn_reduce(struct dnn_graph *g, cudnnReduceTensorOp_t op, cudnnBackendDescriptor_t x,
		cudnnBackendDescriptor_t y);
void dnn_reshape(struct dnn_graph *g, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y);

/* --- Plans -------------------------------------------------------------------------------- */

struct dnn_plan {
	cudnnBackendDescriptor_t plan;
	int64_t workspace; /* bytes */
	int64_t engine;    /* its number within the graph */
};

/* Makes the plan of the first engine, in the order of the library's heuristic, that supports the
 * graph, needs at most `most` bytes of workspace, and has no note NONDETERMINISTIC unless
 * `any_order`. Call it once, when the graph is complete. */
int dnn_plan_make(struct dnn_graph *g, cudnnHandle_t handle, int64_t most, bool any_order,
		  struct dnn_plan *out, struct err *e);

/* Queues the plan on the handle's stream. ids[i] is the tensor at[i]. */
cudnnStatus_t dnn_plan_run(const struct dnn *dnn, cudnnHandle_t handle, const struct dnn_plan *plan,
			   const int64_t *ids, void *const *at, int count, void *workspace);

#endif /* HAVE_CUDNN */

#endif
