/*
 * pin — binds a process to cores and to the memory of a NUMA domain.
 *
 * Both apply to the calling thread and to threads that it starts later. The functions are
 * async-signal-safe, so they may be called between fork and exec.
 */
#ifndef MUSTER_BASE_PIN_H
#define MUSTER_BASE_PIN_H

#include "base/err.h"

/* cpus: a kernel CPU list such as "0-3,8"; "" does nothing. ERR_USAGE: it is not a CPU list.
 * ERR_UNSUPPORTED: the thread may not use any of them. */
int pin_cpus(const char *cpus, struct err *e);
/* Pages come from this NUMA domain while it has free ones, then from others (MPOL_PREFERRED); -1 does
 * nothing. ERR_UNSUPPORTED: the system does not allow it. */
int pin_memory(int numa, struct err *e);

#endif
