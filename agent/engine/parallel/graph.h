/*
 * graph — a graph of the backend that holds groups' operations as well as the backend's.
 *
 * backend_graph_begin (kernels/ops.h) and comm_graph_begin (libcomm/comm.h) say what can be
 * recorded and what all ranks must do alike. One thread at a time records or replays.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_GRAPH_H
#define MUSTER_AGENT_ENGINE_PARALLEL_GRAPH_H

#include "base/err.h"
#include "kernels/ops.h"

#include <stdbool.h>

struct comm;
struct parallel_graph;

/* Whether the group's operations can be part of a graph. NULL: there are none. */
bool parallel_graph_fits(const struct comm *group);

/* Begins to record what this thread queues. 1: it is recorded; 0: the backend does not record, and
 * the caller continues without a graph; -1: it failed. alone: no other rank records the same. With
 * others all must do the same, so that a backend that does not record is a failure. what: what is
 * recorded, for the message. */
int parallel_graph_begin(struct backend *k, bool alone, const char *what,
			 struct parallel_graph **out, struct err *e);
/* Ends it. After a failure the graph can only be freed, and nothing has run. */
int parallel_graph_end(struct parallel_graph *g, struct err *e);

/* Until parallel_graph_launch, calls of operations that the graph holds do nothing, and waits for
 * operations from before are the graph's. Before each launch but the first. */
int parallel_graph_repeat(struct parallel_graph *g, struct err *e);
/* Ends what parallel_graph_repeat began, after a failure, without a launch. */
void parallel_graph_give_up(struct parallel_graph *g);
/* Queues the graph. */
int parallel_graph_launch(struct parallel_graph *g, struct err *e);

/* Before the groups and the backend are closed; it may still run. Takes NULL. */
void parallel_graph_free(struct parallel_graph *g);

#endif
