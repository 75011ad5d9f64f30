/* bind — which cores an agent runs on. */
#ifndef MUSTER_TOPO_BIND_H
#define MUSTER_TOPO_BIND_H

#include "base/err.h"

/* Cores for slot `slot` of `slots` with `threads` each: neighbours in the
 * topology, each slot in one NUMA domain where it fits, slots disjoint where there are enough
 * cores. The text is a kernel cpu list such as "0-3,8"; "" when slots*threads exceeds the cores,
 * where sharing without binding is better. */
int bind_cpus(int slots, int slot, int threads, char *list, int size, struct err *e);

/* Binds the calling process to such a list ("" does nothing). For use between fork and exec and in the agent:
 * async-signal-safe, no hwloc inside. */
int bind_self(const char *list, struct err *e);

#endif
