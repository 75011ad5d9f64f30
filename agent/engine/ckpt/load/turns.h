/*
 * turns — the order in which the slices of a plan are read and sent.
 *
 * A turn is what one reader reads at a time: up to TURN_BYTES of consecutive slices of its queue. A
 * round is a set of turns, at most one of each reader. In a round each rank receives at most
 * ROUND_BYTES, or what one turn brings it if that is more. The next round begins where each reader
 * has stopped. All ranks compute the same rounds.
 *
 * Within a turn, the message of a group for a segment goes to each of its ranks but the reader. Two
 * ranks exchange their messages of a round in the order of the turn's segments, then of the groups.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_LOAD_TURNS_H
#define MUSTER_AGENT_ENGINE_CKPT_LOAD_TURNS_H

#include "agent/engine/ckpt/load/pieces.h"

#include <stddef.h>

enum { TURN_BYTES = 2 << 20, TURN_BYTES_LEAST = 64 << 10, TURN_SEGMENTS = 256 };
enum { ROUND_BYTES = 32 << 20 };

/* Elements [first, first + n) of a slice. */
struct segment {
	const struct piece_slice *slice;
	int64_t first, n;
};

struct turn {
	int reader;
	struct segment segments[TURN_SEGMENTS];
	int n;
};

/* How far a reader has come. */
struct turn_cursor {
	int64_t queued;  /* of the plan's queue */
	int64_t element; /* of that slice */
};

/* Sets the plan's limits, before anything below. A turn has the fewer bytes, the more ranks send to
 * one, so that they all can in one round. 0: the defaults. */
void ckpt_turns_limit(struct pieces *p, int64_t turn_bytes, int64_t round_bytes);
struct turn_cursor ckpt_turn_begin(const struct pieces *p, int reader);
/* Sets the reader's next turn and moves the cursor behind it. false: there is none. */
bool ckpt_turn_next(const struct pieces *p, int reader, struct turn_cursor *at, struct turn *out);

/* A message of a segment: elements [at, at + n) of the group's cut. */
struct turn_message {
	const struct segment *segment;
	const struct piece_group *group;
	int64_t at, n;
};

/* Visits the messages of a turn, in their order. */
typedef void turn_visit(void *arg, const struct turn_message *message);
void ckpt_turn_messages(const struct pieces *p, const struct turn *t, turn_visit *visit, void *arg);

struct rounds_order;
int ckpt_rounds_order_open(const struct pieces *p, struct rounds_order **out, struct err *e);
void ckpt_rounds_order_close(struct rounds_order *o); /* takes NULL */
/* Visits the turns of the next round; each is valid during the call. false: there is none. */
bool ckpt_rounds_order_next(struct rounds_order *o, void (*visit)(void *arg, const struct turn *t),
			    void *arg);

#endif
