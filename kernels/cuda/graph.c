/* Graphs: the backend's stream is captured into a CUDA graph. What is queued meanwhile does not
 * run. */
#include "kernels/cuda/cuda.h"

#include <stdlib.h>

struct backend_graph {
	cudaGraphExec_t exec;
};

/* Whether the device cannot record at all. Any other error is a failure, which may be that of work
 * from before. */
static bool refuses(cudaError_t rc)
{
	return rc == cudaErrorNotSupported || rc == cudaErrorStreamCaptureUnsupported;
}

/* The capture mode is thread-local, so other threads may call any function of CUDA meanwhile. */
bool cuda_graph_begin(struct backend *k)
{
	struct cuda_backend *c = cuda_of(k);
	cuda_choose(k);
	if (c->first_error != cudaSuccess)
		return false;
	cudaError_t rc = cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal);
	if (refuses(rc))
		cudaGetLastError();
	else if (rc != cudaSuccess)
		cuda_fail_queued(k, rc, "beginning to record a graph");
	c->recording = rc == cudaSuccess;
	return c->recording;
}

/* A failure while recording does not spoil the backend: nothing has run, and the caller may continue
 * without the graph. */
static int fail_recording(struct backend *k, struct err *e)
{
	cuda_failed(k, e);
	cuda_of(k)->first_error = cudaSuccess;
	return err_prefix(e, "recording a graph");
}

int cuda_graph_end(struct backend *k, struct backend_graph **out, struct err *e)
{
	struct cuda_backend *c = cuda_of(k);
	cudaGraph_t graph = NULL;
	cuda_choose(k);
	c->recording = false;
	cuda_ok(k, cudaStreamEndCapture(c->stream, &graph), c->last_op);
	struct backend_graph *t = malloc(sizeof *t);
	bool made = t && c->first_error == cudaSuccess &&
		    cuda_ok(k, cudaGraphInstantiate(&t->exec, graph, 0), "instantiating a graph");
	if (graph)
		cudaGraphDestroy(graph);
	if (made) {
		*out = t;
		return 0;
	}
	free(t);
	return t ? fail_recording(k, e)
		 : err_set(e, ERR_NOMEM, "recording a graph: no memory; close other programs");
}

void cuda_graph_replay(struct backend *k, struct backend_graph *t)
{
	struct cuda_backend *c = cuda_of(k);
	cuda_choose(k);
	c->last_op = "a graph";
	cuda_ok(k, cudaGraphLaunch(t->exec, c->stream), "a graph");
}

/* The graph may still run; the runtime frees it after that. */
void cuda_graph_free(struct backend *k, struct backend_graph *t)
{
	cuda_choose(k);
	cudaGraphExecDestroy(t->exec);
	free(t);
}
