/*
 * recorder — a group's flight recorder: its last operations and how far they came.
 *
 * It holds the last RECORDER_OPS operations. A write takes two reads of a counter and some
 * ordinary stores, no lock, and no system call. Any thread may read at any time.
 *
 * A slot has one writer at a time. The thread that calls into the group numbers the operations. A
 * blocking operation is written by its caller. An asynchronous one is written as queued before the
 * group's thread can see it, and by that thread afterwards. If the slot still belongs to an
 * operation that has not ended, because more than RECORDER_OPS are open, it is first written when
 * the operation begins. A reader reads the guard, the fields and the guard again, and retries if
 * the guard has changed.
 *
 * A dump (dump.c writes it, trace.c reads it) is one JSON object, texts in UTF-8, times in
 * microseconds since 1970:
 *
 *     {"muster_comm_dump": 1, "rank", "size", "host", "pid", "time_us",
 *      "error": null | {"code": err_word, "text"},
 *      "groups": [{"name", "id": 16 hex digits, equal on all its ranks, "backend", "rank",
 *                  "members": [world rank, …],
 *                  "seq": collectives begun, "messages": send/recv calls begun,
 *                  "ops": [op, …]}, …]}
 *
 * A tape (comm_tape_start in comm.h) has the same format. It holds every operation that has ended while
 * it ran, at most COMM_TAPE_OPS of each group.
 *
 * An op, of which the oldest comes first:
 *
 *     {"number": 1 for the group's first, "op": comm_op_word,
 *      "state": "queued" | "running" | "done" | "failed",
 *      "seq": number among the collectives, or the send/recv calls; absent while queued,
 *      "type", "redop" (reductions only), "root" (rooted operations only; rank in the group),
 *      "bytes": of count elements; of all counts if they are given by rank, in an all_to_all of
 *               this rank's; in a send/recv of all messages,
 *      "algorithm", "queued_us", "start_us", "end_us": those that are known,
 *      "name": what the program calls it, in a dump that was made from another library's recorder;
 *              "op" is then the operation that it resembles,
 *      "messages": how many, "peers": [{"to" | "from": rank in the group,
 *                  "nth": of all messages to or from it, "bytes"}, …]}
 *
 * "messages" and "peers" belong to a send/recv that has begun; "peers" lists at most
 * RECORDER_MESSAGES of them.
 */
#ifndef MUSTER_LIBCOMM_FLIGHT_RECORDER_H
#define MUSTER_LIBCOMM_FLIGHT_RECORDER_H

#include "libcomm/op.h"

enum { RECORDER_OPS = 256, RECORDER_MESSAGES = 16 };

enum record_state { RECORD_NONE, RECORD_QUEUED, RECORD_RUNNING, RECORD_DONE, RECORD_FAILED };

struct recorder;

int comm_recorder_open(int ranks, struct recorder **out, struct err *e);
void comm_recorder_close(struct recorder *r);

/* Records the next operation, to be run later. Returns its number, for op->record. */
uint64_t comm_recorder_queue(struct recorder *r, const struct op *op);
/* Records that an operation begins. One without a number gets the next one. */
void comm_recorder_begin(struct recorder *r, const struct op *op, const struct op_signature *sign,
			 const char *algorithm);
/* Records that the operation that began last has ended. */
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

/* How many of each have begun, including those that the ring no longer holds. From any thread. */
void comm_recorder_counts(const struct recorder *r, uint32_t *collectives, uint32_t *messages);
/* Reads all recorded operations, by number, into out[RECORDER_OPS]; returns how many. From any
 * thread. */
int comm_recorder_read(const struct recorder *r, struct record *out);

/* From now on every operation that ends is kept, until the tape stops. Any thread. */
void comm_recorder_tape_start(struct recorder *r);
/* Stops the tape and returns its operations, by their end, for the caller to free; NULL: there are
 * none. *lost: operations for which there was no room. Any thread. */
struct record *comm_recorder_tape_stop(struct recorder *r, int *n, int64_t *lost);

#endif
