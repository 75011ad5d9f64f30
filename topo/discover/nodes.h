/*
 * nodes — asks every node of the allocation that this process runs in: one srun step that starts
 * this program once on each.
 *
 * A node's answer comes in lines that srun passes on whole though mixed with those of other nodes:
 *     TAG NODE PART PARTS TEXT
 * The texts of all its parts together are what topo_nodes_print was given there, without a line
 * break in it. What is no such line, or is broken, is passed over.
 */
#ifndef MUSTER_TOPO_DISCOVER_NODES_H
#define MUSTER_TOPO_DISCOVER_NODES_H

#include "base/buf.h"
#include "base/err.h"
#include "topo/hostlist.h"

/* The nodes of the allocation, from its environment; free with topo_hostlist_free. ERR_NOTFOUND:
 * this is no allocation. */
int topo_nodes_of_allocation(struct hostlist *out, struct err *e);
/* The name by which the allocation knows this node; its host's name outside one. */
void topo_nodes_self(char out[HOSTLIST_NAME]);

/* On a node: its answer. */
void topo_nodes_print(const char *tag, const char *text, size_t len, struct buf *out);

/*
 * Runs `muster WORD…` (words ends with NULL) on each node and takes what they print as `tag`:
 * answers[i] is that of node i, "" where it told none, or not all. `seconds` for the step to start
 * and a node to answer. Returns -1 with the reason when not one told anything.
 */
int topo_nodes_ask(const char *tag, const char *const *words, double seconds,
		   const struct hostlist *nodes, struct buf *answers, struct err *e);

/* The part of it that reads lines. */
int topo_nodes_gather(const char *tag, const char *text, const struct hostlist *nodes,
		      struct buf *answers, struct err *e);

#endif
