#include "plan/layout.h"
#include "plan/model.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_ALIGN = 16 };

/* A dimension of the model, and how tensor parallelism cuts it. */
enum dim { DIM_ONE, DIM_HIDDEN, DIM_SEQ, DIM_VOCAB, DIM_Q, DIM_KV, DIM_FFN };

enum where { IN_EMBED, IN_LAYER, IN_LAST };

/* One parameter a row, in the order of the flat buffer. */
struct row {
	enum param_role role;
	enum where where;
	const char *name;
	enum dim shape[2]; /* DIM_ONE second: a vector */
	enum param_init init;
	bool joined;       /* adjacent to the row before: one group */
};

static const struct row rows[] = {
	{ PARAM_EMBED, IN_EMBED, "embed.tokens.weight", { DIM_VOCAB, DIM_HIDDEN }, INIT_NORMAL, false },
	{ PARAM_POSITIONS, IN_EMBED, "embed.positions.weight", { DIM_SEQ, DIM_HIDDEN }, INIT_NORMAL, false },
	{ PARAM_NORM1_W, IN_LAYER, "norm1.weight", { DIM_HIDDEN, DIM_ONE }, INIT_ONE, false },
	{ PARAM_NORM1_B, IN_LAYER, "norm1.bias", { DIM_HIDDEN, DIM_ONE }, INIT_ZERO, false },
	{ PARAM_Q_W, IN_LAYER, "attn.q.weight", { DIM_Q, DIM_HIDDEN }, INIT_NORMAL, false },
	{ PARAM_K_W, IN_LAYER, "attn.k.weight", { DIM_KV, DIM_HIDDEN }, INIT_NORMAL, true },
	{ PARAM_V_W, IN_LAYER, "attn.v.weight", { DIM_KV, DIM_HIDDEN }, INIT_NORMAL, true },
	{ PARAM_Q_B, IN_LAYER, "attn.q.bias", { DIM_Q, DIM_ONE }, INIT_ZERO, false },
	{ PARAM_K_B, IN_LAYER, "attn.k.bias", { DIM_KV, DIM_ONE }, INIT_ZERO, true },
	{ PARAM_V_B, IN_LAYER, "attn.v.bias", { DIM_KV, DIM_ONE }, INIT_ZERO, true },
	{ PARAM_O_W, IN_LAYER, "attn.o.weight", { DIM_HIDDEN, DIM_Q }, INIT_NORMAL_SCALED, false },
	{ PARAM_O_B, IN_LAYER, "attn.o.bias", { DIM_HIDDEN, DIM_ONE }, INIT_ZERO, false },
	{ PARAM_NORM2_W, IN_LAYER, "norm2.weight", { DIM_HIDDEN, DIM_ONE }, INIT_ONE, false },
	{ PARAM_NORM2_B, IN_LAYER, "norm2.bias", { DIM_HIDDEN, DIM_ONE }, INIT_ZERO, false },
	{ PARAM_GATE_W, IN_LAYER, "mlp.gate.weight", { DIM_FFN, DIM_HIDDEN }, INIT_NORMAL, false },
	{ PARAM_UP_W, IN_LAYER, "mlp.up.weight", { DIM_FFN, DIM_HIDDEN }, INIT_NORMAL, true },
	{ PARAM_UP_B, IN_LAYER, "mlp.up.bias", { DIM_FFN, DIM_ONE }, INIT_ZERO, false },
	{ PARAM_DOWN_W, IN_LAYER, "mlp.down.weight", { DIM_HIDDEN, DIM_FFN }, INIT_NORMAL_SCALED, false },
	{ PARAM_DOWN_B, IN_LAYER, "mlp.down.bias", { DIM_HIDDEN, DIM_ONE }, INIT_ZERO, false },
	{ PARAM_NORM_W, IN_LAST, "norm.weight", { DIM_HIDDEN, DIM_ONE }, INIT_ONE, false },
	{ PARAM_NORM_B, IN_LAST, "norm.bias", { DIM_HIDDEN, DIM_ONE }, INIT_ZERO, false },
	{ PARAM_HEAD, IN_LAST, "head.weight", { DIM_VOCAB, DIM_HIDDEN }, INIT_NORMAL, false },
};

enum { N_ROWS = sizeof rows / sizeof *rows };

/* Whether this family has the row at all. */
static bool row_exists(const struct model_shape *m, enum param_role role)
{
	switch (role) {
	case PARAM_NORM1_B:
	case PARAM_NORM2_B:
	case PARAM_NORM_B:
		return !m->rms;
	case PARAM_Q_B:
	case PARAM_K_B:
	case PARAM_V_B:
	case PARAM_O_B:
	case PARAM_UP_B:
	case PARAM_DOWN_B:
		return m->bias;
	case PARAM_POSITIONS:
		return !m->rope;
	case PARAM_GATE_W:
		return m->gated;
	case PARAM_HEAD:
		return !m->tied;
	default:
		return true;
	}
}

/* The length of a dimension and this tp rank's part of it; true when it is cut. */
static bool dim_cut(const struct model_shape *m, enum dim dim, int tp, int tp_rank,
		    int64_t *n, int64_t *lo, int64_t *hi)
{
	int64_t group = m->heads / m->kv_heads;
	struct { int64_t unit, units, grain; } cut = { 0, 0, 1 };
	switch (dim) {
	case DIM_ONE:
		*n = 1;
		break;
	case DIM_HIDDEN:
		*n = m->hidden;
		break;
	case DIM_SEQ:
		*n = m->seq;
		break;
	case DIM_VOCAB:
		cut.unit = 1, cut.units = m->vocab, cut.grain = CATALOGUE_VOCAB_GRAIN;
		break;
	case DIM_FFN:
		cut.unit = 1, cut.units = m->ffn, cut.grain = CATALOGUE_FFN_GRAIN;
		break;
	case DIM_Q: /* whole kv heads with their q heads */
		cut.unit = group * m->head_dim, cut.units = m->kv_heads;
		break;
	case DIM_KV:
		cut.unit = m->head_dim, cut.units = m->kv_heads;
		break;
	}
	if (!cut.unit) {
		*lo = 0;
		*hi = *n;
		return false;
	}
	partition(cut.units, tp, tp_rank, partition_grain(cut.units, tp, cut.grain), lo, hi);
	*lo *= cut.unit;
	*hi *= cut.unit;
	*n = cut.units * cut.unit;
	return tp > 1;
}

/* Sets everything but the name, behind what the buffer holds already. */
static void place(const struct model_shape *m, int tp, int tp_rank, const struct row *row,
		  int64_t *elements, struct param *p)
{
	*p = (struct param){ .role = row->role, .init = row->init };
	for (int d = 0; d < 2; d++)
		p->sharded |= dim_cut(m, row->shape[d], tp, tp_rank, &p->shape[d], &p->lo[d], &p->hi[d]);
	p->dims = row->shape[1] == DIM_ONE ? 1 : 2;
	p->decay = p->dims == 2;
	p->count = (p->hi[0] - p->lo[0]) * (p->hi[1] - p->lo[1]);
	/* Up joins gate only where there is a gate. */
	if (!row->joined || (row->role == PARAM_UP_W && !m->gated))
		*elements = (*elements + GROUP_ALIGN - 1) / GROUP_ALIGN * GROUP_ALIGN;
	p->offset = *elements;
	*elements += p->count;
}

static void add(struct catalogue *c, const struct model_shape *m, int tp, int tp_rank,
		const struct row *row, int layer)
{
	struct param *p = &c->params[c->n++];
	place(m, tp, tp_rank, row, &c->elements, p);
	p->layer = layer;
	if (layer < 0)
		snprintf(p->name, sizeof p->name, "%s", row->name);
	else
		snprintf(p->name, sizeof p->name, "layers.%d.%s", layer, row->name);
}

static void add_all(struct catalogue *c, const struct model_shape *m, int tp, int tp_rank,
		    enum where where, int layer)
{
	for (int i = 0; i < N_ROWS; i++)
		if (rows[i].where == where && row_exists(m, rows[i].role))
			add(c, m, tp, tp_rank, &rows[i], layer);
}

static bool needs_copy(const struct model_shape *m, const struct stage *stage)
{
	return stage->last && !stage->first && m->tied;
}

/* Elements of all rows of one place, to a whole group. */
static int64_t measure(const struct model_shape *m, int tp, int tp_rank, enum where where)
{
	struct param p;
	int64_t n = 0;
	for (int i = 0; i < N_ROWS; i++)
		if (rows[i].where == where && row_exists(m, rows[i].role))
			place(m, tp, tp_rank, &rows[i], &n, &p);
	return (n + GROUP_ALIGN - 1) / GROUP_ALIGN * GROUP_ALIGN;
}

int64_t catalogue_elements(const struct model_shape *m, int tp, int tp_rank, const struct stage *stage)
{
	int64_t n = (stage->layer_hi - stage->layer_lo) * measure(m, tp, tp_rank, IN_LAYER);
	struct param copy;
	if (stage->first)
		n += measure(m, tp, tp_rank, IN_EMBED);
	if (stage->last)
		n += measure(m, tp, tp_rank, IN_LAST);
	if (needs_copy(m, stage))
		place(m, tp, tp_rank, &rows[PARAM_EMBED], &n, &copy);
	return (n + GROUP_ALIGN - 1) / GROUP_ALIGN * GROUP_ALIGN;
}

int catalogue_saver(const struct param *p, int64_t number, int tp_rank, int dp)
{
	return p->tied_copy || (!p->sharded && tp_rank != 0) ? -1 : (int)(number % dp);
}

/* The rows of one place, `repeats` times; *first: how many parameters come before them. */
static void add_saved(const struct model_shape *m, int tp, int tp_rank, enum where where, int repeats, int dp,
		      int64_t *first, double *saved)
{
	int64_t elements = 0, at = *first;
	int n = 0;
	for (int i = 0; i < N_ROWS; i++)
		n += rows[i].where == where && row_exists(m, rows[i].role);
	for (int i = 0; i < N_ROWS; i++) {
		if (rows[i].where != where || !row_exists(m, rows[i].role))
			continue;
		struct param p;
		place(m, tp, tp_rank, &rows[i], &elements, &p);
		for (int k = 0; k < repeats * CATALOGUE_KINDS; k++) {
			int64_t number = (at + k / CATALOGUE_KINDS * n) * CATALOGUE_KINDS + k % CATALOGUE_KINDS;
			int who = catalogue_saver(&p, number, tp_rank, dp);
			if (who >= 0)
				saved[who] += (double)p.count;
		}
		at++;
	}
	*first += (int64_t)repeats * n;
}

void catalogue_saved(const struct model_shape *m, int tp, int tp_rank, const struct stage *stage, int dp, double *saved)
{
	int64_t first = 0;
	memset(saved, 0, (size_t)dp * sizeof *saved);
	if (stage->first)
		add_saved(m, tp, tp_rank, IN_EMBED, 1, dp, &first, saved);
	add_saved(m, tp, tp_rank, IN_LAYER, stage->layer_hi - stage->layer_lo, dp, &first, saved);
	if (stage->last)
		add_saved(m, tp, tp_rank, IN_LAST, 1, dp, &first, saved);
}

static int check_cut(const struct model_shape *m, int tp, struct err *e)
{
	const struct { const char *what; int64_t n; } cut[] = {
		{ "kv_heads", m->kv_heads }, { "ffn", m->ffn }, { "vocab", m->vocab },
	};
	for (int i = 0; i < (int)(sizeof cut / sizeof *cut); i++)
		if (cut[i].n < tp)
			return err_set(e, ERR_UNSUPPORTED, "tp = %d: the model's %s = %lld cannot be cut into so many parts; use a smaller tp",
				       tp, cut[i].what, (long long)cut[i].n);
	return 0;
}

int catalogue_build(const struct model_shape *m, int tp, int tp_rank, const struct stage *stage,
		    struct catalogue *out, struct err *e)
{
	if (check_cut(m, tp, e))
		return -1;
	int layers = stage->layer_hi - stage->layer_lo;
	struct catalogue c = { .params = calloc((size_t)(layers + 1) * N_ROWS, sizeof *c.params) };
	if (!c.params)
		return err_set(e, ERR_NOMEM, "no memory for the catalogue of %d layers; close other programs", layers);
	if (stage->first)
		add_all(&c, m, tp, tp_rank, IN_EMBED, -1);
	for (int l = stage->layer_lo; l < stage->layer_hi; l++)
		add_all(&c, m, tp, tp_rank, IN_LAYER, l);
	if (stage->last)
		add_all(&c, m, tp, tp_rank, IN_LAST, -1);
	if (needs_copy(m, stage)) {
		add(&c, m, tp, tp_rank, &rows[PARAM_EMBED], -1);
		c.params[c.n - 1].tied_copy = true;
	}
	c.elements = (c.elements + GROUP_ALIGN - 1) / GROUP_ALIGN * GROUP_ALIGN;
	*out = c;
	return 0;
}

void catalogue_free(struct catalogue *c)
{
	free(c->params);
	*c = (struct catalogue){ 0 };
}

const struct param *catalogue_find(const struct catalogue *c, enum param_role role, int layer)
{
	for (int i = 0; i < c->n; i++)
		if (c->params[i].role == role && c->params[i].layer == layer)
			return &c->params[i];
	return NULL;
}
