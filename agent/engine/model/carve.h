/*
 * carve — one allocation cut into pieces of whole lines.
 *
 * With base NULL it only measures: the same code walks twice, first for the size, then for the
 * places.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_CARVE_H
#define MUSTER_AGENT_ENGINE_MODEL_CARVE_H

#include <stdint.h>

struct carver {
	char *base;
	int64_t used; /* bytes */
};

/* NULL while measuring, and for no bytes at all. */
void *model_carve(struct carver *c, int64_t bytes);

#endif
