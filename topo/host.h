/*
 * host — this machine as hwloc sees it: cores, their NUMA domains, memory.
 *
 * It is discovered once per process and then read-only, so every thread may use it. Only cores, PUs
 * and NUMA nodes are discovered; PCI and I/O discovery, which can take seconds, is skipped (2 ms in
 * total on a small machine). Only what this process may use is counted: a cgroup, a Slurm step or
 * taskset makes the machine smaller.
 */
#ifndef MUSTER_TOPO_HOST_H
#define MUSTER_TOPO_HOST_H

#include "base/err.h"

enum { HOST_CPUS = 128 }; /* bytes of a core's cpu list */

struct host_core {
	int numa;             /* domain it belongs to, counted from 0 */
	char cpus[HOST_CPUS]; /* its hardware threads, a kernel cpu list such as "3,67" */
};

struct host {
	struct host_core *cores; /* in topology order: neighbours share caches */
	int n_cores, n_numa;
	double memory; /* bytes */
};

/* This module keeps ownership of the host. */
int topo_host_get(const struct host **out, struct err *e);

#endif
