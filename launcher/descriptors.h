/*
 * descriptors — checks the limits of this process that a run depends on, before anything starts.
 * These are the number of open files (launcher_descriptors_allow) and the address
 * space of an agent (ulimit -v).
 */
#ifndef MUSTER_LAUNCHER_DESCRIPTORS_H
#define MUSTER_LAUNCHER_DESCRIPTORS_H

#include "base/err.h"
#include "plan/plan.h"

/* Raises the soft limit of open files if the agents need more. Each of them needs one. nodes: on which they are
 * started by others, with a guard and a helper on each; 0: they are children of this process, and need another
 * one each. Processes started later inherit it. ERR_UNSUPPORTED: the hard limit is too low. */
int launcher_descriptors_allow(int ranks, int nodes, struct err *e);
/* ERR_UNSUPPORTED: the address space is limited, which agents inherit, and too small for the
 * largest rank of the plan. */
int launcher_address_space_allows(const struct job *job, const struct plan *p, struct err *e);

#endif
