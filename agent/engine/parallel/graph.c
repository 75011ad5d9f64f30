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

/* The backend did not begin. A device that is broken must be named, so it is asked first. */
static int refuse(struct backend *k, bool alone, const char *what, struct err *e)
{
	if (backend_get(k, NULL, NULL, 0, e))
		return -1;
	return alone ? 0
		     : err_set(e, ERR_UNSUPPORTED,
			       "the device refuses to record %s; set job.graphs = no", what);
}

int parallel_graph_begin(struct backend *k, bool alone, const char *what,
			 struct parallel_graph **out, struct err *e)
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
		return refuse(k, alone, what, e);
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
