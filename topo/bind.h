/* bind — chooses the cores that an agent runs on. */
#ifndef MUSTER_TOPO_BIND_H
#define MUSTER_TOPO_BIND_H

#include "base/err.h"
#include "topo/cluster.h"

#include <stddef.h>

/* Chooses cores for slot `slot` of `slots`, with `threads` threads per slot. The cores of a slot are
 * neighbours in the topology, in one NUMA domain if they fit; slots do not share cores if there are
 * enough. list: a kernel CPU list such as "0-3,8"; "" if slots × threads exceeds the number of
 * cores, because then threads run better without binding. */
int topo_bind_cpus(int slots, int slot, int threads, char *list, int size, struct err *e);

/* Chooses cores near a device of a node of this kind. Devices that have the same near cores
 * (parts[].cpus) get equal shares of them. list: a kernel CPU list for base/pin.h; "" if the near
 * cores are unknown or the list does not fit. */
void topo_bind_near(const struct node_kind *k, int device, char *list, size_t size);

#endif
