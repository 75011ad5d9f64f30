/*
 * Captures and graphs of the runtime's double. A capture records each step as a node, with the nodes
 * before it: the last one of its stream, and those before an event that the stream waits for. A
 * launched graph runs its nodes in any order that respects this.
 */
#include "tests/gpu/doubles/inside.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct node {
	bool (*run)(void *arg);
	void *arg;
	struct nodes after;
};

struct CUgraph_st { /* while it is captured and after */
	struct node *node;
	int count, room, users; /* users: the graph itself and its instances */
	struct CUstream_st *origin;
	enum cudaStreamCaptureMode mode;
	pthread_t thread;
	bool spoilt;
};

struct CUgraphExec_st {
	struct CUgraph_st *graph;
	int launched; /* launches that are not complete */
	bool running; /* one launch at a time */
};

static struct CUgraph_st *captures[16]; /* in progress */
enum { CAPTURES = sizeof captures / sizeof *captures };

/* --- Sets of nodes --- */

void nodes_copy(struct nodes *to, const struct nodes *from)
{
	size_t bytes = (size_t)from->count * sizeof *from->node;
	int *copy = malloc(bytes + !bytes);
	if (bytes)
		memcpy(copy, from->node, bytes);
	free(to->node);
	*to = (struct nodes){ copy, from->count };
}

static void nodes_add(struct nodes *n, int node)
{
	for (int i = 0; i < n->count; i++)
		if (n->node[i] == node)
			return;
	n->node = realloc(n->node, (size_t)(n->count + 1) * sizeof *n->node);
	n->node[n->count++] = node;
}

/* --- Capturing ---------------------------------------------------------------------------- */

static void set_capture(const struct CUgraph_st *old, struct CUgraph_st *new)
{
	int i = 0;
	while (i < CAPTURES && captures[i] != old)
		i++;
	if (i == CAPTURES)
		double_misuse("more than %d captures at once", CAPTURES);
	captures[i] = new;
}

/* Ends the capture for every stream that takes part. */
static void leave_capture(const struct CUgraph_st *g)
{
	for (struct CUstream_st *s = &double_streams; s; s = s->next)
		if (s->capture == g) {
			s->capture = NULL;
			s->last.count = 0;
		}
}

cudaError_t capture_forbids(const char *call)
{
	cudaError_t rc = cudaSuccess;
	(void)call;
	double_lock();
	for (int i = 0; i < CAPTURES; i++) {
		struct CUgraph_st *g = captures[i];
		bool mine = g && pthread_equal(g->thread, pthread_self());
		if (g && (g->mode == cudaStreamCaptureModeGlobal ||
			  (mine && g->mode == cudaStreamCaptureModeThreadLocal))) {
			g->spoilt = true;
			rc = cudaErrorStreamCaptureUnsupported;
		}
	}
	double_unlock();
	return double_error(rc);
}

cudaError_t capture_push(struct CUstream_st *s, bool (*run)(void *arg), const void *arg,
			 size_t bytes)
{
	struct CUgraph_st *g = s->capture;
	if (g->spoilt)
		return cudaErrorStreamCaptureInvalidated;
	if (g->count == g->room) {
		g->room = g->room ? 2 * g->room : 64;
		g->node = realloc(g->node, (size_t)g->room * sizeof *g->node);
	}
	struct node *n = &g->node[g->count];
	*n = (struct node){ .run = run, .arg = malloc(bytes + !bytes) };
	memcpy(n->arg, arg, bytes);
	nodes_copy(&n->after, &s->last);
	s->last.count = 0;
	nodes_add(&s->last, g->count++);
	return cudaSuccess;
}

cudaError_t capture_record(struct CUstream_st *s, cudaEvent_t e)
{
	e->capture = s->capture;
	nodes_copy(&e->last, &s->last);
	return s->capture->spoilt ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

/* A stream that waits for a captured event takes part in its capture from then on. */
cudaError_t capture_wait(struct CUstream_st *s, cudaEvent_t e)
{
	if (!e->capture || (s->capture && s->capture != e->capture)) {
		s->capture->spoilt = true;
		return cudaErrorStreamCaptureIsolation;
	}
	int i = 0;
	while (i < CAPTURES && captures[i] != e->capture)
		i++;
	if (i == CAPTURES)
		return cudaErrorInvalidValue; /* its capture has ended */
	if (s == &double_streams)
		return cudaErrorStreamCaptureUnsupported;
	s->capture = e->capture;
	for (int n = 0; n < e->last.count; n++)
		nodes_add(&s->last, e->last.node[n]);
	return s->capture->spoilt ? cudaErrorStreamCaptureInvalidated : cudaSuccess;
}

static void graph_let_go(struct CUgraph_st *g)
{
	if (--g->users)
		return;
	for (int i = 0; i < g->count; i++) {
		free(g->node[i].arg);
		free(g->node[i].after.node);
	}
	free(g->node);
	free(g);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	double_lock();
	struct CUstream_st *s = double_stream(stream);
	cudaError_t rc = s == &double_streams ? cudaErrorStreamCaptureUnsupported
			 : s->capture         ? cudaErrorIllegalState
					      : cudaSuccess;
	if (rc == cudaSuccess) {
		struct CUgraph_st *g = calloc(1, sizeof *g);
		*g = (struct CUgraph_st){
			.users = 1, .origin = s, .mode = mode, .thread = pthread_self()
		};
		set_capture(NULL, g);
		s->capture = g;
		s->last.count = 0;
	}
	double_unlock();
	return double_error(rc);
}

/* Whether every stream's last nodes come before the origin's. */
static bool all_joined(const struct CUgraph_st *g)
{
	bool *before = calloc((size_t)g->count + 1, sizeof *before), joined = true;
	for (int i = 0; i < g->origin->last.count; i++)
		before[g->origin->last.node[i]] = true;
	for (int n = g->count - 1; n >= 0; n--)
		for (int i = 0; before[n] && i < g->node[n].after.count; i++)
			before[g->node[n].after.node[i]] = true;
	for (const struct CUstream_st *s = &double_streams; s; s = s->next)
		for (int i = 0; s->capture == g && i < s->last.count; i++)
			joined &= before[s->last.node[i]];
	free(before);
	return joined;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
	*out = NULL;
	double_lock();
	struct CUgraph_st *g = double_stream(stream)->capture;
	cudaError_t rc = !g                    ? cudaErrorIllegalState
			 : g->origin != stream ? cudaErrorStreamCaptureUnmatched
			 : g->mode != cudaStreamCaptureModeRelaxed &&
					 !pthread_equal(g->thread, pthread_self())
				 ? cudaErrorStreamCaptureWrongThread
			 : g->spoilt     ? cudaErrorStreamCaptureInvalidated
			 : all_joined(g) ? cudaSuccess
					 : cudaErrorStreamCaptureUnjoined;
	if (g && g->origin == stream) {
		set_capture(g, NULL);
		leave_capture(g);
		if (rc == cudaSuccess) {
			double_count_things(1);
			*out = g;
		} else {
			graph_let_go(g);
		}
	}
	double_unlock();
	return double_error(rc);
}

cudaError_t cudaStreamIsCapturing(cudaStream_t stream, enum cudaStreamCaptureStatus *status)
{
	double_lock();
	const struct CUgraph_st *g = double_stream(stream)->capture;
	*status = !g          ? cudaStreamCaptureStatusNone
		  : g->spoilt ? cudaStreamCaptureStatusInvalidated
			      : cudaStreamCaptureStatusActive;
	double_unlock();
	return cudaSuccess;
}

/* --- Graphs ------------------------------------------------------------------------------- */

cudaError_t cudaGraphDestroy(cudaGraph_t g)
{
	double_lock();
	graph_let_go(g);
	double_unlock();
	double_count_things(-1);
	return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *out, cudaGraph_t g, unsigned long long flags)
{
	(void)flags;
	double_lock();
	g->users++;
	double_unlock();
	*out = calloc(1, sizeof **out);
	(*out)->graph = g;
	double_count_things(1);
	return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t x, cudaStream_t stream)
{
	(void)x;
	(void)stream;
	return cudaSuccess;
}

cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t *nodes, size_t *count)
{
	if (nodes)
		double_misuse("the double only counts a graph's nodes");
	*count = (size_t)g->count;
	return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t x)
{
	double_lock();
	if (x->launched)
		double_misuse("a graph is destroyed while it runs");
	graph_let_go(x->graph);
	double_unlock();
	double_count_things(-1);
	free(x);
	return cudaSuccess;
}

struct launch {
	cudaGraphExec_t exec;
	bool begun;
	int left;
	bool done[];
};

static bool is_free(const struct launch *l, const struct node *n)
{
	for (int i = 0; i < n->after.count; i++)
		if (!l->done[n->after.node[i]])
			return false;
	return true;
}

/* Runs one node per call, beginning with a random one. */
static bool run_graph(void *arg)
{
	struct launch *l = arg;
	struct CUgraph_st *g = l->exec->graph;
	if (!l->begun && l->exec->running)
		return false;
	l->begun = l->exec->running = true;
	int start = g->count ? (int)(double_dice() % (uint32_t)g->count) : 0;
	for (int i = 0; i < g->count && l->left; i++) {
		int n = (start + i) % g->count;
		if (!l->done[n] && is_free(l, &g->node[n]) && g->node[n].run(g->node[n].arg)) {
			l->done[n] = true;
			l->left--;
			break;
		}
	}
	if (l->left)
		return false;
	l->exec->running = false;
	l->exec->launched--;
	return true;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t x, cudaStream_t stream)
{
	double_lock();
	if (double_stream(stream)->capture)
		double_misuse("the double cannot capture the launch of a graph");
	size_t bytes = sizeof(struct launch) + (size_t)x->graph->count * sizeof(bool);
	struct launch *l = calloc(1, bytes);
	*l = (struct launch){ .exec = x, .left = x->graph->count };
	cudaError_t rc = double_push(stream, run_graph, l, bytes);
	double_note_graph();
	x->launched++;
	double_unlock();
	free(l);
	return double_error(rc);
}
