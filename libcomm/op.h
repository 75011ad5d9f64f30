/*
 * op — one operation as a value: the arguments of an API call.
 *
 * Every entry of comm.h fills a struct op. From there all operations take the same path through
 * checks, sequence numbers, the algorithm table, the group's thread and the error texts.
 * operations.h holds the traits of each kind.
 */
#ifndef MUSTER_LIBCOMM_OP_H
#define MUSTER_LIBCOMM_OP_H

#include "libcomm/comm.h"
#include "libcomm/operations.h"

enum op_kind {
#define OP_ENUM(kind, ...) kind,
	OPERATIONS(OP_ENUM)
#undef OP_ENUM
		OP_KIND_COUNT
};

const char *comm_op_word(enum op_kind kind);
/* "f32", "sum" */
const char *comm_op_type_word(enum comm_type type);
const char *comm_op_redop_word(enum comm_op redop);
/* Whether the operation has all these traits (enum comm_op_traits). */
bool comm_op_has(enum op_kind kind, unsigned traits);

struct stream_mark;

struct op {
	enum op_kind kind;
	const void *in;
	void *out; /* a broadcast's data too */
	size_t count;
	bool by_rank; /* the form with lists: counts, not count, holds the sizes */
	/* The blocks of the whole vector; in an all_to_all those of `in`. */
	const size_t *counts;
	const size_t *out_counts; /* all_to_all: the blocks of out */
	enum comm_type type;
	enum comm_op redop;
	int root;
	const struct comm_p2p *p2p;
	int n;
	uint64_t record; /* number in the flight recorder; 0: assigned when it begins */
	struct stream_mark
		*mark; /* device_group.h; NULL: on host memory, or on the caller's own thread */
};

/* What all ranks of a group must agree on in one operation. */
struct op_signature {
	uint32_t seq;
	uint8_t kind, type, redop;
	int32_t root;
	uint32_t lists; /* hash of the list of counts; 0: no list, or one that may differ */
	uint64_t bytes; /* of the whole vector; 0 if ranks may differ */
};

/* Which part of the vector the given rank reads from its `in` and writes to its `out`. */
enum op_share comm_op_in_share(const struct op *op, int rank);
enum op_share comm_op_out_share(const struct op *op, int rank);
/* The bytes of that part. counts: op->counts, or op->out_counts for the `out` of a pairwise
 * operation. */
size_t comm_op_share_bytes(const struct op *op, enum op_share share, const size_t *counts, int rank,
			   int ranks);

/* Bytes of the whole vector: of count elements, or of all counts (in an all_to_all: of `in`). Not
 * for messages. */
uint64_t comm_op_bytes(const struct op *op, int ranks);
struct op_signature comm_op_sign(const struct op *op, uint32_t seq, int ranks);
/* Formats "all_reduce number 7 of 4096 bytes, f32, sum, root 0". */
void comm_op_signature_text(const struct op_signature *s, char out[120]);

/* Refuses, with ERR_USAGE, what this rank alone can see to be wrong. */
int comm_op_check(const struct op *op, int rank, int ranks, struct err *e);

/* off[0..ranks]: the byte offset of each rank's block. */
void comm_op_blocks(const struct op *op, const size_t *counts, int ranks, size_t *off);

#endif
