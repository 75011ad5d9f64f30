#include "libcomm/op.h"

#include <stdio.h>

static const struct {
	const char *name;
	enum op_share in, out, root_in, root_out;
	unsigned traits;
} operations[OP_KIND_COUNT] = {
#define OP_ROW(kind, ...) [kind] = { __VA_ARGS__ },
	OPERATIONS(OP_ROW)
#undef OP_ROW
};

const char *comm_op_word(enum op_kind kind)
{
	return (unsigned)kind < OP_KIND_COUNT ? operations[kind].name : "unknown operation";
}

bool comm_op_has(enum op_kind kind, unsigned traits)
{
	return (operations[kind].traits & traits) == traits;
}

enum op_share comm_op_in_share(const struct op *op, int rank)
{
	return op->root == rank ? operations[op->kind].root_in : operations[op->kind].in;
}

enum op_share comm_op_out_share(const struct op *op, int rank)
{
	return op->root == rank ? operations[op->kind].root_out : operations[op->kind].out;
}

const char *comm_op_type_word(enum comm_type type)
{
	static const char *const words[] = { "f32", "f64", "bf16", "f16", "i32", "i64", "u8" };
	return (unsigned)type < sizeof words / sizeof *words ? words[type] : "unknown type";
}

const char *comm_op_redop_word(enum comm_op redop)
{
	static const char *const words[] = { "sum", "avg", "max", "min", "prod" };
	return (unsigned)redop < sizeof words / sizeof *words ? words[redop] : "unknown reduction";
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

uint64_t comm_op_bytes(const struct op *op, int ranks)
{
	return total_count(op, ranks) * comm_type_size(op->type);
}

/* FNV-1a: lists that differ almost certainly have different hashes. */
static uint32_t hash_counts(const struct op *op, int ranks)
{
	uint32_t h = 2166136261u;
	if (!op->counts || comm_op_has(op->kind, OP_PAIRWISE))
		return 0;
	for (int r = 0; r < ranks; r++)
		for (size_t rest = op->counts[r], i = 0; i < sizeof rest; i++, rest >>= 8)
			h = (h ^ (rest & 0xff)) * 16777619u;
	return h;
}

struct op_signature comm_op_sign(const struct op *op, uint32_t seq, int ranks)
{
	return (struct op_signature){
		.seq = seq,
		.kind = (uint8_t)op->kind,
		.type = (uint8_t)op->type,
		.redop = (uint8_t)(comm_op_has(op->kind, OP_REDUCES) ? op->redop : 0),
		.root = op->root,
		.lists = hash_counts(op, ranks),
		.bytes = comm_op_has(op->kind, OP_PAIRWISE) ? 0 : comm_op_bytes(op, ranks),
	};
}

void comm_op_signature_text(const struct op_signature *s, char out[120])
{
	snprintf(out, 120, "%s number %u of %llu bytes, %s, %s, root %d", comm_op_word(s->kind),
		 s->seq, (unsigned long long)s->bytes, comm_op_type_word(s->type),
		 comm_op_redop_word(s->redop), s->root);
}

/* The elements of all ranks' blocks. More bytes than a buffer can have is an error. */
static int sum_counts(const size_t *counts, size_t count, int ranks, size_t size, size_t *out,
		      struct err *e)
{
	size_t sum = 0, bytes;
	bool over = !counts && __builtin_mul_overflow(count, (size_t)ranks, &sum);
	for (int r = 0; counts && r < ranks; r++)
		over |= __builtin_add_overflow(sum, counts[r], &sum);
	if (over || __builtin_mul_overflow(sum, size, &bytes) || bytes > PTRDIFF_MAX)
		return err_set(e, ERR_USAGE, "the counts are too large");
	*out = sum;
	return 0;
}

/* The next message of the list, from index i on, that a rank sends to itself, or receives from
 * itself. */
static int find_self_message(const struct op *op, int i, bool send, int rank)
{
	while (i < op->n && (op->p2p[i].peer != rank || op->p2p[i].send != send))
		i++;
	return i;
}

/* The k-th message that a rank sends to itself must match the k-th one that it receives. */
static int check_self_messages(const struct op *op, int rank, struct err *e)
{
	for (int s = -1, r = -1;;) {
		s = find_self_message(op, s + 1, true, rank);
		r = find_self_message(op, r + 1, false, rank);
		if (s == op->n && r == op->n)
			return 0;
		if (s == op->n || r == op->n ||
		    op->p2p[s].count * comm_type_size(op->p2p[s].type) !=
			    op->p2p[r].count * comm_type_size(op->p2p[r].type))
			return err_set(e, ERR_USAGE,
				       "a message from this rank to itself needs a send and a recv "
				       "of the same size in one batch");
	}
}

static int check_p2p(const struct op *op, int rank, int ranks, struct err *e)
{
	if (op->n < 0)
		return err_set(e, ERR_USAGE, "a list of %d messages", op->n);
	if (op->n && !op->p2p)
		return err_set(e, ERR_USAGE, "no list of messages");
	for (int i = 0; i < op->n; i++) {
		const struct comm_p2p *p = &op->p2p[i];
		size_t sum;
		if (p->peer < 0 || p->peer >= ranks)
			return err_set(e, ERR_USAGE, "peer %d is not a rank of the group (0 to %d)",
				       p->peer, ranks - 1);
		if ((unsigned)p->type > COMM_U8)
			return err_set(e, ERR_USAGE, "type %d does not exist", (int)p->type);
		if (p->count && !p->data)
			return err_set(e, ERR_USAGE, "no buffer for %zu elements", p->count);
		if (sum_counts(NULL, p->count, 1, comm_type_size(p->type), &sum, e))
			return -1;
	}
	return check_self_messages(op, rank, e);
}

static int count_blocks(enum op_kind kind, int ranks)
{
	return comm_op_has(kind, OP_ONE_BLOCK) ? 1 : ranks;
}

size_t comm_op_share_bytes(const struct op *op, enum op_share share, const size_t *counts, int rank,
			   int ranks)
{
	size_t elements = 0;
	if (share == SHARE_BLOCK)
		elements = counts ? counts[rank] : op->count;
	else if (share == SHARE_WHOLE && !counts)
		elements = op->count * (size_t)count_blocks(op->kind, ranks);
	for (int r = 0; share == SHARE_WHOLE && counts && r < ranks; r++)
		elements += counts[r];
	return elements * comm_type_size(op->type);
}

static int check_buffer(const struct op *op, enum op_share share, const void *buffer,
			const char *which, const size_t *counts, int rank, int ranks, struct err *e)
{
	size_t whole = 0, block = counts ? counts[rank] : op->count;
	if (sum_counts(counts, op->count, count_blocks(op->kind, ranks), comm_type_size(op->type),
		       &whole, e))
		return -1;
	size_t count = share == SHARE_WHOLE ? whole : share == SHARE_BLOCK ? block : 0;
	if (count && !buffer)
		return err_set(e, ERR_USAGE, "no buffer \"%s\" for %zu elements", which, count);
	return 0;
}

static int check_buffers(const struct op *op, int rank, int ranks, struct err *e)
{
	const size_t *out_counts = comm_op_has(op->kind, OP_PAIRWISE) ? op->out_counts : op->counts;
	if (op->by_rank && (!op->counts || !out_counts))
		return err_set(e, ERR_USAGE, "no list of counts");
	if (out_counts != op->counts && op->counts[rank] != out_counts[rank])
		return err_set(e, ERR_USAGE, "this rank sends itself %zu elements and receives %zu",
			       op->counts[rank], out_counts[rank]);
	if (check_buffer(op, comm_op_in_share(op, rank), op->in, "in", op->counts, rank, ranks, e) <
	    0)
		return -1;
	return check_buffer(op, comm_op_out_share(op, rank), op->out, "out", out_counts, rank,
			    ranks, e);
}

int comm_op_check(const struct op *op, int rank, int ranks, struct err *e)
{
	if (op->kind == OP_P2P)
		return check_p2p(op, rank, ranks, e);
	if ((unsigned)op->type > COMM_U8)
		return err_set(e, ERR_USAGE, "type %d does not exist", (int)op->type);
	if ((unsigned)op->redop > COMM_PROD)
		return err_set(e, ERR_USAGE, "reduction %d does not exist", (int)op->redop);
	if (op->root < 0 || op->root >= ranks)
		return err_set(e, ERR_USAGE, "root %d is not a rank of the group (0 to %d)",
			       op->root, ranks - 1);
	if (comm_op_has(op->kind, OP_PAIRWISE) && op->in == op->out && op->in)
		return err_set(e, ERR_USAGE,
			       "the two buffers are the same; give another one for the result");
	return check_buffers(op, rank, ranks, e);
}

void comm_op_blocks(const struct op *op, const size_t *counts, int ranks, size_t *off)
{
	size_t size = comm_type_size(op->type);
	off[0] = 0;
	for (int r = 0; r < ranks; r++)
		off[r + 1] = off[r] + (counts ? counts[r] : op->count) * size;
}
