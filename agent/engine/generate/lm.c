#include "agent/engine/generate/parts.h"

#include "agent/engine/ckpt/ckpt.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Divides one allocation into pieces of whole 64-byte lines; with base NULL it only measures. */
struct arena {
	char *base;
	size_t used;
};

static void *take_bytes(struct arena *c, int64_t count, size_t width)
{
	void *p = c->base ? c->base + c->used : NULL;
	c->used += ((size_t)count * width + 63) / 64 * 64;
	return p;
}

static float *take_floats(struct arena *c, int64_t count)
{
	return take_bytes(c, count, sizeof(float));
}

static void place_buffers(const struct model_shape *s, int64_t n, struct arena *c,
			  struct buffers *b)
{
	int64_t top = s->top, m = s->experts ? n * top : n;
	b->x = take_floats(c, n * s->hidden);
	b->r = take_floats(c, n * s->hidden);
	b->y = take_floats(c, n * s->hidden);
	b->qkv = take_floats(c, n * (s->heads + 2 * s->kv_heads) * s->head_dim);
	b->o = take_floats(c, n * s->heads * s->head_dim);
	b->up = take_floats(c, m * s->ffn * (s->gated ? 2 : 1));
	b->act = take_floats(c, m * s->ffn);
	b->stats = take_floats(c, 2 * n);
	b->lse = take_floats(c, n * s->heads);
	b->head = take_floats(c, s->qk_norm ? n * s->heads * s->head_dim : 0);
	b->head_norm = take_floats(c, s->qk_norm ? n * s->heads * s->head_dim : 0);
	b->head_stats = take_floats(c, s->qk_norm ? n * s->heads : 0);
	b->positions = take_bytes(c, n, sizeof *b->positions);
	b->logits = take_floats(c, n * s->experts);
	b->probs = take_floats(c, n * s->experts);
	b->weights = take_floats(c, n * top);
	b->route_lse = take_floats(c, n);
	b->chosen = take_bytes(c, n * top, sizeof *b->chosen);
	b->at = take_bytes(c, n * top, sizeof *b->at);
	b->from = take_bytes(c, n * top, sizeof *b->from);
	b->first = take_bytes(c, s->experts + 1, sizeof *b->first);
	b->sorted = take_floats(c, n * top * s->hidden);
	b->back = take_floats(c, n * top * s->hidden);
}

/* ERR_NOMEM: the text names `what`. */
static void *alloc_bytes(struct lm *m, const char *what, size_t bytes, const char *remedy,
			 struct err *e)
{
	void *p = backend_alloc(m->backend, bytes);
	if (!p)
		err_set(e, ERR_NOMEM, "%s: no memory for %zu bytes; %s", what, bytes, remedy);
	return p;
}

static int alloc_memory(struct lm *m, struct err *e)
{
	const struct model_shape *s = &m->shape;
	struct arena c = { 0 };
	size_t cache = (size_t)(2 * s->layers * s->seq * s->kv_heads * s->head_dim) * sizeof(float);
	place_buffers(s, LM_ROWS, &c, &m->b);
	m->weights = alloc_bytes(m, "the weights", (size_t)m->catalogue.elements * sizeof(float),
				 "a larger machine is needed", e);
	m->cache = m->weights ? alloc_bytes(m, "the cache of keys and values", cache,
					    "a larger machine is needed", e)
			      : NULL;
	m->memory = m->cache
			    ? alloc_bytes(m, "activations", c.used, "a larger machine is needed", e)
			    : NULL;
	if (!m->memory)
		return -1;
	c = (struct arena){ .base = m->memory };
	place_buffers(s, LM_ROWS, &c, &m->b);
	return 0;
}

int generate_lm_open(const struct lm_options *opt, struct lm **out, struct err *e)
{
	struct lm *m = calloc(1, sizeof *m);
	if (!m)
		return err_set(e, ERR_NOMEM, "no memory for a model");
	m->shape = opt->shape;
	m->stage =
		(struct stage){ .layer_hi = (int)opt->shape.layers, .first = true, .last = true };
	struct share whole = { .tp = 1, .ep = 1, .chunks = &m->stage, .n_chunks = 1 };
	if (backend_open(opt->backend_name, opt->threads, &m->backend, e))
		goto fail;
	m->ops = backend_ops(m->backend);
	if (catalogue_build(&m->shape, &whole, &m->catalogue, e) || alloc_memory(m, e) ||
	    generate_weights_view(m, e) || (m->shape.rope && generate_rope_fill(m, e)))
		goto fail;
	*out = m;
	return 0;
fail:
	generate_lm_close(m);
	return -1;
}

void generate_lm_close(struct lm *m)
{
	if (!m)
		return;
	generate_weights_drop(m);
	catalogue_free(&m->catalogue);
	backend_close(m->backend);
	free(m);
}

const struct catalogue *generate_lm_catalogue(const struct lm *m)
{
	return &m->catalogue;
}

float *generate_lm_weights(struct lm *m)
{
	return m->weights;
}

int generate_lm_load(struct lm *m, const char *checkpoint, struct err *e)
{
	struct ckpt_tensor *list = calloc((size_t)m->catalogue.n + 1, sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "no memory for a list of %d tensors", m->catalogue.n);
	for (int i = 0; i < m->catalogue.n; i++) {
		const struct param *p = &m->catalogue.params[i];
		struct ckpt_tensor *t = &list[i];
		*t = (struct ckpt_tensor){ .dims = p->dims,
					   .shape = { p->shape[0], p->shape[1] },
					   .hi = { p->shape[0], p->shape[1] },
					   .data = m->weights + p->offset };
		snprintf(t->name, sizeof t->name, "%s", p->name);
	}
	int rc = ckpt_load(checkpoint, NULL, NULL, list, m->catalogue.n, NULL, e);
	free(list);
	return rc;
}

int64_t generate_lm_length(const struct lm *m)
{
	return m->length;
}

void generate_lm_reset(struct lm *m)
{
	m->length = 0;
}

static int check_tokens(const struct lm *m, const int32_t *tokens, int64_t n, struct err *e)
{
	if (n < 1 || n > m->shape.seq - m->length)
		return err_set(e, ERR_USAGE,
			       "cannot append %" PRId64 " tokens after %" PRId64
			       ": the model sees 1 to %" PRId64 " tokens",
			       n, m->length, m->shape.seq);
	for (int64_t i = 0; i < n; i++)
		if (tokens[i] < 0 || tokens[i] >= m->shape.vocab)
			return err_set(e, ERR_USAGE,
				       "token %" PRId32
				       " is outside of the model's vocabulary of %" PRId64
				       "; does the tokenizer belong "
				       "to this model?",
				       tokens[i], m->shape.vocab);
	return 0;
}

/* Computes the last token's logits, or with `all` every token's. */
static int append_tokens(struct lm *m, const int32_t *tokens, int64_t n, float *logits, bool all,
			 struct err *e)
{
	int64_t c = m->shape.hidden;
	if (check_tokens(m, tokens, n, e))
		return -1;
	for (int64_t i = 0; i < n; i += LM_ROWS) {
		int64_t rows = n - i < LM_ROWS ? n - i : LM_ROWS;
		generate_layers_forward(m, tokens + i, rows);
		m->length += rows;
		if (all)
			m->ops->linear_fwd(m->backend, logits + i * m->shape.vocab, m->b.y,
					   m->head.w, NULL, rows, c, m->head.out);
		else if (i + rows == n)
			m->ops->linear_fwd(m->backend, logits, m->b.y + (rows - 1) * c, m->head.w,
					   NULL, 1, c, m->head.out);
	}
	return 0;
}

int generate_lm_append(struct lm *m, const int32_t *tokens, int64_t n, float *logits, struct err *e)
{
	return append_tokens(m, tokens, n, logits, false, e);
}

int generate_lm_append_all(struct lm *m, const int32_t *tokens, int64_t n, float *logits,
			   struct err *e)
{
	return append_tokens(m, tokens, n, logits, true, e);
}
