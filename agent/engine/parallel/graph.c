#include "agent/engine/parallel/graph.h"

#include "libcomm/comm.h"

#include <stdlib.h>

struct parallel_graph {
	struct backend *k;
	struct backend_graph *calls;
	struct comm_graph *operations;
};

bool parallel_graph_fits(const struct comm *group)
{
	return comm_graph_fits(group);
}

int parallel_graph_begin(struct backend *k, struct parallel_graph **out, struct err *e)
{
	struct parallel_graph *g = calloc(1, sizeof *g);
	if (!g)
		return err_set(e, ERR_NOMEM, "no memory for a graph");
	g->k = k;
	if (comm_graph_begin(&g->operations, e)) {
		free(g);
		return -1;
	}
	if (!backend_graph_begin(k)) {
		parallel_graph_free(g);
		return 0;
	}
	*out = g;
	return 1;
}

int parallel_graph_end(struct parallel_graph *g, struct err *e)
{
	/* The groups' streams join the backend's before its recording ends. */
	int rc = comm_graph_end(g->operations, e);
	return backend_graph_end(g->k, &g->calls, rc ? NULL : e) ? -1 : rc;
}

int parallel_graph_repeat(struct parallel_graph *g, struct err *e)
{
	return comm_graph_repeat(g->operations, e);
}

void parallel_graph_give_up(struct parallel_graph *g)
{
	comm_graph_give_up(g->operations);
}

int parallel_graph_launch(struct parallel_graph *g, struct err *e)
{
	if (comm_graph_launch(g->operations, e))
		return -1;
	backend_graph_replay(g->k, g->calls);
	return comm_graph_launched(g->operations, e);
}

void parallel_graph_free(struct parallel_graph *g)
{
	if (!g)
		return;
	backend_graph_free(g->k, g->calls);
	comm_graph_free(g->operations);
	free(g);
}
