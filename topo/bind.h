/* bind — which cores an agent runs on. */
#ifndef MUSTER_TOPO_BIND_H
#define MUSTER_TOPO_BIND_H

#include "base/err.h"
#include "topo/cluster.h"

#include <stddef.h>

/* Cores for slot `slot` of `slots` with `threads` each: neighbours in the
 * topology, each slot in one NUMA domain where it fits, slots disjoint where there are enough
 * cores. The text is a kernel cpu list such as "0-3,8"; "" when slots*threads exceeds the cores,
 * where sharing without binding is better. */
int topo_bind_cpus(int slots, int slot, int threads, char *list, int size, struct err *e);

/* Cores next to a device of a node of this kind, so many as its share of those (parts[].cpus) that
 * other devices have next to them as well. A kernel cpu list; "" where the kind does not tell, or
 * it does not fit. base/pin.h binds to it. */
void topo_bind_near(const struct node_kind *k, int device, char *list, size_t size);

#endif
