#include "agent/engine/model/arena.h"

#include "plan/spec/model/activations.h"

#include <stddef.h>

void *model_arena_take(struct model_arena *c, int64_t bytes)
{
	void *p = c->base && bytes ? c->base + c->used : NULL;
	c->used += activations_lines(bytes);
	return p;
}
