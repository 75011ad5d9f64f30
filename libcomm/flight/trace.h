/*
 * trace — the dumps of a world's ranks, read from their files (recorder.h has the format).
 *
 * The files are not trusted: lengths, numbers, words and their consistency are checked. Whoever
 * uses a trace may rely on this: ranks are within the world; a group has the same members in every
 * dump, each of them once; ops are in the order of their numbers.
 */
#ifndef MUSTER_LIBCOMM_FLIGHT_TRACE_H
#define MUSTER_LIBCOMM_FLIGHT_TRACE_H

#include "libcomm/flight/recorder.h"

#include <jansson.h>

enum {
	TRACE_RANKS = 1 << 17,
	TRACE_GROUPS = 4096,    /* at most, per rank */
	TRACE_FILE = 256 << 20, /* bytes of a file, at most */
	TRACE_OP_NAME = 32
};

struct trace_message {
	bool send;
	int peer; /* in the group */
	int64_t nth, bytes;
};

struct trace_op {
	enum op_kind kind;
	char name[TRACE_OP_NAME]; /* what another library calls it; "": as muster does */
	enum record_state state;
	enum comm_type type;
	enum comm_op redop;
	int root;                                     /* -1: none */
	int64_t number, seq, bytes, start_us, end_us; /* 0: absent */
	int messages, listed;
	struct trace_message message[RECORDER_MESSAGES];
};

struct trace_part { /* a group, as one of its ranks recorded it */
	struct trace_group *group;
	int rank;
	int64_t seq; /* collectives begun */
	struct trace_op *ops;
	int n;
};

struct trace_group {
	uint64_t id;
	char name[64];
	int size;
	int *members;             /* world ranks */
	struct trace_part **part; /* by rank in the group; NULL: no dump has it */
};

struct trace_rank {
	bool there;
	char *host;
	int64_t time_us;
	struct trace_part *parts;
	int n;
};

struct trace {
	int size; /* of the world; 0: no dump yet */
	struct trace_rank *ranks;
	struct trace_group **groups;
	int n;
};

/* What the program calls the operation, such as "all_reduce". */
const char *comm_trace_op_word(const struct trace_op *op);

/* Adds a rank's dump. name: of the file, for errors. After an error the trace can only be
 * closed. */
int comm_trace_add(struct trace *t, const char *text, size_t bytes, const char *name,
		   struct err *e);
/* The same for a dump that is part of another document. */
int comm_trace_add_json(struct trace *t, const json_t *dump, const char *name, struct err *e);
void comm_trace_fini(struct trace *t);

#endif
