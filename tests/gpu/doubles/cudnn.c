/* Handles and descriptors of cuDNN's double. */
#include "tests/gpu/doubles/cudnn.h"

#include "tests/gpu/doubles/runtime.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct double_cudnn_counts double_cudnn;
double double_cudnn_seconds, double_cudnn_any_seconds;

struct cudnnContext {
	int device;
	cudaStream_t stream;
};

/* A descriptor of any type. */
struct object {
	uint32_t magic;
	cudnnBackendDescriptorType_t type;
	bool finalized, executed;
	uint64_t set; /* rows of `attributes` that were set */
	struct cudnn_tensor tensor;
	int64_t rank, stride_count;
	cudnnDataType_t compute;
	cudnnPointwiseMode_t mode;
	cudnnReduceTensorOp_t reduce;
	int64_t axis;
	float alpha1, alpha2;
	struct object *kind, *x, *b, *t, *y;
	struct object *ops[CUDNN_OPS];
	int64_t op_count;
	cudnnHandle_t handle;
	cudnnBackendHeurMode_t heuristic;
	struct object *graph, *engine, *config;
	int64_t index; /* of an engine */
	int64_t ids[CUDNN_IDS], id_count, pointer_count;
	void *pointers[CUDNN_IDS], *workspace;
};

enum { MAGIC = 0x646e6e64, NOTED = 5, PLAIN = 6, FORWARD_ENGINE = 2 };

bool cudnn_word(const char *word)
{
	const char *all = getenv("MUSTER_DOUBLE_CUDNN");
	return all && strstr(all, word);
}

__attribute__((destructor)) static void print_counts(void)
{
	if (cudnn_word("counts"))
		fprintf(stderr, "cudnn: %d forward, %d backward\n", double_cudnn.forward,
			double_cudnn.backward);
}

/* --- Attributes --------------------------------------------------------------------------- */

enum { SINGLE = 1, NEEDED = 1 };

/* What SetAttribute accepts: where it goes, and the largest count. */
struct attribute {
	cudnnBackendDescriptorType_t of;
	cudnnBackendAttributeName_t name;
	cudnnBackendAttributeType_t type;
	int64_t most;
	size_t at, width, count_at; /* count_at 0: the count must be 1 */
	bool needed;
};

#define ROW(of, name, type, field, needed) \
	{ \
		CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, SINGLE, \
			offsetof(struct object, field), sizeof(((struct object *)NULL)->field), 0, \
			needed \
	}
#define ROWS(of, name, type, field, count, needed) \
	{ \
		CUDNN_BACKEND_##of##_DESCRIPTOR, CUDNN_ATTR_##name, CUDNN_TYPE_##type, \
			sizeof(((struct object *)NULL)->field) / \
				sizeof(((struct object *)NULL)->field[0]), \
			offsetof(struct object, field), sizeof(((struct object *)NULL)->field[0]), \
			offsetof(struct object, count), needed \
	}

static const struct attribute attributes[] = {
	ROW(TENSOR, TENSOR_DATA_TYPE, DATA_TYPE, tensor.type, NEEDED),
	ROWS(TENSOR, TENSOR_DIMENSIONS, INT64, tensor.size, rank, NEEDED),
	ROWS(TENSOR, TENSOR_STRIDES, INT64, tensor.stride, stride_count, NEEDED),
	ROW(TENSOR, TENSOR_UNIQUE_ID, INT64, tensor.uid, NEEDED),
	ROW(TENSOR, TENSOR_BYTE_ALIGNMENT, INT64, tensor.align, NEEDED),
	ROW(TENSOR, TENSOR_IS_VIRTUAL, BOOLEAN, tensor.is_virtual, 0),
	ROW(TENSOR, TENSOR_IS_BY_VALUE, BOOLEAN, tensor.by_value, 0),
	ROW(MATMUL, MATMUL_COMP_TYPE, DATA_TYPE, compute, NEEDED),
	ROW(OPERATION_MATMUL, OPERATION_MATMUL_ADESC, BACKEND_DESCRIPTOR, x, NEEDED),
	ROW(OPERATION_MATMUL, OPERATION_MATMUL_BDESC, BACKEND_DESCRIPTOR, b, NEEDED),
	ROW(OPERATION_MATMUL, OPERATION_MATMUL_CDESC, BACKEND_DESCRIPTOR, y, NEEDED),
	ROW(OPERATION_MATMUL, OPERATION_MATMUL_DESC, BACKEND_DESCRIPTOR, kind, NEEDED),
	ROW(POINTWISE, POINTWISE_MODE, POINTWISE_MODE, mode, NEEDED),
	ROW(POINTWISE, POINTWISE_MATH_PREC, DATA_TYPE, compute, NEEDED),
	ROW(POINTWISE, POINTWISE_AXIS, INT64, axis, 0),
	ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, kind,
	    NEEDED),
	ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, x, NEEDED),
	ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, b, 0),
	ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_TDESC, BACKEND_DESCRIPTOR, t, 0),
	ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, y, NEEDED),
	ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_ALPHA1, FLOAT, alpha1, 0),
	ROW(OPERATION_POINTWISE, OPERATION_POINTWISE_ALPHA2, FLOAT, alpha2, 0),
	ROW(REDUCTION, REDUCTION_COMP_TYPE, DATA_TYPE, compute, NEEDED),
	ROW(REDUCTION, REDUCTION_OPERATOR, REDUCTION_OPERATOR_TYPE, reduce, NEEDED),
	ROW(OPERATION_REDUCTION, OPERATION_REDUCTION_DESC, BACKEND_DESCRIPTOR, kind, NEEDED),
	ROW(OPERATION_REDUCTION, OPERATION_REDUCTION_XDESC, BACKEND_DESCRIPTOR, x, NEEDED),
	ROW(OPERATION_REDUCTION, OPERATION_REDUCTION_YDESC, BACKEND_DESCRIPTOR, y, NEEDED),
	ROW(OPERATION_RESHAPE, OPERATION_RESHAPE_XDESC, BACKEND_DESCRIPTOR, x, NEEDED),
	ROW(OPERATION_RESHAPE, OPERATION_RESHAPE_YDESC, BACKEND_DESCRIPTOR, y, NEEDED),
	ROW(OPERATIONGRAPH, OPERATIONGRAPH_HANDLE, HANDLE, handle, 0),
	ROWS(OPERATIONGRAPH, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, ops, op_count, NEEDED),
	ROW(ENGINEHEUR, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, graph, NEEDED),
	ROW(ENGINEHEUR, ENGINEHEUR_MODE, HEUR_MODE, heuristic, NEEDED),
	ROW(EXECUTION_PLAN, EXECUTION_PLAN_HANDLE, HANDLE, handle, NEEDED),
	ROW(EXECUTION_PLAN, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, config, NEEDED),
	ROWS(VARIANT_PACK, VARIANT_PACK_UNIQUE_IDS, INT64, ids, id_count, NEEDED),
	ROWS(VARIANT_PACK, VARIANT_PACK_DATA_POINTERS, VOID_PTR, pointers, pointer_count, NEEDED),
	ROW(VARIANT_PACK, VARIANT_PACK_WORKSPACE, VOID_PTR, workspace, 0),
};
enum { ATTRIBUTES = sizeof attributes / sizeof attributes[0] };

static struct object *object_of(cudnnBackendDescriptor_t d)
{
	struct object *o = d;
	if (!o || o->magic != MAGIC)
		double_misuse("cuDNN: %p is no open descriptor", d);
	return o;
}

static const struct attribute *attribute_of(const struct object *o,
					    cudnnBackendAttributeName_t name)
{
	for (int i = 0; i < ATTRIBUTES; i++)
		if (attributes[i].of == o->type && attributes[i].name == name)
			return &attributes[i];
	return NULL;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t count,
				       const void *value)
{
	struct object *o = object_of(d);
	const struct attribute *a = attribute_of(o, name);
	if (!a || o->finalized || a->type != type || !value || count < 1 || count > a->most ||
	    (!a->count_at && count != 1))
		return CUDNN_STATUS_BAD_PARAM;
	for (int64_t i = 0; type == CUDNN_TYPE_BACKEND_DESCRIPTOR && i < count; i++)
		if (!object_of(((void *const *)value)[i])->finalized)
			return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
	memcpy((char *)o + a->at, value, (size_t)count * a->width);
	if (a->count_at)
		memcpy((char *)o + a->count_at, &count, sizeof count);
	o->set |= (uint64_t)1 << (a - attributes);
	return CUDNN_STATUS_SUCCESS;
}

/* --- Creating and finalizing -------------------------------------------------------------- */

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
					   cudnnBackendDescriptor_t *out)
{
	struct object *o = calloc(1, sizeof *o);
	*o = (struct object){ .magic = MAGIC, .type = type, .alpha1 = 1, .alpha2 = 1 };
	*out = o;
	double_cudnn.open_descriptors++;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d)
{
	struct object *o = object_of(d);
	if (o->executed && cudaStreamQuery(o->handle->stream) != cudaSuccess)
		double_misuse("cuDNN: a plan is destroyed before its stream is done");
	o->magic = 0;
	free(o);
	double_cudnn.open_descriptors--;
	return CUDNN_STATUS_SUCCESS;
}

static int pointwise_inputs(cudnnPointwiseMode_t mode)
{
	switch (mode) {
	case CUDNN_POINTWISE_EXP:
	case CUDNN_POINTWISE_LOG:
	case CUDNN_POINTWISE_GEN_INDEX:
	case CUDNN_POINTWISE_IDENTITY:
		return 1;
	case CUDNN_POINTWISE_MUL:
	case CUDNN_POINTWISE_ADD:
	case CUDNN_POINTWISE_SUB:
	case CUDNN_POINTWISE_DIV:
	case CUDNN_POINTWISE_CMP_GE:
		return 2;
	case CUDNN_POINTWISE_BINARY_SELECT:
		return 3;
	default:
		return 0;
	}
}

static bool sound_tensor(const struct object *o)
{
	const struct cudnn_tensor *t = &o->tensor;
	for (int i = 0; i < 4; i++)
		if (t->size[i] < 1 || t->stride[i] < 1)
			return false;
	return o->rank == 4 && o->stride_count == 4 && t->align > 0 &&
	       (t->align & (t->align - 1)) == 0 && !(t->is_virtual && t->by_value);
}

static bool sound_pointwise(const struct object *o)
{
	int inputs = pointwise_inputs(o->kind->mode);
	return inputs > 0 && (o->b != NULL) == (inputs > 1) && (o->t != NULL) == (inputs > 2);
}

static bool sound(const struct object *o)
{
	switch ((int)o->type) {
	case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
		return sound_tensor(o);
	case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
		return sound_pointwise(o);
	case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
		return o->id_count == o->pointer_count;
	case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
		return !cudnn_word("descriptor");
	default:
		return true;
	}
}

/* --- Programs ----------------------------------------------------------------------------- */

static int tensor_number(struct cudnn_program *p, const struct object *o)
{
	if (!o)
		return -1;
	for (int i = 0; i < p->tensor_count; i++)
		if (p->tensors[i].uid == o->tensor.uid) {
			if (memcmp(&p->tensors[i], &o->tensor, sizeof o->tensor))
				double_misuse("cuDNN: two tensors have the number %lld",
					      (long long)o->tensor.uid);
			return i;
		}
	if (p->tensor_count == CUDNN_TENSORS)
		double_misuse("cuDNN's double: a graph of more than %d tensors", CUDNN_TENSORS);
	p->tensors[p->tensor_count] = o->tensor;
	return p->tensor_count++;
}

static char letter_of(const struct object *o)
{
	static const struct {
		cudnnPointwiseMode_t mode;
		char letter;
	} letters[] = {
		{ CUDNN_POINTWISE_MUL, '*' },           { CUDNN_POINTWISE_ADD, '+' },
		{ CUDNN_POINTWISE_SUB, '-' },           { CUDNN_POINTWISE_DIV, '/' },
		{ CUDNN_POINTWISE_EXP, 'e' },           { CUDNN_POINTWISE_LOG, 'l' },
		{ CUDNN_POINTWISE_GEN_INDEX, 'i' },     { CUDNN_POINTWISE_CMP_GE, '>' },
		{ CUDNN_POINTWISE_BINARY_SELECT, '?' }, { CUDNN_POINTWISE_IDENTITY, '=' },
	};
	switch ((int)o->type) {
	case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
		return 'm';
	case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
		return o->kind->reduce == CUDNN_REDUCE_TENSOR_MAX ? 'x' : 's';
	case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
		return 't';
	}
	for (size_t i = 0; i < sizeof letters / sizeof letters[0]; i++)
		if (letters[i].mode == o->kind->mode)
			return letters[i].letter;
	return '!';
}

/* The caller frees it. */
static struct cudnn_program *program_of(const struct object *graph)
{
	struct cudnn_program *p = calloc(1, sizeof *p);
	for (int64_t i = 0; i < graph->op_count; i++) {
		const struct object *o = graph->ops[i];
		struct cudnn_op *op = &p->ops[p->op_count++];
		op->letter = letter_of(o);
		op->x = tensor_number(p, o->x);
		op->b = tensor_number(p, o->b);
		op->t = tensor_number(p, o->t);
		op->y = tensor_number(p, o->y);
		if (o->kind) {
			op->mode = o->kind->mode;
			op->reduce = o->kind->reduce;
			op->axis = o->kind->axis;
		}
	}
	return p;
}

static enum cudnn_pass pass_of(const struct object *graph)
{
	struct cudnn_program *p = program_of(graph);
	enum cudnn_pass pass = cudnn_word("refuses") ? CUDNN_NEITHER : cudnn_pass_of(p);
	free(p);
	return pass;
}

static int64_t workspace_of(const struct object *graph)
{
	struct cudnn_program *p = program_of(graph);
	int64_t bytes = cudnn_workspace_of(p, cudnn_pass_of(p));
	free(p);
	return cudnn_word("wide") ? (int64_t)2 << 30 : bytes + cudnn_word("uneven");
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d)
{
	struct object *o = object_of(d);
	for (int i = 0; i < ATTRIBUTES; i++)
		if (attributes[i].of == o->type && attributes[i].needed &&
		    !(o->set & (uint64_t)1 << i))
			return CUDNN_STATUS_BAD_PARAM;
	if (o->finalized || !sound(o))
		return CUDNN_STATUS_BAD_PARAM;
	o->finalized = true;
	if (o->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR)
		return CUDNN_STATUS_SUCCESS;
	double_cudnn.plans++;
	int64_t bytes = workspace_of(o->config->graph);
	if (bytes > double_cudnn.workspace)
		double_cudnn.workspace = bytes;
	return CUDNN_STATUS_SUCCESS;
}

/* --- What is asked ------------------------------------------------------------------------ */

static void fill_engine(struct object *to, cudnnBackendDescriptorType_t type, struct object *graph,
			int64_t index)
{
	if (to->type != type)
		double_misuse("cuDNN: a result is to go into a descriptor of another type");
	to->graph = graph;
	to->index = index;
	to->finalized = true;
}

static cudnnStatus_t heuristic_results(struct object *o, int64_t asked, int64_t *count, void **to)
{
	enum cudnn_pass pass = pass_of(o->graph);
	int64_t n = 0;
	if (pass == CUDNN_FORWARD && asked > n)
		fill_engine(to[n++], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, o->graph, FORWARD_ENGINE);
	if (pass == CUDNN_BACKWARD && asked > n)
		fill_engine(to[n++], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, o->graph, NOTED);
	if (pass == CUDNN_BACKWARD && asked > n && !cudnn_word("varies"))
		fill_engine(to[n++], CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, o->graph, PLAIN);
	*count = n;
	return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t one_number(int64_t value, int64_t *count, void *to)
{
	*(int64_t *)to = value;
	*count = 1;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d,
				       cudnnBackendAttributeName_t name,
				       cudnnBackendAttributeType_t type, int64_t asked,
				       int64_t *count, void *to)
{
	struct object *o = object_of(d);
	int64_t unused, *n = count ? count : &unused;
	if (!o->finalized)
		return CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED;
	if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
		return heuristic_results(o, asked, n, to);
	if (name == CUDNN_ATTR_ENGINECFG_ENGINE && type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
		fill_engine(*(void **)to, CUDNN_BACKEND_ENGINE_DESCRIPTOR, o->graph, o->index);
		*n = 1;
		return CUDNN_STATUS_SUCCESS;
	}
	if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && type == CUDNN_TYPE_NUMERICAL_NOTE) {
		cudnnBackendNumericalNote_t *notes = to;
		*n = o->index == NOTED ? 2 : 1;
		notes[0] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
		if (*n > 1 && asked > 1)
			notes[1] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
		return CUDNN_STATUS_SUCCESS;
	}
	if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX && type == CUDNN_TYPE_INT64)
		return one_number(o->index, n, to);
	if (name == CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64)
		return one_number(workspace_of(o->graph), n, to);
	if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && type == CUDNN_TYPE_INT64)
		return one_number(workspace_of(o->config->graph), n, to);
	return CUDNN_STATUS_BAD_PARAM;
}

/* --- Execution ---------------------------------------------------------------------------- */

static bool in_memory(const struct cudnn_tensor *t)
{
	return !t->is_virtual && !t->by_value;
}

static void give_tensor(struct cudnn_tensor *t, void *at)
{
	size_t last = 1;
	if (t->by_value) {
		memcpy(&t->value, at, sizeof t->value);
		return;
	}
	for (int i = 0; i < 4; i++)
		last += (size_t)((t->size[i] - 1) * t->stride[i]);
	if ((uintptr_t)at % (size_t)t->align)
		double_misuse("cuDNN: tensor %lld at %p is not aligned to %lld bytes",
			      (long long)t->uid, at, (long long)t->align);
	double_check_memory("a tensor of cuDNN", at, last * cudnn_width(t->type));
	t->at = at;
}

static void give_tensors(struct cudnn_program *p, const struct object *pack)
{
	int64_t given = 0;
	for (int i = 0; i < p->tensor_count; i++) {
		struct cudnn_tensor *t = &p->tensors[i];
		int64_t j = 0;
		if (t->is_virtual)
			continue;
		while (j < pack->id_count && pack->ids[j] != t->uid)
			j++;
		if (j == pack->id_count)
			double_misuse("cuDNN: tensor %lld has no address", (long long)t->uid);
		give_tensor(t, pack->pointers[j]);
		given++;
	}
	if (given != pack->id_count)
		double_misuse("cuDNN: %lld addresses for the %lld tensors of a graph",
			      (long long)pack->id_count, (long long)given);
	for (int i = 0; i < p->op_count; i++)
		if (in_memory(&p->tensors[p->ops[i].y]) && !p->tensors[p->ops[i].y].at)
			double_misuse("cuDNN: a result has no address");
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
				  cudnnBackendDescriptor_t pack)
{
	struct object *o = object_of(plan);
	const struct object *given = object_of(pack);
	if (!o->finalized || !given->finalized ||
	    o->type != CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR ||
	    given->type != CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR || o->handle != handle)
		return CUDNN_STATUS_BAD_PARAM;
	if (handle->device != double_device())
		double_misuse("cuDNN: a handle of device %d is used on device %d", handle->device,
			      double_device());
	if (cudnn_word("fails"))
		return CUDNN_STATUS_EXECUTION_FAILED;
	struct cudnn_program *p = program_of(o->config->graph);
	p->workspace = given->workspace;
	p->workspace_bytes = workspace_of(o->config->graph);
	double_check_memory("cuDNN's workspace", p->workspace, (size_t)p->workspace_bytes);
	give_tensors(p, given);
	if (cudnn_pass_of(p) == CUDNN_FORWARD)
		double_cudnn.forward++;
	else
		double_cudnn.backward++;
	double_cudnn.any_order += cudnn_has_any_order(p);
	o->executed = true;
	cudaError_t rc = double_queue_copy(handle->stream, cudnn_run, p, sizeof *p);
	free(p);
	return rc == cudaSuccess ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_EXECUTION_FAILED;
}

/* --- Handles ------------------------------------------------------------------------------ */

cudnnStatus_t cudnnCreate(cudnnHandle_t *out)
{
	if (cudnn_word("handle"))
		return CUDNN_STATUS_NOT_INITIALIZED;
	struct cudnnContext *c = calloc(1, sizeof *c);
	c->device = double_device();
	*out = c;
	double_cudnn.handles++;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle)
{
	free(handle);
	double_cudnn.handles--;
	return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream)
{
	handle->stream = stream;
	return CUDNN_STATUS_SUCCESS;
}

size_t cudnnGetVersion(void)
{
	return cudnn_word("old") ? 91001 : CUDNN_VERSION + cudnn_word("newer");
}

const char *cudnnGetErrorString(cudnnStatus_t status)
{
	return status == CUDNN_STATUS_SUCCESS     ? "CUDNN_STATUS_SUCCESS"
	       : status == CUDNN_STATUS_BAD_PARAM ? "CUDNN_STATUS_BAD_PARAM"
						  : "CUDNN_STATUS_NOT_SUPPORTED";
}
