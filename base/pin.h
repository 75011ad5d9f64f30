/*
 * pin — the cores that a process runs on, and the memory that it prefers.
 *
 * Both hold for the calling thread and for those that it starts later. Async-signal-safe: for use
 * between fork and exec, too.
 */
#ifndef MUSTER_BASE_PIN_H
#define MUSTER_BASE_PIN_H

#include "base/err.h"

/* cpus: a kernel cpu list such as "0-3,8"; "" does nothing. ERR_USAGE: it is none.
 * ERR_UNSUPPORTED: the thread may use none of them. */
int pin_cpus(const char *cpus, struct err *e);
/* Pages come from this NUMA domain as long as it has some (MPOL_PREFERRED), then from others; -1
 * does nothing. ERR_UNSUPPORTED. */
int pin_memory(int numa, struct err *e);

#endif
