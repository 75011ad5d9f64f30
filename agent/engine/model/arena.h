/*
 * carve — one allocation cut into pieces of whole lines.
 *
 * With base NULL it only measures: the same code walks twice, first for the size, then for the
 * places.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_ARENA_H
#define MUSTER_AGENT_ENGINE_MODEL_ARENA_H

#include <stdint.h>

struct model_arena {
	char *base;
	int64_t used; /* bytes */
};

/* NULL while measuring, and for no bytes at all. */
void *model_arena_take(struct model_arena *c, int64_t bytes);

#endif
