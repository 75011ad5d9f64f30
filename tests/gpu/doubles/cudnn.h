/*
 * cudnn — a double of the parts of cuDNN 9's backend interface that kernels/cuda uses: operation
 * graphs of attention, queued on streams of the runtime's double.
 *
 * Every attribute is held to the documented type, count and order; what the real library refuses
 * with a status is refused with one. The heuristic knows the two patterns of operations of
 * kernels/cuda/dnn_attention.h, with fp16 or bf16 in memory, head sizes that are a multiple of 8
 * up to 128 (256 on compute capability 9.x), and rows of whole 16 bytes, with a mask of documents
 * (backward only on 9.x), a causal one, both or none. A plan runs the operations one after the
 * other, as they were described, in fp32: what it computes is what the graph says, not what the
 * caller meant. cudnnBackendExecute ends the process for memory that is not the device's, and for
 * tensors that are missing or superfluous. So does a plan for a row whose first tile of scores is
 * -INFINITY only, which a kernel that goes from tile to tile may turn into NaN.
 *
 * A plan that was executed may not be destroyed before its stream is done.
 *
 * For the backward pass the heuristic's first engine has the note NONDETERMINISTIC. In the form of the
 * pattern with sums in any order, each execution gives dq other last bits.
 *
 * MUSTER_DOUBLE_CUDNN is a list of words: `old` (version 9.10.1), `newer` (the next version),
 * `counts` (prints how often each pass was executed when the process ends), `refuses` (no engine
 * supports a graph), `varies` (only the engine with that note does), `wide` (a workspace of 2 GiB), `uneven`
 * (a workspace of 1 byte more), `fails` (execution), `handle` (no handle can be created),
 * `descriptor` (no operation can be finalized).
 */
#ifndef MUSTER_TESTS_GPU_CUDNN_H
#define MUSTER_TESTS_GPU_CUDNN_H

#include <cudnn_graph.h>
#include <stdbool.h>
#include <stdint.h>

/* What was called since the program started. */
struct double_cudnn_counts {
	int handles, open_descriptors, plans;
	int forward, backward; /* executions */
	int any_order;         /* those of them with sums in any order */
	int64_t workspace;     /* of the largest plan */
};
extern struct double_cudnn_counts double_cudnn;
/* What an execution takes by the runtime's virtual clock (double_virtual_clock). */
extern double double_cudnn_seconds;
extern double double_cudnn_any_seconds; /* with sums in any order */

enum { CUDNN_OPS = 40, CUDNN_TENSORS = 64, CUDNN_IDS = 24 };

struct cudnn_tensor {
	cudnnDataType_t type;
	int64_t size[4], stride[4], uid, align;
	bool is_virtual, by_value;
	float value; /* by_value */
	void *at;    /* in device memory */
	float *room; /* of a virtual tensor, while a plan runs: dense */
};

/* An operation of a program; its tensors by number, -1: none. */
struct cudnn_op {
	char letter; /* of the pattern */
	cudnnPointwiseMode_t mode;
	cudnnReduceTensorOp_t reduce;
	int64_t axis;
	int x, b, t, y;
};

/* An operation graph, as it is run. */
struct cudnn_program {
	struct cudnn_tensor tensors[CUDNN_TENSORS];
	struct cudnn_op ops[CUDNN_OPS];
	int tensor_count, op_count;
	void *workspace;
	int64_t workspace_bytes;
	int turn; /* of executions with sums in any order */
};

enum cudnn_pass { CUDNN_NEITHER, CUDNN_FORWARD, CUDNN_BACKWARD };

/* Which of the two patterns a program is, if engines support its sizes. */
enum cudnn_pass cudnn_pass_of(const struct cudnn_program *p);
/* Whether it is the form of the pattern with sums in any order. */
bool cudnn_has_any_order(const struct cudnn_program *p);
/* The workspace that engine 6 of cuDNN 9.19 needs on sm_90 (backward), or engine 2. */
int64_t cudnn_workspace_of(const struct cudnn_program *p, enum cudnn_pass pass);
/* A step of a stream. */
bool cudnn_run(void *arg);

bool cudnn_word(const char *word); /* of MUSTER_DOUBLE_CUDNN */
size_t cudnn_width(cudnnDataType_t type);

#endif
