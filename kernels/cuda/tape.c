/* Tapes: the kern's stream is captured into a CUDA graph. Nothing that is queued meanwhile is
 * carried out. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>

struct kern_tape {
	cudaGraphExec_t exec;
};

/* Thread-local: other threads may allocate, wait and ask meanwhile. */
bool cuda_record(struct kern *k)
{
	struct cuda_kern *c = cuda_of(k);
	cuda_choose(k);
	if (c->first_error != cudaSuccess ||
	    cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) {
		cudaGetLastError();
		return false;
	}
	c->recording = true;
	return true;
}

/* A failure while recording is the tape's alone: nothing was carried out, and the caller may go
 * on without it. */
static int record_failed(struct kern *k, struct err *e)
{
	cuda_failed(k, e);
	cuda_of(k)->first_error = cudaSuccess;
	return err_prefix(e, "recording a tape");
}

int cuda_recorded(struct kern *k, struct kern_tape **out, struct err *e)
{
	struct cuda_kern *c = cuda_of(k);
	cudaGraph_t graph = NULL;
	cuda_choose(k);
	c->recording = false;
	cuda_ok(k, cudaStreamEndCapture(c->stream, &graph), c->last_op);
	struct kern_tape *t = malloc(sizeof *t);
	bool made = t && c->first_error == cudaSuccess &&
		    cuda_ok(k, cudaGraphInstantiate(&t->exec, graph, 0), "making a tape");
	if (graph)
		cudaGraphDestroy(graph);
	if (made) {
		*out = t;
		return 0;
	}
	free(t);
	return t ? record_failed(k, e)
		 : err_set(e, ERR_NOMEM, "recording a tape: no memory; close other programs");
}

void cuda_replay(struct kern *k, struct kern_tape *t)
{
	struct cuda_kern *c = cuda_of(k);
	cuda_choose(k);
	c->last_op = "a tape";
	cuda_ok(k, cudaGraphLaunch(t->exec, c->stream), "a tape");
}

/* What it was launched for may still be under way: the runtime frees it after that. */
void cuda_tape_free(struct kern *k, struct kern_tape *t)
{
	cuda_choose(k);
	cudaGraphExecDestroy(t->exec);
	free(t);
}
