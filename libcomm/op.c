#include "libcomm/op.h"

#include <stdio.h>
#include <string.h>

const char *op_word(enum op_kind kind)
{
	switch (kind) {
#define OP_CASE(k, word) case k: return word;
	OP_KINDS(OP_CASE)
#undef OP_CASE
	case OP_KIND_COUNT:
		break;
	}
	return "unknown operation";
}

static size_t total_count(const struct op *op, int ranks)
{
	size_t sum = 0;
	if (!op->counts)
		return op->count;
	for (int r = 0; r < ranks; r++)
		sum += op->counts[r];
	return sum;
}

struct op_signature op_sign(const struct op *op, uint32_t seq, int ranks)
{
	int reduces = op->kind == OP_ALL_REDUCE || op->kind == OP_REDUCE || op->kind == OP_REDUCE_SCATTER;
	return (struct op_signature){
		.seq = seq,
		.kind = (uint8_t)op->kind,
		.type = (uint8_t)op->type,
		.redop = (uint8_t)(reduces ? op->redop : 0),
		.root = op->root,
		.bytes = op->kind == OP_ALL_TO_ALL ? 0 : total_count(op, ranks) * comm_type_size(op->type),
	};
}

void op_signature_text(const struct op_signature *s, char out[120])
{
	snprintf(out, 120, "%s number %u of %llu bytes, type %d, operation %d, root %d", op_word(s->kind),
		 s->seq, (unsigned long long)s->bytes, s->type, s->redop, s->root);
}

static int check_counts(const size_t *counts, size_t count, int ranks, size_t size, struct err *e)
{
	size_t sum = 0, bytes;
	for (int r = 0; r < ranks; r++)
		if (__builtin_add_overflow(sum, counts ? counts[r] : count, &sum))
			return err_set(e, ERR_USAGE, "the counts are too large");
	if (__builtin_mul_overflow(sum, size, &bytes))
		return err_set(e, ERR_USAGE, "the counts are too large");
	return 0;
}

static int check_p2p(const struct op *op, int ranks, struct err *e)
{
	if (op->n < 0)
		return err_set(e, ERR_USAGE, "a list of %d messages", op->n);
	for (int i = 0; i < op->n; i++) {
		const struct comm_p2p *p = &op->p2p[i];
		if (p->peer < 0 || p->peer >= ranks)
			return err_set(e, ERR_USAGE, "peer %d is not a rank of the group (0 to %d)", p->peer,
				       ranks - 1);
		if ((unsigned)p->type > COMM_U8)
			return err_set(e, ERR_USAGE, "type %d does not exist", (int)p->type);
		if (p->count && !p->data)
			return err_set(e, ERR_USAGE, "no buffer for %zu elements", p->count);
		if (check_counts(NULL, p->count, 1, comm_type_size(p->type), e) < 0)
			return -1;
	}
	return 0;
}

int op_check(const struct op *op, int ranks, struct err *e)
{
	if (op->kind == OP_P2P)
		return check_p2p(op, ranks, e);
	if ((unsigned)op->type > COMM_U8)
		return err_set(e, ERR_USAGE, "type %d does not exist", (int)op->type);
	if ((unsigned)op->redop > COMM_PROD)
		return err_set(e, ERR_USAGE, "reduction %d does not exist", (int)op->redop);
	if (op->root < 0 || op->root >= ranks)
		return err_set(e, ERR_USAGE, "root %d is not a rank of the group (0 to %d)", op->root, ranks - 1);
	if (op->kind == OP_ALL_TO_ALL && op->in == op->out && op->in)
		return err_set(e, ERR_USAGE, "the two buffers are the same; give another one for the result");
	if (check_counts(op->counts, op->count, ranks, comm_type_size(op->type), e) < 0)
		return -1;
	return op->out_counts ? check_counts(op->out_counts, 0, ranks, comm_type_size(op->type), e) : 0;
}

void op_blocks(const struct op *op, const size_t *counts, int ranks, size_t *off)
{
	size_t size = comm_type_size(op->type);
	off[0] = 0;
	for (int r = 0; r < ranks; r++)
		off[r + 1] = off[r] + (counts ? counts[r] : op->count) * size;
}
