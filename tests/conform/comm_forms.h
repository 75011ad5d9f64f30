/*
 * comm_forms — every operation of comm.h as a row, and one call of it as a value.
 *
 * A form says by its shape what a rank gives and what it must get, as pieces of comm_reference's
 * blocks, and how it is called. A cell is one call: a form with a type, a count, a root, buffers of
 * some kind. cell_prepare fills what the call reads and poisons what it writes and all around it;
 * cell_call calls; cell_check compares every byte: results, inputs that must be as they were,
 * buffers that are not this rank's to write, guards.
 *
 * There are two things to do to add an operation: write its shape and its call in comm_forms.c, and
 * add its row to the table there.
 */
#ifndef MUSTER_TESTS_COMM_FORMS_H
#define MUSTER_TESTS_COMM_FORMS_H

#include "tests/conform/comm_reference.h"

enum form_traits {
	FORM_REDUCES = 1,
	FORM_IN_PLACE = 2,
	FORM_ALWAYS_IN_PLACE = 4,
	FORM_BLOCKS = 8, /* the count is of a block, one a rank */
};
enum { FORM_PIECES = REF_RANKS, CELL_GUARD = 256 };

enum piece_source { PIECE_GIVEN, PIECE_REDUCED, PIECE_UNTOUCHED };

struct piece {
	enum piece_source source;
	int rank, block; /* of what is given; the block of what is reduced */
	size_t count;
};

struct shape {
	struct piece in[FORM_PIECES], out[FORM_PIECES];
	int ins, outs;
	size_t at; /* in place: where the smaller buffer begins in the larger one, in elements */
};

struct cell;

struct form {
	const char *name;
	unsigned traits;
	void (*shape)(const struct cell *, struct shape *);
	int (*call)(const struct cell *, struct comm_request **, struct err *);
};

extern const struct form comm_forms[];
extern const int comm_form_count;

/* Where the buffers of a call lie: of each kind cell_room bytes for each. */
struct cell_memory {
	char *plain[2], *shared[2]; /* in, out; shared is comm_alloc's */
};

struct cell {
	/* The call. All ranks of the group agree on these: */
	struct comm *c;
	const struct reference *ref;
	const struct form *form;
	enum comm_type type;
	enum comm_op op;
	size_t count;
	/* the root, the pattern of uneven counts, the order of messages follow from it */
	uint32_t choice;
	bool in_place, start;
	/* and may differ in these: */
	bool shared[2]; /* in, out: comm_alloc's memory */
	bool shifted;   /* one element off the alignment of the memory */
	bool null;      /* NULL for what is empty */

	/* What cell_prepare makes of it. */
	int rank, n, root;
	size_t counts[REF_RANKS], takes[REF_RANKS];
	struct shape shape;
	char *in, *out;
	struct {
		char *base;
		size_t bytes;
	} box[2]; /* between guards; box[1] is unused in place */
};

/* An upper bound for a buffer of a cell of so many elements, guards and shift included. */
size_t cell_room(const struct form *form, int n, size_t count, size_t element);

void cell_prepare(struct cell *cell, const struct cell_memory *memory);
/* req: set when cell->start. */
int cell_call(const struct cell *cell, struct comm_request **req, struct err *e);
/* 0, or 1 after a line on stderr. */
int cell_check(const struct cell *cell);
/* "all_gatherv f16, 65 elements, in place, …, rank 3 of 7 (tcp)" */
const char *cell_text(const struct cell *cell, char out[256]);

#endif
