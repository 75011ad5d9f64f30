#include "agent/engine/generate/parts.h"

#include <string.h>

static void apply_linear(struct lm *m, const struct linear_weights *l, float *y, const float *x,
			 int64_t n)
{
	if (n)
		m->ops->linear_fwd(m->backend, y, x, l->w, l->b, n, l->in, l->out);
}

/* y = norm(x + r), and x becomes x + r; r NULL: zero. */
static void apply_norm(struct lm *m, const struct norm_weights *v, const float *r, int64_t n)
{
	struct buffers *b = &m->b;
	float eps = (float)m->shape.norm_eps, *sum = r ? b->x : NULL;
	if (m->shape.rms)
		m->ops->rmsnorm_fwd(m->backend, b->y, sum, b->stats, b->x, r, v->w, n,
				    m->shape.hidden, eps);
	else
		m->ops->layernorm_fwd(m->backend, b->y, sum, b->stats, b->stats + n, b->x, r, v->w,
				      v->b, n, m->shape.hidden, eps);
}

/* Normalizes each head of columns [first, first + heads * dim) of the fused projection's rows. */
static void normalize_heads(struct lm *m, const struct norm_weights *v, int64_t first,
			    int64_t heads, int64_t n)
{
	const struct model_shape *s = &m->shape;
	struct buffers *b = &m->b;
	int64_t width = heads * s->head_dim, row = (s->heads + 2 * s->kv_heads) * s->head_dim;
	m->ops->copy_rows(m->backend, b->head, width, b->qkv + first, row, n, width);
	m->ops->rmsnorm_fwd(m->backend, b->head_norm, NULL, b->head_stats, b->head, NULL, v->w,
			    n * heads, s->head_dim, (float)s->norm_eps);
	m->ops->copy_rows(m->backend, b->qkv + first, row, b->head_norm, width, n, width);
}

/* Rotates q and k by their positions; the tables start at the first position. */
static void rotate_heads(struct lm *m, int64_t n)
{
	const struct model_shape *s = &m->shape;
	int64_t at = m->length * s->head_dim / 2;
	struct rope_shape shape = { .n = n,
				    .row = (s->heads + 2 * s->kv_heads) * s->head_dim,
				    .heads = (int)(s->heads + s->kv_heads),
				    .dim = (int)s->head_dim,
				    .seq = n };
	m->ops->rope_fwd(m->backend, m->b.qkv, &shape, m->cos + at, m->sin + at);
}

/* Sets r to o_proj(attention of the n queries over all tokens so far). */
static void apply_attention(struct lm *m, struct layer *l, int64_t n)
{
	const struct model_shape *s = &m->shape;
	struct buffers *b = &m->b;
	int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim, row = q + 2 * kv,
		all = m->length + n;
	struct attn_shape shape = {
		.batch = 1,
		.q_len = n,
		.k_len = all,
		.q_first = m->length,
		.heads = (int)s->heads,
		.kv_heads = (int)s->kv_heads,
		.dim = (int)s->head_dim,
		.q_row = row,
		.q_batch = n * row,
		.kv_row = kv,
		.kv_batch = all * kv,
		.o_batch = n * q,
		.heads_all = s->heads,
		.seq = s->seq,
	};
	apply_linear(m, &l->qkv, b->qkv, b->y, n);
	if (s->qk_norm) {
		normalize_heads(m, &l->q_norm, 0, s->heads, n);
		normalize_heads(m, &l->k_norm, q, s->kv_heads, n);
	}
	if (s->rope)
		rotate_heads(m, n);
	m->ops->copy_rows(m->backend, l->keys + m->length * kv, kv, b->qkv + q, row, n, kv);
	m->ops->copy_rows(m->backend, l->values + m->length * kv, kv, b->qkv + q + kv, row, n, kv);
	m->ops->attention_fwd(m->backend, b->o, b->lse, b->qkv, l->keys, l->values, &shape);
	apply_linear(m, &l->o, b->r, b->o, n);
}

static void apply_activation(struct lm *m, float *act, const float *up, int64_t n)
{
	if (m->shape.gated)
		m->ops->swiglu_fwd(m->backend, act, up, n, m->shape.ffn);
	else
		m->ops->gelu_fwd(m->backend, act, up, n * m->shape.ffn);
}

/* Groups the chosen experts' rows. from[row] is a row's token, and at[choice] is a choice's row.
 * Expert e has the rows first[e] … first[e + 1] - 1. */
static void sort_choices(struct lm *m, int64_t n)
{
	struct buffers *b = &m->b;
	int64_t experts = m->shape.experts, top = m->shape.top;
	memset(b->first, 0, (size_t)(experts + 1) * sizeof *b->first);
	for (int64_t i = 0; i < n * top; i++)
		b->first[b->chosen[i] + 1]++;
	for (int64_t i = 0; i < experts; i++)
		b->first[i + 1] += b->first[i];
	for (int64_t i = 0; i < n * top; i++) {
		int64_t row = b->first[b->chosen[i]]++;
		b->at[i] = row;
		b->from[row] = i / top;
	}
	/* The loop above moved each expert's start to that of the next expert. */
	for (int64_t i = experts; i > 0; i--)
		b->first[i] = b->first[i - 1];
	b->first[0] = 0;
}

/* Sets r to the weighted sum of the chosen experts' results for each token. */
static void apply_experts(struct lm *m, const struct layer *l, int64_t n)
{
	const struct model_shape *s = &m->shape;
	struct buffers *b = &m->b;
	apply_linear(m, &l->router, b->logits, b->y, n);
	m->ops->route_fwd(m->backend, b->chosen, b->weights, b->probs, b->route_lse, b->logits, n,
			  s->experts, s->top, s->router == ROUTER_SOFTMAX_BEFORE);
	sort_choices(m, n);
	m->ops->gather_rows(m->backend, b->sorted, b->y, b->from, n * s->top, s->hidden);
	for (int64_t i = 0; i < s->experts; i++) {
		int64_t first = b->first[i], rows = b->first[i + 1] - first;
		float *up = b->up + first * 2 * s->ffn, *act = b->act + first * s->ffn;
		if (!rows)
			continue;
		apply_linear(m, &l->experts_up[i], up, b->sorted + first * s->hidden, rows);
		apply_activation(m, act, up, rows);
		apply_linear(m, &l->experts_down[i], b->back + first * s->hidden, act, rows);
	}
	m->ops->combine_fwd(m->backend, b->r, b->back, b->at, b->weights, n, s->top, s->hidden);
}

void generate_layers_forward(struct lm *m, const int32_t *tokens, int64_t n)
{
	struct buffers *b = &m->b;
	for (int64_t i = 0; i < n; i++)
		b->positions[i] = (int32_t)(m->length + i);
	m->ops->embed_fwd(m->backend, b->x, tokens, b->positions, m->tokens, m->positions, n,
			  m->shape.hidden, 0, (int32_t)m->shape.vocab);
	for (int64_t i = 0; i < m->shape.layers; i++) {
		struct layer *l = &m->layers[i];
		apply_norm(m, &l->norm1, i ? b->r : NULL, n);
		apply_attention(m, l, n);
		apply_norm(m, &l->norm2, b->r, n);
		if (m->shape.experts) {
			apply_experts(m, l, n);
			continue;
		}
		apply_linear(m, &l->up, b->up, b->y, n);
		apply_activation(m, b->act, b->up, n);
		apply_linear(m, &l->down, b->r, b->act, n);
	}
	apply_norm(m, &m->norm, b->r, n);
}
