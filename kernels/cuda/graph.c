/* Tapes: the backend's stream is captured into a CUDA graph. Nothing that is queued meanwhile is
 * carried out. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>

struct backend_tape {
	cudaGraphExec_t exec;
};

/* Thread-local: other threads may allocate, wait and ask meanwhile. */
bool cuda_record(struct backend *k)
{
	struct cuda_backend *c = cuda_of(k);
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
static int record_failed(struct backend *k, struct err *e)
{
	cuda_failed(k, e);
	cuda_of(k)->first_error = cudaSuccess;
	return err_prefix(e, "recording a tape");
}

int cuda_recorded(struct backend *k, struct backend_tape **out, struct err *e)
{
	struct cuda_backend *c = cuda_of(k);
	cudaGraph_t graph = NULL;
	cuda_choose(k);
	c->recording = false;
	cuda_ok(k, cudaStreamEndCapture(c->stream, &graph), c->last_op);
	struct backend_tape *t = malloc(sizeof *t);
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

void cuda_replay(struct backend *k, struct backend_tape *t)
{
	struct cuda_backend *c = cuda_of(k);
	cuda_choose(k);
	c->last_op = "a tape";
	cuda_ok(k, cudaGraphLaunch(t->exec, c->stream), "a tape");
}

/* What it was launched for may still be under way: the runtime frees it after that. */
void cuda_tape_free(struct backend *k, struct backend_tape *t)
{
	cuda_choose(k);
	cudaGraphExecDestroy(t->exec);
	free(t);
}
