/*
 * recorder — a group's flight recorder: what its last operations were and how far they came.
 *
 * It holds the last RECORDER_OPS operations. Writing takes two looks at a counter and some plain
 * stores, no lock, and no system call; reading is possible from any thread at any time.
 *
 * A slot has one writer at a time. Operations are numbered by whoever calls into the group: one
 * thread at a time. A blocking operation is written by its caller. An asynchronous one is written
 * as queued before the group's thread can see it, and by that thread from then on; when the slot
 * still belongs to an operation that has not ended, because more than RECORDER_OPS are open, it is
 * first written when it begins. A reader takes the guard, the fields and the guard again, and tries
 * anew when the guard has changed.
 *
 * A dump (dump.c; diagnose.h reads it) is one JSON object, texts in UTF-8, times in microseconds
 * since 1970:
 *
 *     {"muster_comm_dump": 1, "rank", "size", "host", "pid", "time_us",
 *      "error": null | {"code": err_word, "text"},
 *      "groups": [{"name", "id": 16 hex digits, the same on all its ranks, "backend", "rank",
 *                  "members": [world rank, …],
 *                  "seq": collectives begun, "messages": send/recv calls begun,
 *                  "ops": [op, …]}, …]}
 *
 * and an op, the oldest first:
 *
 *     {"number": 1 for the group's first, "op": comm_op_word, "state": "queued" | "running" | "done" | "failed",
 *      "seq": number among the collectives, or the send/recv calls; absent while queued,
 *      "type", "redop" (of reductions), "root" (of those that have one; rank in the group),
 *      "bytes": of count elements; of all counts where they are given by rank, of this rank's in an all_to_all; of all messages,
 *      "algorithm", "queued_us", "start_us", "end_us": what it has,
 *      "messages": how many, "peers": [{"to" | "from": rank in the group, "nth": of all messages to or from it,
 *      "bytes"}, …], RECORDER_MESSAGES at most; of a send/recv that has begun}
 */
#ifndef MUSTER_LIBCOMM_FLIGHT_RECORDER_H
#define MUSTER_LIBCOMM_FLIGHT_RECORDER_H

#include "libcomm/op.h"

enum { RECORDER_OPS = 256, RECORDER_MESSAGES = 16 };

enum record_state { RECORD_NONE, RECORD_QUEUED, RECORD_RUNNING, RECORD_DONE, RECORD_FAILED };

struct recorder;

int comm_recorder_open(int ranks, struct recorder **out, struct err *e);
void comm_recorder_close(struct recorder *r);

/* The next operation, to be run later: its number, for op->record. */
uint64_t comm_recorder_queue(struct recorder *r, const struct op *op);
/* It begins; ops without a number get the next one. */
void comm_recorder_begin(struct recorder *r, const struct op *op, const struct op_signature *sign,
			 const char *algorithm);
/* The one that began last has ended. */
void comm_recorder_end(struct recorder *r, bool failed);

struct record_message {
	bool send;
	int peer;
	uint32_t nth;
	uint64_t bytes;
};

struct record { /* an operation, as read */
	uint64_t number;
	enum record_state state;
	enum op_kind kind;
	enum comm_type type;
	enum comm_op redop;
	int root, messages, listed;
	uint32_t seq;
	uint64_t bytes;
	const char *algorithm;      /* NULL: not chosen yet */
	int64_t queued, start, end; /* as of clock_ns; 0: not yet */
	struct record_message message[RECORDER_MESSAGES];
};

/* How many of each have begun, also those that the ring has lost. Any thread. */
void comm_recorder_counts(const struct recorder *r, uint32_t *collectives, uint32_t *messages);
/* All there are, by number, into out[RECORDER_OPS]; how many. Any thread. */
int comm_recorder_read(const struct recorder *r, struct record *out);

#endif
