/*
 * preflight — checks before training that a rank's device is healthy and that the rank fits.
 *
 * A GPU that is lost, has unreliable memory, or has less free memory than the rank needs by the
 * plan fails here, on one rank and with the device's name, instead of later in a collective of all
 * ranks. Conditions that only slow a run down are logged as warnings.
 */
#ifndef MUSTER_AGENT_PREFLIGHT_H
#define MUSTER_AGENT_PREFLIGHT_H

#include "base/err.h"

#include <stdbool.h>

struct preflight {
	bool cuda;
	int device;      /* number on the node */
	const char *bus; /* its PCI address; "": unknown */
	const char *node;
	double memory;  /* bytes that the rank needs by the plan; 0: unknown */
	int node_ranks; /* ranks of this node */
	/* result: CUDA's number for that device in this process; `device` if it is unknown */
	int ordinal;
};

/*
 * Call before CUDA is initialized, because it sets CUDA_DEVICE_ORDER so that CUDA numbers devices
 * as the plan does, and NCCL_LAUNCH_ORDER_IMPLICIT = 1 unless the user has set it. ERR_DEVICE: the
 * device must not be used. ERR_NOTFOUND: there is no such device. ERR_NOFIT: too little memory is
 * free, even after some seconds in which a process that has just ended could release its own.
 * Without NVIDIA's management library it logs a warning and checks nothing.
 */
int agent_preflight(struct preflight *p, struct err *e);

#endif
