/*
 * nodes — runs this program once on every node of the allocation, in one srun step, and collects the
 * answers.
 *
 * srun forwards whole lines, but mixes the lines of different nodes. A node therefore answers in
 * lines of this form:
 *     TAG NODE PART PARTS TEXT
 * The concatenated texts of all parts are the text that the node gave to topo_nodes_print, which
 * contains no line break. Other lines, and damaged ones, are skipped.
 */
#ifndef MUSTER_TOPO_DISCOVER_NODES_H
#define MUSTER_TOPO_DISCOVER_NODES_H

#include "base/buf.h"
#include "base/err.h"
#include "topo/hostlist.h"

/* The nodes of the allocation, from its environment; free with topo_hostlist_free. ERR_NOTFOUND:
 * this process is not in an allocation. */
int topo_nodes_of_allocation(struct hostlist *out, struct err *e);
/* The name of this node in the allocation; outside of one, the host name. */
void topo_nodes_own_name(char out[HOSTLIST_NAME]);

/* Called on a node: appends its answer. */
void topo_nodes_print(const char *tag, const char *text, size_t len, struct buf *out);

/*
 * Runs `muster WORD…` (words ends with NULL) on each node and collects the answers with this tag:
 * answers[i] is that of node i, or "" if it is missing or incomplete. seconds: time limit for the
 * step to start and the nodes to answer. Returns -1 with the reason if no node answered.
 */
int topo_nodes_ask(const char *tag, const char *const *words, double seconds,
		   const struct hostlist *nodes, struct buf *answers, struct err *e);

/* The part of topo_nodes_ask that parses the lines. */
int topo_nodes_gather(const char *tag, const char *text, const struct hostlist *nodes,
		      struct buf *answers, struct err *e);

#endif
