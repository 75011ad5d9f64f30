#include "agent/parallel/cp.h"

void cp_init(struct cp *c, struct comm *group)
{
	*c = (struct cp){
		.comm = group,
		.rank = group ? comm_rank(group) : 0,
		.size = group ? comm_size(group) : 1,
	};
}

int64_t cp_position(const struct cp *c, int64_t seq, int64_t t)
{
	int64_t piece = seq / (2 * c->size);
	if (c->size == 1)
		return t;
	return t < piece ? c->rank * piece + t : (2 * c->size - 1 - c->rank) * piece + t - piece;
}

/* The parts of a fused row, and the shape of whole sequences over themselves. */
struct fused {
	struct attn_shape s;
	int64_t k, v; /* elements from a row's begin */
};

static struct fused fused_of(const struct attn_shape *s)
{
	int64_t row = (int64_t)(s->heads + 2 * s->kv_heads) * s->dim, q = (int64_t)s->heads * s->dim;
	struct fused f = { .s = *s, .k = q, .v = q + (int64_t)s->kv_heads * s->dim };
	f.s.q_len = f.s.k_len = s->seq;
	f.s.q_row = f.s.kv_row = row;
	f.s.q_batch = f.s.kv_batch = s->seq * row;
	f.s.o_batch = s->seq * q;
	f.s.starts_batch = s->seq;
	return f;
}

static void *part(const struct kern *k, const void *base, int64_t elements)
{
	return (char *)base + (size_t)elements * kern_width(k);
}

int cp_attention_forward(struct cp *c, struct kern *k, void *o, float *lse, const void *qkv, const struct attn_shape *s, struct err *e)
{
	struct fused f = fused_of(s);
	(void)c;
	(void)e;
	kern_ops(k)->attention_fwd(k, o, lse, qkv, part(k, qkv, f.k), part(k, qkv, f.v), &f.s);
	return 0;
}

int cp_attention_backward(struct cp *c, struct kern *k, void *dqkv, const void *dout, const void *o, const float *lse,
			  const void *qkv, const struct attn_shape *s, struct err *e)
{
	struct fused f = fused_of(s);
	(void)c;
	(void)e;
	kern_ops(k)->attention_bwd(k, dqkv, part(k, dqkv, f.k), part(k, dqkv, f.v), dout, o, lse, qkv, part(k, qkv, f.k),
				   part(k, qkv, f.v), &f.s, false);
	return 0;
}
