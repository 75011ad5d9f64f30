#include "tests/conform/comm_forms.h"

#include <stdio.h>
#include <string.h>

enum { POISON = 0xa5 };

static struct piece given(int rank, int block, size_t count)
{
	return (struct piece){ PIECE_GIVEN, rank, block, count };
}

static struct piece reduced(int block, size_t count)
{
	return (struct piece){ PIECE_REDUCED, 0, block, count };
}

/* Makes the blocking call, or the call that starts the operation. */
#define EITHER(op, ...) \
	(t->start ? comm_##op##_start(t->c, __VA_ARGS__, req, e) : comm_##op(t->c, __VA_ARGS__, e))

#define FORM(name) \
	static int name##_call(const struct cell *t, struct comm_request **req, struct err *e)
#define SHAPE(name) static void name##_shape(const struct cell *t, struct shape *s)

/* The element where a rank's block begins if the blocks are uneven. */
static size_t begins(const size_t *counts, int rank)
{
	size_t at = 0;
	for (int r = 0; r < rank; r++)
		at += counts[r];
	return at;
}

/* --- Reductions --- */

SHAPE(all_reduce)
{
	s->in[s->ins++] = given(t->rank, 0, t->count);
	s->out[s->outs++] = reduced(0, t->count);
}

FORM(all_reduce)
{
	return EITHER(all_reduce, t->in, t->out, t->count, t->type, t->op);
}

SHAPE(reduce)
{
	s->in[s->ins++] = given(t->rank, 1, t->count);
	if (t->rank == t->root)
		s->out[s->outs++] = reduced(1, t->count);
	else if (!t->null && !t->in_place)
		s->out[s->outs++] = (struct piece){ PIECE_UNTOUCHED, 0, 0, t->count };
}

FORM(reduce)
{
	char *out = t->in_place && t->rank != t->root ? t->in : t->out;
	return EITHER(reduce, t->in, out, t->count, t->type, t->op, t->root);
}

SHAPE(reduce_scatter)
{
	for (int r = 0; r < t->n; r++)
		s->in[s->ins++] = given(t->rank, r, t->count);
	s->out[s->outs++] = reduced(t->rank, t->count);
	s->at = (size_t)t->rank * t->count;
}

FORM(reduce_scatter)
{
	return EITHER(reduce_scatter, t->in, t->out, t->count, t->type, t->op);
}

SHAPE(reduce_scatterv)
{
	for (int r = 0; r < t->n; r++)
		s->in[s->ins++] = given(t->rank, r, t->counts[r]);
	s->out[s->outs++] = reduced(t->rank, t->counts[t->rank]);
	s->at = begins(t->counts, t->rank);
}

FORM(reduce_scatterv)
{
	return EITHER(reduce_scatterv, t->in, t->out, t->counts, t->type, t->op);
}

/* --- Movements --- */

SHAPE(broadcast)
{
	if (t->rank == t->root)
		s->in[s->ins++] = given(t->root, 5, t->count);
	s->out[s->outs++] = given(t->root, 5, t->count);
}

FORM(broadcast)
{
	return EITHER(broadcast, t->out, t->count, t->type, t->root);
}

SHAPE(all_gather)
{
	s->in[s->ins++] = given(t->rank, 2, t->count);
	for (int r = 0; r < t->n; r++)
		s->out[s->outs++] = given(r, 2, t->count);
	s->at = (size_t)t->rank * t->count;
}

FORM(all_gather)
{
	return EITHER(all_gather, t->in, t->out, t->count, t->type);
}

SHAPE(all_gatherv)
{
	s->in[s->ins++] = given(t->rank, 3, t->counts[t->rank]);
	for (int r = 0; r < t->n; r++)
		s->out[s->outs++] = given(r, 3, t->counts[r]);
	s->at = begins(t->counts, t->rank);
}

FORM(all_gatherv)
{
	return EITHER(all_gatherv, t->in, t->out, t->counts, t->type);
}

SHAPE(gather)
{
	s->in[s->ins++] = given(t->rank, 4, t->count);
	for (int r = 0; t->rank == t->root && r < t->n; r++)
		s->out[s->outs++] = given(r, 4, t->count);
	if (t->rank != t->root && !t->null)
		s->out[s->outs++] = (struct piece){ PIECE_UNTOUCHED, 0, 0, t->count };
	s->at = (size_t)t->rank * t->count;
}

FORM(gather)
{
	return EITHER(gather, t->in, t->out, t->count, t->type, t->root);
}

SHAPE(gatherv)
{
	s->in[s->ins++] = given(t->rank, 6, t->counts[t->rank]);
	for (int r = 0; t->rank == t->root && r < t->n; r++)
		s->out[s->outs++] = given(r, 6, t->counts[r]);
	s->at = begins(t->counts, t->rank);
}

FORM(gatherv)
{
	return EITHER(gatherv, t->in, t->out, t->counts, t->type, t->root);
}

SHAPE(scatter)
{
	for (int r = 0; t->rank == t->root && r < t->n; r++)
		s->in[s->ins++] = given(t->root, r, t->count);
	s->out[s->outs++] = given(t->root, t->rank, t->count);
	s->at = (size_t)t->rank * t->count;
}

FORM(scatter)
{
	return EITHER(scatter, t->in, t->out, t->count, t->type, t->root);
}

SHAPE(scatterv)
{
	for (int r = 0; t->rank == t->root && r < t->n; r++)
		s->in[s->ins++] = given(t->root, r, t->counts[r]);
	s->out[s->outs++] = given(t->root, t->rank, t->counts[t->rank]);
	s->at = begins(t->counts, t->rank);
}

FORM(scatterv)
{
	return EITHER(scatterv, t->in, t->out, t->counts, t->type, t->root);
}

SHAPE(all_to_all)
{
	for (int r = 0; r < t->n; r++) {
		s->in[s->ins++] = given(t->rank, r, t->count);
		s->out[s->outs++] = given(r, t->rank, t->count);
	}
}

FORM(all_to_all)
{
	return EITHER(all_to_all, t->in, t->out, t->count, t->type);
}

SHAPE(all_to_allv)
{
	for (int r = 0; r < t->n; r++) {
		s->in[s->ins++] = given(t->rank, r, t->counts[r]);
		s->out[s->outs++] = given(r, t->rank, t->takes[r]);
	}
}

FORM(all_to_allv)
{
	return EITHER(all_to_allv, t->in, t->counts, t->out, t->takes, t->type);
}

SHAPE(barrier)
{
	(void)t;
	(void)s;
}

FORM(barrier)
{
	return t->start ? comm_barrier_start(t->c, req, e) : comm_barrier(t->c, e);
}

/* --- Messages --- */

/* The place of the i-th of n messages in one of the orders: sends first, receives first, by pairs,
 * reversed. */
static int place_of(const struct cell *t, bool send, int i, int n)
{
	switch (t->choice / 3 % 4) {
	case 0:
		return send ? i : n + i;
	case 1:
		return send ? n + i : i;
	case 2:
		return 2 * i + send;
	}
	return send ? 2 * n - 1 - i : n - 1 - i;
}

/* Every rank exchanges a message with every rank at once, including itself. */
FORM(grouped)
{
	struct comm_p2p ops[2 * REF_RANKS];
	size_t block = t->count * comm_type_size(t->type);
	for (int r = 0; r < t->n; r++) {
		size_t at = (size_t)r * block;
		ops[place_of(t, true, r, t->n)] = (struct comm_p2p){
			true, { block ? t->in + at : NULL }, t->count, t->type, r
		};
		ops[place_of(t, false, r, t->n)] = (struct comm_p2p){
			false, { block ? t->out + at : NULL }, t->count, t->type, r
		};
	}
	return EITHER(batch_send_recv, ops, 2 * t->n);
}

/* Messages go around the ring. */
SHAPE(send_recv)
{
	s->in[s->ins++] = given(t->rank, 3, t->count);
	s->out[s->outs++] = given((t->rank + t->n - 1) % t->n, 3, t->count);
}

FORM(send_recv)
{
	int next = (t->rank + 1) % t->n, before = (t->rank + t->n - 1) % t->n;
	struct comm_p2p both[] = { { true, { t->in }, t->count, t->type, next },
				   { false, { t->out }, t->count, t->type, before } };
	if (t->start || t->n == 1)
		return EITHER(batch_send_recv, both, 2);
	if (t->rank == 0 && comm_send(t->c, t->in, t->count, t->type, next, e) < 0)
		return -1;
	if (comm_recv(t->c, t->out, t->count, t->type, before, e) < 0)
		return -1;
	return t->rank == 0 ? 0 : comm_send(t->c, t->in, t->count, t->type, next, e);
}

/* Several messages between the same two ranks keep their order; the second of them is empty. */
enum { MESSAGES = 4 };

static size_t message_count(const struct cell *t, int i)
{
	return i == 1 ? 0 : (t->count + (size_t)i) / MESSAGES;
}

SHAPE(in_order)
{
	for (int i = 0; i < MESSAGES; i++) {
		s->in[s->ins++] = given(t->rank, i, message_count(t, i));
		s->out[s->outs++] = given((t->rank + t->n - 1) % t->n, i, message_count(t, i));
	}
}

FORM(in_order)
{
	struct comm_p2p ops[2 * MESSAGES];
	size_t at = 0, size = comm_type_size(t->type);
	bool sends_first = t->choice & 1;
	for (int i = 0; i < MESSAGES; at += message_count(t, i++) * size) {
		size_t count = message_count(t, i);
		ops[sends_first ? i : 2 * i] = (struct comm_p2p){
			true, { count ? t->in + at : NULL }, count, t->type, (t->rank + 1) % t->n
		};
		ops[sends_first ? MESSAGES + i : 2 * i + 1] =
			(struct comm_p2p){ false,
					   { count ? t->out + at : NULL },
					   count,
					   t->type,
					   (t->rank + t->n - 1) % t->n };
	}
	return EITHER(batch_send_recv, ops, 2 * MESSAGES);
}

/* --- The table --- */

/* clang-format off */
const struct form comm_forms[] = {
	{ "all_reduce", FORM_REDUCES | FORM_IN_PLACE, all_reduce_shape, all_reduce_call },
	{ "reduce", FORM_REDUCES | FORM_IN_PLACE, reduce_shape, reduce_call },
	{ "reduce_scatter", FORM_BLOCKS | FORM_REDUCES | FORM_IN_PLACE, reduce_scatter_shape, reduce_scatter_call },
	{ "reduce_scatterv", FORM_BLOCKS | FORM_REDUCES | FORM_IN_PLACE, reduce_scatterv_shape, reduce_scatterv_call },
	{ "broadcast", FORM_ALWAYS_IN_PLACE, broadcast_shape, broadcast_call },
	{ "all_gather", FORM_BLOCKS | FORM_IN_PLACE, all_gather_shape, all_gather_call },
	{ "all_gatherv", FORM_BLOCKS | FORM_IN_PLACE, all_gatherv_shape, all_gatherv_call },
	{ "gather", FORM_BLOCKS | FORM_IN_PLACE, gather_shape, gather_call },
	{ "gatherv", FORM_BLOCKS | FORM_IN_PLACE, gatherv_shape, gatherv_call },
	{ "scatter", FORM_BLOCKS | FORM_IN_PLACE, scatter_shape, scatter_call },
	{ "scatterv", FORM_BLOCKS | FORM_IN_PLACE, scatterv_shape, scatterv_call },
	{ "all_to_all", FORM_BLOCKS, all_to_all_shape, all_to_all_call },
	{ "all_to_allv", FORM_BLOCKS, all_to_allv_shape, all_to_allv_call },
	{ "barrier", 0, barrier_shape, barrier_call },
	{ "group", FORM_BLOCKS, all_to_all_shape, grouped_call },
	{ "send and recv", 0, send_recv_shape, send_recv_call },
	{ "messages in order", 0, in_order_shape, in_order_call },
};
/* clang-format on */

const int comm_form_count = sizeof comm_forms / sizeof *comm_forms;

/* --- Cells --- */

/* The count that rank a gives to rank b if the blocks are uneven. In the patterns, some blocks are
 * empty, only one has data, or all differ a little. */
static size_t uneven(const struct cell *t, int a, int b)
{
	unsigned spin = t->choice / 3;
	switch (t->choice % 3) {
	case 0:
		return ((unsigned)(a + 2 * b) + spin) % 3 * t->count;
	case 1:
		return (unsigned)(a + b) % (unsigned)t->n == spin % (unsigned)t->n ? 2 * t->count
										   : 0;
	}
	return t->count + (size_t)(3 * a + b) % 5;
}

size_t cell_room(const struct form *form, int n, size_t count, size_t element)
{
	size_t most = form->traits & FORM_BLOCKS ? (size_t)n * (2 * count + 4) : count + MESSAGES;
	return 2 * CELL_GUARD + (most + 1) * element;
}

static bool joined(const struct cell *t)
{
	return t->form->traits & FORM_ALWAYS_IN_PLACE ||
	       (t->form->traits & FORM_IN_PLACE && t->in_place && t->shape.ins && t->shape.outs &&
		t->shape.out[0].source != PIECE_UNTOUCHED);
}

static size_t bytes_of(const struct piece *p, int n, size_t size)
{
	size_t sum = 0;
	for (int i = 0; i < n; i++)
		sum += p[i].count;
	return sum * size;
}

/* Makes a poisoned buffer between guards. */
static char *box_open(struct cell *t, const struct cell_memory *memory, int which, size_t bytes)
{
	char *base = (t->shared[which] ? memory->shared : memory->local)[which];
	base += CELL_GUARD + (t->shifted ? comm_type_size(t->type) : 0);
	memset(base - CELL_GUARD, POISON, bytes + 2 * CELL_GUARD);
	t->box[which].base = base;
	t->box[which].bytes = bytes;
	return base;
}

static void place_buffers(struct cell *t, const struct cell_memory *memory)
{
	size_t size = comm_type_size(t->type), at = t->shape.at * size;
	size_t ins = bytes_of(t->shape.in, t->shape.ins, size),
	       outs = bytes_of(t->shape.out, t->shape.outs, size);
	t->box[1].base = NULL;
	if (joined(t)) {
		char *base = box_open(t, memory, 0, ins > outs ? ins : outs);
		t->in = ins < outs ? base + at : base;
		t->out = outs < ins ? base + at : base;
	} else {
		t->in = box_open(t, memory, 0, ins);
		t->out = box_open(t, memory, 1, outs);
	}
	if (t->null && !ins)
		t->in = NULL;
	if (t->null && !outs)
		t->out = NULL;
}

static const char *expected(const struct cell *t, const struct piece *p)
{
	bool factors = t->form->traits & FORM_REDUCES && t->op == COMM_PROD;
	return p->source == PIECE_REDUCED
		       ? reference_reduced(t->ref, t->type, t->op, p->block)
		       : reference_given(t->ref, t->type, factors, p->rank, p->block);
}

void cell_prepare(struct cell *t, const struct cell_memory *memory)
{
	t->rank = comm_rank(t->c);
	t->n = comm_size(t->c);
	t->root = (int)(t->choice % (unsigned)t->n);
	bool both = t->form->shape == all_to_allv_shape;
	for (int r = 0; r < t->n; r++) {
		t->counts[r] = both ? uneven(t, t->rank, r) : uneven(t, r, 0);
		t->takes[r] = uneven(t, r, t->rank);
	}
	t->shape = (struct shape){ .ins = 0 };
	t->form->shape(t, &t->shape);
	place_buffers(t, memory);
	char *at = t->in;
	for (int i = 0; i < t->shape.ins; i++) {
		size_t bytes = t->shape.in[i].count * comm_type_size(t->type);
		reference_spread(expected(t, &t->shape.in[i]), t->type, at, bytes);
		at += at ? bytes : 0;
	}
}

int cell_call(const struct cell *t, struct comm_request **req, struct err *e)
{
	return t->form->call(t, req, e);
}

const char *cell_text(const struct cell *t, char out[256])
{
	bool reduces = t->form->traits & FORM_REDUCES;
	snprintf(out, 256,
		 "%s of %zu %s%s%s%s%s, in %s, out %s%s, choice %u, rank %d of %d of group %s (%s)",
		 t->form->name, t->count, reference_type_name(t->type), reduces ? " " : "",
		 reduces ? reference_redop_name(t->op) : "", t->in_place ? ", in place" : "",
		 t->start ? ", started" : "", t->shared[0] ? "shared" : "local",
		 t->shared[1] ? "shared" : "local", t->shifted ? ", shifted" : "", t->choice,
		 t->rank, t->n, comm_name(t->c), comm_backend(t->c));
	return out;
}

static int complain(const struct cell *t, const char *what, size_t at, unsigned char got,
		    unsigned char want)
{
	char text[256];
	fprintf(stderr, "%s: byte %zu of %s is 0x%02x, not 0x%02x\n", cell_text(t, text), at, what,
		got, want);
	return 1;
}

static int check_poison(const struct cell *t, const char *what, const char *data, size_t bytes)
{
	for (size_t i = 0; i < bytes; i++)
		if ((unsigned char)data[i] != POISON)
			return complain(t, what, i, (unsigned char)data[i], POISON);
	return 0;
}

static int check_piece(const struct cell *t, const struct piece *p, const char *data,
		       const char *what, size_t at)
{
	size_t bytes = p->count * comm_type_size(t->type);
	if (p->source == PIECE_UNTOUCHED)
		return check_poison(t, "a buffer that is not this rank's to write", data + at,
				    bytes);
	const char *want = expected(t, p);
	size_t wrong = reference_differs(want, t->type, data + at, bytes);
	if (wrong == bytes)
		return 0;
	size_t period = REF_PERIOD * comm_type_size(t->type);
	return complain(t, what, at + wrong, (unsigned char)data[at + wrong],
			(unsigned char)want[wrong % period]);
}

/* Inputs must be unchanged, except where the result overlaps them. */
static int check_inputs(const struct cell *t)
{
	size_t size = comm_type_size(t->type), at = 0, bytes;
	const char *out = joined(t) ? t->out : NULL;
	size_t out_bytes = bytes_of(t->shape.out, t->shape.outs, size);
	for (int i = 0; i < t->shape.ins; i++, at += bytes) {
		bytes = t->shape.in[i].count * size;
		bool overwritten = out && t->in + at + bytes > out && t->in + at < out + out_bytes;
		if (!overwritten && bytes &&
		    check_piece(t, &t->shape.in[i], t->in, "the input", at))
			return 1;
	}
	return 0;
}

int cell_check(const struct cell *t)
{
	size_t at = 0;
	for (int i = 0; i < t->shape.outs; at += t->shape.out[i++].count * comm_type_size(t->type))
		if (t->shape.out[i].count &&
		    check_piece(t, &t->shape.out[i], t->out, "the result", at))
			return 1;
	for (int b = 0; b < 2 && t->box[b].base; b++)
		if (check_poison(t, "the guard before a buffer", t->box[b].base - CELL_GUARD,
				 CELL_GUARD) ||
		    check_poison(t, "the guard behind a buffer", t->box[b].base + t->box[b].bytes,
				 CELL_GUARD))
			return 1;
	return check_inputs(t);
}
