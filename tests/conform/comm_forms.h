/*
 * comm_forms — describes every operation of comm.h as a row, and one call of it as a value.
 *
 * The shape of a form states what a rank gives and what it must get, as pieces of comm_reference's
 * blocks. The form also states how the operation is called. A cell is one call: a form with a type,
 * a count, a root and buffers of some kind. cell_prepare fills what the call reads, and poisons
 * what it writes and the memory around it. cell_call makes the call. cell_check compares every
 * byte: results, inputs that must be unchanged, buffers that this rank may not write, and guards.
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
	FORM_BLOCKS = 8, /* the count is that of a block; there is one per rank */
};
enum { FORM_PIECES = REF_RANKS, CELL_GUARD = 256 };

enum piece_source { PIECE_GIVEN, PIECE_REDUCED, PIECE_UNTOUCHED };

struct piece {
	enum piece_source source;
	int rank, block; /* of the data that is given; the block of the data that is reduced */
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

/* The buffers of a call: cell_room bytes of each kind for each buffer. */
struct cell_memory {
	char *local[2], *shared[2]; /* in, out; shared is comm_alloc's */
};

struct cell {
	/* The call. These are equal on all ranks of the group: */
	struct comm *c;
	const struct reference *ref;
	const struct form *form;
	enum comm_type type;
	enum comm_op op;
	size_t count;
	/* determines the root, the pattern of uneven counts and the order of messages */
	uint32_t choice;
	bool in_place, start;
	/* These may differ between ranks: */
	bool shared[2]; /* in, out: comm_alloc's memory */
	bool shifted;   /* one element off the alignment of the memory */
	bool null;      /* empty buffers are NULL */

	/* cell_prepare sets these. */
	int rank, n, root;
	size_t counts[REF_RANKS], takes[REF_RANKS];
	struct shape shape;
	char *in, *out;
	struct {
		char *base;
		size_t bytes;
	} box[2]; /* between guards; box[1] is unused in place */
};

/* An upper bound of the bytes for a buffer of a cell with this many elements. It includes guards
 * and the shift. */
size_t cell_room(const struct form *form, int n, size_t count, size_t element);

void cell_prepare(struct cell *cell, const struct cell_memory *memory);
/* Sets req if cell->start is set. */
int cell_call(const struct cell *cell, struct comm_request **req, struct err *e);
/* Returns 0, or 1 after a line on stderr. */
int cell_check(const struct cell *cell);
/* "all_gatherv f16, 65 elements, in place, …, rank 3 of 7 (tcp)" */
const char *cell_text(const struct cell *cell, char out[256]);

#endif
