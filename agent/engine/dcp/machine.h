/*
 * machine — the stack machine that reads a pickle: its input, its stack with marks, its memo and the
 * limits of all of them (pickle.h). The opcodes are in pickle.c. Private to the room.
 *
 * A function that fails sets the machine's error.
 */
#ifndef MUSTER_AGENT_ENGINE_DCP_MACHINE_H
#define MUSTER_AGENT_ENGINE_DCP_MACHINE_H

#include "agent/engine/dcp/arena.h"
#include "agent/engine/dcp/pickle.h"

struct dcp_machine {
	const uint8_t *at, *end, *start;
	const char *name;   /* the file's name */
	const char *remedy; /* if the pickle has what the tables do not have */
	struct dcp_arena *arena;
	struct dcp_value **stack, **memo;
	int64_t n, room, n_memo, memo_room, nodes;
	int64_t marks[DCP_PICKLE_DEPTH_MAX];
	int depth;
	bool stopped;
	struct err *e;
};

/* ERR_CORRUPT with the place in the input; ERR_NOMEM. Both return -1. */
int dcp_machine_fail(struct dcp_machine *m, const char *why);
int dcp_machine_fail_memory(struct dcp_machine *m);

/* Makes room for at least `least` values in the stack or the memo. */
int dcp_machine_grow(struct dcp_machine *m, struct dcp_value ***list, int64_t *room, int64_t least);

/* A NULL value, which could not be made, fails. */
int dcp_machine_push(struct dcp_machine *m, struct dcp_value *v);
/* Where the values above the last mark begin; without a mark, those of the whole stack. */
int64_t dcp_machine_floor(const struct dcp_machine *m);
/* The last value above the last mark; NULL with an error if there is none. */
struct dcp_value *dcp_machine_pop(struct dcp_machine *m);
struct dcp_value *dcp_machine_top(struct dcp_machine *m);
/* Removes the values above the last mark, and the mark. They stay readable at stack + *from until
 * the next push. */
int dcp_machine_take_mark(struct dcp_machine *m, int64_t *from, int64_t *n);

/* A new value; NULL with an error if there are too many. */
struct dcp_value *dcp_machine_make(struct dcp_machine *m, enum dcp_kind kind);
int dcp_machine_add_item(struct dcp_machine *m, struct dcp_value *to, struct dcp_value *item);

/* Takes bytes from the input, or a little-endian number of at most 8. */
bool dcp_machine_read(struct dcp_machine *m, size_t n, const uint8_t **out);
bool dcp_machine_read_number(struct dcp_machine *m, int width, uint64_t *out);

#endif
