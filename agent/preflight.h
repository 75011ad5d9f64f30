/*
 * preflight — what an agent looks at before it trains: whether its device is sound, and whether the
 * rank fits.
 *
 * A GPU that is lost, has memory that cannot be trusted, or less free memory than the plan gives
 * the rank, fails here, on one rank and with the device's name, and not in the middle of a
 * collective of all. What a run merely suffers from is logged as a warning.
 */
#ifndef MUSTER_AGENT_PREFLIGHT_H
#define MUSTER_AGENT_PREFLIGHT_H

#include "base/err.h"

#include <stdbool.h>

struct preflight {
	bool cuda;
	int device;      /* of the node */
	const char *bus; /* its PCI address, "" where it is not told */
	const char *node;
	double memory; /* bytes that the rank takes by the plan; 0: not told */
	int crew;      /* ranks of this node */
	/* set: CUDA's number for that device in this process; `device` where that is not found
	 * out */
	int ordinal;
};

/*
 * Before CUDA is touched, as it sets CUDA_DEVICE_ORDER so that CUDA numbers devices as the plan
 * does. ERR_UNSUPPORTED: the device must not be trained on; ERR_NOTFOUND: it is not here;
 * ERR_NOFIT: too little memory, after some seconds for what just ended to give its own back.
 * Without NVIDIA's management library it says so in the log and lets CUDA find out.
 */
int agent_preflight(struct preflight *p, struct err *e);

#endif
