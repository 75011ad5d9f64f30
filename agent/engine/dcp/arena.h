/*
 * arena — memory for the values of one pickle: blocks that are freed together. Private to the room.
 */
#ifndef MUSTER_AGENT_ENGINE_DCP_ARENA_H
#define MUSTER_AGENT_ENGINE_DCP_ARENA_H

#include <stddef.h>

struct dcp_arena;

struct dcp_arena *dcp_arena_open(void);
/* Returns zeroed memory, aligned for any object; NULL: no memory. */
void *dcp_arena_take(struct dcp_arena *a, size_t n);
void dcp_arena_close(struct dcp_arena *a);

#endif
