#include "agent/engine/generate/parts.h"

#include <stdlib.h>

/* Returns the first parameter of a group, which is one contiguous matrix or vector; NULL if the
 * model has none. */
static const float *find_weight(const struct lm *m, enum param_role role, int layer, int expert)
{
	const struct param *p = catalogue_find(&m->catalogue, role, layer, expert);
	return p ? m->weights + p->offset : NULL;
}

static struct linear_weights view_linear(const struct lm *m, int layer, int expert,
					 enum param_role w, enum param_role b, int64_t in,
					 int64_t out)
{
	return (struct linear_weights){ find_weight(m, w, layer, expert),
					find_weight(m, b, layer, expert), in, out };
}

static struct norm_weights view_norm(const struct lm *m, int layer, enum param_role w,
				     enum param_role b)
{
	return (struct norm_weights){ find_weight(m, w, layer, -1), find_weight(m, b, layer, -1) };
}

/* PARAM_ROLES stands for a missing parameter, because no parameter has this role. */
static void view_experts(struct lm *m, struct layer *l, int layer)
{
	const struct model_shape *s = &m->shape;
	l->experts_up = m->experts + 2 * s->experts * layer;
	l->experts_down = l->experts_up + s->experts;
	l->router = view_linear(m, layer, -1, PARAM_ROUTER, PARAM_ROLES, s->hidden, s->experts);
	for (int i = 0; i < s->experts; i++) {
		l->experts_up[i] = view_linear(m, layer, i, PARAM_EXPERT_GATE_W, PARAM_ROLES,
					       s->hidden, 2 * s->ffn);
		l->experts_down[i] = view_linear(m, layer, i, PARAM_EXPERT_DOWN_W, PARAM_ROLES,
						 s->ffn, s->hidden);
	}
}

static void view_layer(struct lm *m, int layer)
{
	const struct model_shape *s = &m->shape;
	struct layer *l = &m->layers[layer];
	int64_t q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;

	l->norm1 = view_norm(m, layer, PARAM_NORM1_W, PARAM_NORM1_B);
	l->norm2 = view_norm(m, layer, PARAM_NORM2_W, PARAM_NORM2_B);
	l->qkv = view_linear(m, layer, -1, PARAM_Q_W, PARAM_Q_B, s->hidden, q + 2 * kv);
	l->o = view_linear(m, layer, -1, PARAM_O_W, PARAM_O_B, q, s->hidden);
	if (s->qk_norm) {
		l->q_norm = view_norm(m, layer, PARAM_Q_NORM, PARAM_ROLES);
		l->k_norm = view_norm(m, layer, PARAM_K_NORM, PARAM_ROLES);
	}
	l->keys = m->cache + 2 * layer * s->seq * kv;
	l->values = l->keys + s->seq * kv;
	if (s->experts) {
		view_experts(m, l, layer);
		return;
	}
	l->up = view_linear(m, layer, -1, s->gated ? PARAM_GATE_W : PARAM_UP_W, PARAM_UP_B,
			    s->hidden, s->gated ? 2 * s->ffn : s->ffn);
	l->down = view_linear(m, layer, -1, PARAM_DOWN_W, PARAM_DOWN_B, s->ffn, s->hidden);
}

int generate_weights_view(struct lm *m, struct err *e)
{
	const struct model_shape *s = &m->shape;
	m->layers = calloc((size_t)s->layers, sizeof *m->layers);
	m->experts = calloc((size_t)(2 * s->experts * s->layers) + 1, sizeof *m->experts);
	if (!m->layers || !m->experts)
		return err_set(e, ERR_NOMEM, "model: no memory for %d layers", (int)s->layers);
	for (int i = 0; i < s->layers; i++)
		view_layer(m, i);
	m->tokens = find_weight(m, PARAM_EMBED, -1, -1);
	m->positions = find_weight(m, PARAM_POSITIONS, -1, -1);
	m->norm = view_norm(m, -1, PARAM_NORM_W, PARAM_NORM_B);
	m->head = view_linear(m, -1, -1, s->tied ? PARAM_EMBED : PARAM_HEAD, PARAM_ROLES, s->hidden,
			      s->vocab);
	return 0;
}

void generate_weights_drop(struct lm *m)
{
	free(m->layers);
	free(m->experts);
}
