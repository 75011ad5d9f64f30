/*
 * descriptors — the limits of a process that a run cannot do without, looked at before anything is
 * started: how many files a launcher holds open (two for each rank, and some of its own), and the
 * address space of an agent (ulimit -v).
 */
#ifndef MUSTER_LAUNCHER_DESCRIPTORS_H
#define MUSTER_LAUNCHER_DESCRIPTORS_H

#include "base/err.h"
#include "plan/plan.h"

/* Raises the soft limit where `ranks` need more, as far as the hard one allows; ERR_UNSUPPORTED
 * when that is too few. What is started afterwards inherits the limit. */
int launcher_descriptors_allow(int ranks, struct err *e);
/* ERR_UNSUPPORTED when the address space is limited, as agents inherit it, and too small for the
 * largest rank of the plan. */
int launcher_address_space_allows(const struct job *job, const struct plan *p, struct err *e);

#endif
