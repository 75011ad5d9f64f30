#include "agent/engine/model/moe.h"

#include <stdlib.h>
#include <string.h>

/* Finds parameters in a catalogue, and remembers the first error. */
struct lookup {
	const struct catalogue *c;
	struct err *e;
	int rc;
};

static const struct param *find_param(struct lookup *l, enum param_role role, int layer)
{
	static const struct param none = { .offset = -1 };
	const struct param *p = catalogue_find(l->c, role, layer, -1);
	if (p)
		return p;
	if (!l->rc)
		l->rc = err_set(l->e, ERR_INTERNAL,
				"catalogue: no parameter of role %d in layer %d", (int)role, layer);
	return &none;
}

static int64_t row_count(const struct param *p)
{
	return p->hi[0] - p->lo[0];
}

/* Offset in the parameter's unit. */
static int64_t offset_in_unit(const struct lookup *l, const struct param *p)
{
	return p->offset < 0 ? -1 : p->offset - l->c->units[p->unit].lo;
}

/* The parameters must be contiguous, so that one product computes both. */
static void check_adjacent(struct lookup *l, const struct param *before, const struct param *p)
{
	if (!l->rc && p->offset != before->offset + before->count)
		l->rc = err_set(l->e, ERR_INTERNAL, "catalogue: %s does not follow %s", p->name,
				before->name);
}

/* A view of linears with contiguous weights and contiguous biases. bias NULL: no biases. */
static struct linear_view view_linears(struct lookup *l, int layer, int n, const int *weight,
				       const int *bias)
{
	const struct param *w = find_param(l, (enum param_role)weight[0], layer), *before = w;
	struct linear_view v = { .unit = w->unit,
				 .w = offset_in_unit(l, w),
				 .b = -1,
				 .in = w->hi[1] - w->lo[1],
				 .out = row_count(w) };
	for (int i = 1; i < n; i++) {
		const struct param *next = find_param(l, (enum param_role)weight[i], layer);
		check_adjacent(l, before, next);
		v.out += row_count(next);
		before = next;
	}
	if (!bias)
		return v;
	before = find_param(l, (enum param_role)bias[0], layer);
	v.b = offset_in_unit(l, before);
	for (int i = 1; i < n; i++) {
		const struct param *next = find_param(l, (enum param_role)bias[i], layer);
		check_adjacent(l, before, next);
		before = next;
	}
	return v;
}

static struct norm_view view_norm(struct lookup *l, const struct model_shape *s, int layer,
				  enum param_role w, enum param_role b)
{
	const struct param *p = find_param(l, w, layer);
	return (struct norm_view){ p->unit, offset_in_unit(l, p),
				   s->rms ? -1 : offset_in_unit(l, find_param(l, b, layer)) };
}

static struct norm_view view_head_norm(struct lookup *l, int layer, enum param_role w)
{
	const struct param *p = find_param(l, w, layer);
	return (struct norm_view){ p->unit, offset_in_unit(l, p), -1 };
}

/* An expert's parameter as a linear of the experts' unit. */
static struct linear_view view_expert(const struct lookup *l, const struct param *p)
{
	return (struct linear_view){ .unit = p->unit,
				     .w = offset_in_unit(l, p),
				     .b = -1,
				     .in = p->hi[1] - p->lo[1],
				     .out = row_count(p) };
}

enum { EXPERT_PARAMS = 3 }; /* gate, up, down, in the catalogue's order */

/* All experts must have the layout of the first, so that one call computes the products of all. */
static void check_same_layout(struct lookup *l, const struct param *first,
			      const struct param *expert, int64_t further)
{
	for (int i = 0; i < EXPERT_PARAMS && !l->rc; i++)
		if (expert[i].offset != first[i].offset + further ||
		    expert[i].count != first[i].count)
			l->rc = err_set(l->e, ERR_INTERNAL,
					"catalogue: %s and %s have different layouts",
					expert[i].name, first[i].name);
}

/* Views of the router and of this rank's experts. */
static void view_experts(struct lookup *l, int layer, struct block_view *v)
{
	static const int router[] = { PARAM_ROUTER };
	v->router = view_linears(l, layer, 1, router, NULL);
	v->experts_unit = catalogue_unit(l->c, UNIT_EXPERTS, layer);
	const struct unit *unit = &l->c->units[v->experts_unit];
	const struct param *first = &l->c->params[unit->first];
	v->experts = calloc(1, sizeof *v->experts);
	if (!v->experts) {
		l->rc = err_set(l->e, ERR_NOMEM, "no memory for the views of %d experts",
				unit->n_params / EXPERT_PARAMS);
		return;
	}
	v->expert_stride = unit->n_params > EXPERT_PARAMS
				   ? first[EXPERT_PARAMS].offset - first->offset
				   : 0;
	for (int i = 0; i < unit->n_params; i += EXPERT_PARAMS) {
		const struct param *gate = &first[i];
		check_adjacent(l, &gate[0], &gate[1]);
		check_same_layout(l, first, gate, i / EXPERT_PARAMS * v->expert_stride);
	}
	if (!unit->n_params)
		return;
	v->experts->up = view_expert(l, &first[0]);
	v->experts->up.out += row_count(&first[1]);
	v->experts->down = view_expert(l, &first[2]);
}

static void view_block(struct lookup *l, const struct model_shape *s, int layer,
		       struct block_view *v)
{
	static const int qkv_w[] = { PARAM_Q_W, PARAM_K_W, PARAM_V_W },
			 qkv_b[] = { PARAM_Q_B, PARAM_K_B, PARAM_V_B }, o_w[] = { PARAM_O_W },
			 o_b[] = { PARAM_O_B }, gated_w[] = { PARAM_GATE_W, PARAM_UP_W },
			 up_w[] = { PARAM_UP_W }, up_b[] = { PARAM_UP_B },
			 down_w[] = { PARAM_DOWN_W }, down_b[] = { PARAM_DOWN_B };

	v->layer = layer;
	v->unit = find_param(l, PARAM_NORM1_W, layer)->unit;
	v->norm1 = view_norm(l, s, layer, PARAM_NORM1_W, PARAM_NORM1_B);
	v->norm2 = view_norm(l, s, layer, PARAM_NORM2_W, PARAM_NORM2_B);
	v->qkv = view_linears(l, layer, 3, qkv_w, s->qkv_bias ? qkv_b : NULL);
	if (s->qk_norm) {
		v->q_norm = view_head_norm(l, layer, PARAM_Q_NORM);
		v->k_norm = view_head_norm(l, layer, PARAM_K_NORM);
	}
	v->o = view_linears(l, layer, 1, o_w, s->bias ? o_b : NULL);
	v->qkv.place = ACT_LINEAR_QKV;
	v->o.place = ACT_LINEAR_O;
	v->experts_unit = -1;
	if (s->experts) {
		view_experts(l, layer, v);
		return;
	}
	v->up = s->gated ? view_linears(l, layer, 2, gated_w, NULL)
			 : view_linears(l, layer, 1, up_w, s->bias ? up_b : NULL);
	v->down = view_linears(l, layer, 1, down_w, s->bias ? down_b : NULL);
	v->up.place = ACT_LINEAR_UP;
	v->down.place = ACT_LINEAR_DOWN;
}

/* A view of the token table or the head: this shard's tokens. */
static struct linear_view view_table(struct lookup *l, const struct model_shape *s,
				     enum param_role role, struct views *v)
{
	const struct param *p = find_param(l, role, -1);
	v->vocab_lo = (int32_t)p->lo[0];
	v->vocab_hi = (int32_t)p->hi[0];
	return (struct linear_view){ .unit = p->unit,
				     .w = offset_in_unit(l, p),
				     .b = -1,
				     .in = s->hidden,
				     .out = row_count(p) };
}

static void view_ends(struct lookup *l, const struct model_shape *s, const struct stage *stage,
		      struct views *v)
{
	if (stage->first) {
		v->tokens = view_table(l, s, PARAM_EMBED, v);
		v->positions = s->rope ? -1 : find_param(l, PARAM_POSITIONS, -1)->unit;
	}
	if (stage->last) {
		v->norm = view_norm(l, s, -1, PARAM_NORM_W, PARAM_NORM_B);
		v->head = view_table(l, s, s->tied ? PARAM_EMBED : PARAM_HEAD, v);
		v->tied_here = s->tied && l->c->units[v->head.unit].kind == UNIT_TOKENS;
	}
}

int model_views_open(const struct model_options *opt, int chunk, struct views *out, struct err *e)
{
	struct lookup l = { .c = opt->catalogue, .e = e };
	const struct stage *stage = &opt->view->share.chunks[chunk];
	const struct model_shape *shape = &opt->view->shape;
	int layers = stage->layer_hi - stage->layer_lo;
	struct views v = { .positions = -1, .layers = layers };

	v.blocks = calloc((size_t)layers + 1, sizeof *v.blocks);
	if (!v.blocks)
		return err_set(e, ERR_NOMEM, "no memory for the views of %d layers", layers);
	for (int i = 0; i < layers; i++)
		view_block(&l, shape, stage->layer_lo + i, &v.blocks[i]);
	view_ends(&l, shape, stage, &v);
	if (l.rc) {
		model_views_close(&v);
		return -1;
	}
	*out = v;
	return 0;
}

void model_views_close(struct views *v)
{
	for (int i = 0; v->blocks && i < v->layers; i++)
		free(v->blocks[i].experts);
	free(v->blocks);
	memset(v, 0, sizeof *v);
}
