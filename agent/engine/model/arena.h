/*
 * arena — divides one allocation into pieces of whole 64-byte lines.
 *
 * With base NULL the arena only measures. The same code runs twice: first it finds the size, then
 * it takes the pieces.
 */
#ifndef MUSTER_AGENT_ENGINE_MODEL_ARENA_H
#define MUSTER_AGENT_ENGINE_MODEL_ARENA_H

#include <stdint.h>

struct model_arena {
	char *base;
	int64_t used; /* bytes */
};

/* Returns the next piece; NULL while measuring, and for 0 bytes. */
void *model_arena_take(struct model_arena *c, int64_t bytes);

#endif
