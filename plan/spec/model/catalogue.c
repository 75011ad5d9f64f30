#include "plan/spec/model/model.h"

#include "base/numbers.h"
#include "plan/spec/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GROUP_ALIGN = 16 };

/* A dimension of the model, and how a share splits it. */
enum dim { DIM_ONE, DIM_HIDDEN, DIM_SEQ, DIM_VOCAB, DIM_Q, DIM_KV, DIM_HEAD, DIM_FFN, DIM_EXPERTS };

/* When the tp ranks that hold the same box each compute only a part of its gradient: never; always,
 * because each has its own query heads; with sequence parallelism. */
enum parts { PARTS_NONE, PARTS_COPIES, PARTS_SEQUENCE };

/* One row per parameter, in the order of the flat buffer. */
struct param_row {
	enum param_role role;
	enum unit_kind unit;
	const char *name;
	enum dim shape[2]; /* a vector's second is DIM_ONE */
	enum param_init init;
	enum parts parts;
	bool joined; /* adjacent to the previous row, in one group */
};

/* clang-format off */
static const struct param_row rows[] = {
	{ PARAM_EMBED, UNIT_TOKENS, "embed.tokens.weight", { DIM_VOCAB, DIM_HIDDEN }, INIT_NORMAL, PARTS_NONE, false },
	{ PARAM_POSITIONS, UNIT_POSITIONS, "embed.positions.weight", { DIM_SEQ, DIM_HIDDEN }, INIT_NORMAL, PARTS_NONE, false },
	{ PARAM_NORM1_W, UNIT_LAYER, "norm1.weight", { DIM_HIDDEN, DIM_ONE }, INIT_ONE, PARTS_SEQUENCE, false },
	{ PARAM_NORM1_B, UNIT_LAYER, "norm1.bias", { DIM_HIDDEN, DIM_ONE }, INIT_ZERO, PARTS_SEQUENCE, false },
	{ PARAM_Q_W, UNIT_LAYER, "attn.q.weight", { DIM_Q, DIM_HIDDEN }, INIT_NORMAL, PARTS_NONE, false },
	{ PARAM_K_W, UNIT_LAYER, "attn.k.weight", { DIM_KV, DIM_HIDDEN }, INIT_NORMAL, PARTS_COPIES, true },
	{ PARAM_V_W, UNIT_LAYER, "attn.v.weight", { DIM_KV, DIM_HIDDEN }, INIT_NORMAL, PARTS_COPIES, true },
	{ PARAM_Q_B, UNIT_LAYER, "attn.q.bias", { DIM_Q, DIM_ONE }, INIT_ZERO, PARTS_NONE, false },
	{ PARAM_K_B, UNIT_LAYER, "attn.k.bias", { DIM_KV, DIM_ONE }, INIT_ZERO, PARTS_COPIES, true },
	{ PARAM_V_B, UNIT_LAYER, "attn.v.bias", { DIM_KV, DIM_ONE }, INIT_ZERO, PARTS_COPIES, true },
	{ PARAM_Q_NORM, UNIT_LAYER, "attn.q_norm.weight", { DIM_HEAD, DIM_ONE }, INIT_ONE, PARTS_COPIES, false },
	{ PARAM_K_NORM, UNIT_LAYER, "attn.k_norm.weight", { DIM_HEAD, DIM_ONE }, INIT_ONE, PARTS_COPIES, false },
	{ PARAM_O_W, UNIT_LAYER, "attn.o.weight", { DIM_HIDDEN, DIM_Q }, INIT_NORMAL_SCALED, PARTS_NONE, false },
	{ PARAM_O_B, UNIT_LAYER, "attn.o.bias", { DIM_HIDDEN, DIM_ONE }, INIT_ZERO, PARTS_NONE, false },
	{ PARAM_NORM2_W, UNIT_LAYER, "norm2.weight", { DIM_HIDDEN, DIM_ONE }, INIT_ONE, PARTS_SEQUENCE, false },
	{ PARAM_NORM2_B, UNIT_LAYER, "norm2.bias", { DIM_HIDDEN, DIM_ONE }, INIT_ZERO, PARTS_SEQUENCE, false },
	{ PARAM_GATE_W, UNIT_LAYER, "mlp.gate.weight", { DIM_FFN, DIM_HIDDEN }, INIT_NORMAL, PARTS_NONE, false },
	{ PARAM_UP_W, UNIT_LAYER, "mlp.up.weight", { DIM_FFN, DIM_HIDDEN }, INIT_NORMAL, PARTS_NONE, true },
	{ PARAM_UP_B, UNIT_LAYER, "mlp.up.bias", { DIM_FFN, DIM_ONE }, INIT_ZERO, PARTS_NONE, false },
	{ PARAM_DOWN_W, UNIT_LAYER, "mlp.down.weight", { DIM_HIDDEN, DIM_FFN }, INIT_NORMAL_SCALED, PARTS_NONE, false },
	{ PARAM_DOWN_B, UNIT_LAYER, "mlp.down.bias", { DIM_HIDDEN, DIM_ONE }, INIT_ZERO, PARTS_NONE, false },
	{ PARAM_ROUTER, UNIT_LAYER, "moe.router.weight", { DIM_EXPERTS, DIM_HIDDEN }, INIT_NORMAL, PARTS_NONE, false },
	{ PARAM_EXPERT_GATE_W, UNIT_EXPERTS, "gate.weight", { DIM_FFN, DIM_HIDDEN }, INIT_NORMAL, PARTS_NONE, false },
	{ PARAM_EXPERT_UP_W, UNIT_EXPERTS, "up.weight", { DIM_FFN, DIM_HIDDEN }, INIT_NORMAL, PARTS_NONE, true },
	{ PARAM_EXPERT_DOWN_W, UNIT_EXPERTS, "down.weight", { DIM_HIDDEN, DIM_FFN }, INIT_NORMAL_SCALED, PARTS_NONE, false },
	{ PARAM_NORM_W, UNIT_NORM, "norm.weight", { DIM_HIDDEN, DIM_ONE }, INIT_ONE, PARTS_SEQUENCE, false },
	{ PARAM_NORM_B, UNIT_NORM, "norm.bias", { DIM_HIDDEN, DIM_ONE }, INIT_ZERO, PARTS_SEQUENCE, false },
	{ PARAM_HEAD, UNIT_HEAD, "head.weight", { DIM_VOCAB, DIM_HIDDEN }, INIT_NORMAL, PARTS_NONE, false },
};
/* clang-format on */

enum { N_ROWS = sizeof rows / sizeof *rows };

/* Whether a model with these traits has the parameter. */
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
		return m->qkv_bias;
	case PARAM_Q_NORM:
	case PARAM_K_NORM:
		return m->qk_norm;
	case PARAM_O_B:
		return m->bias;
	case PARAM_UP_B:
	case PARAM_DOWN_B:
		return m->bias && !m->experts;
	case PARAM_POSITIONS:
		return !m->rope;
	case PARAM_GATE_W:
		return m->gated && !m->experts;
	case PARAM_UP_W:
	case PARAM_DOWN_W:
		return !m->experts;
	case PARAM_ROUTER:
	case PARAM_EXPERT_GATE_W:
	case PARAM_EXPERT_UP_W:
	case PARAM_EXPERT_DOWN_W:
		return m->experts > 0;
	case PARAM_HEAD:
		return !m->tied;
	default:
		return true;
	}
}

/* How many of the tp ranks hold the same kv head. */
static int kv_copies(const struct model_shape *m, int tp)
{
	return m->kv_heads < tp ? tp / (int)m->kv_heads : 1;
}

/* A dimension and the share's part of it. */
struct dim_split {
	int64_t n, lo, hi;
	int pieces; /* different pieces over tp: 1, tp, or the number of kv heads */
};

static struct dim_split whole(int64_t n)
{
	return (struct dim_split){ n, 0, n, 1 };
}

static struct dim_split balanced(int64_t n, int parts, int i, int64_t grain, int64_t unit)
{
	struct dim_split c = { .n = n * unit, .pieces = parts };
	layout_partition(n, parts, i, layout_partition_grain(n, parts, grain), &c.lo, &c.hi);
	c.lo *= unit;
	c.hi *= unit;
	return c;
}

static struct dim_split cut_of(const struct model_shape *m, const struct share *s, enum dim dim)
{
	int64_t group = m->heads / m->kv_heads;
	int copies = kv_copies(m, s->tp);
	switch (dim) {
	case DIM_ONE:
		return whole(1);
	case DIM_HIDDEN:
		return whole(m->hidden);
	case DIM_SEQ:
		return whole(m->seq);
	case DIM_HEAD:
		return whole(m->head_dim);
	case DIM_EXPERTS:
		return whole(m->experts);
	case DIM_VOCAB:
		return balanced(m->vocab, s->tp, s->tp_rank, CATALOGUE_VOCAB_GRAIN, 1);
	case DIM_FFN:
		return balanced(m->ffn, s->tp, s->tp_rank, CATALOGUE_FFN_GRAIN, 1);
	case DIM_Q: /* whole kv heads with their q heads, or some of one kv head's q heads */
		return copies > 1
			       ? balanced(m->heads, s->tp, s->tp_rank, 1, m->head_dim)
			       : balanced(m->kv_heads, s->tp, s->tp_rank, 1, group * m->head_dim);
	case DIM_KV:
		return balanced(m->kv_heads, s->tp / copies, s->tp_rank / copies, 1, m->head_dim);
	}
	return whole(1);
}

/* Appends a parameter to the flat order. Sets all members but the name and the unit. */
static void place_param(const struct model_shape *m, const struct share *s,
			const struct param_row *row, int64_t *elements, struct param *p)
{
	int pieces = 1;
	*p = (struct param){ .role = row->role, .init = row->init, .layer = -1, .expert = -1 };
	for (int d = 0; d < 2; d++) {
		struct dim_split c = cut_of(m, s, row->shape[d]);
		p->shape[d] = c.n;
		p->lo[d] = c.lo;
		p->hi[d] = c.hi;
		pieces = c.pieces > pieces ? c.pieces : pieces;
	}
	p->copies = s->tp / pieces;
	p->copy = s->tp_rank % p->copies;
	p->partial = p->copies > 1 &&
		     (row->parts == PARTS_COPIES || (row->parts == PARTS_SEQUENCE && s->sp));
	p->dims = row->shape[1] == DIM_ONE ? 1 : 2;
	p->decay = p->dims == 2;
	p->count = (p->hi[0] - p->lo[0]) * (p->hi[1] - p->lo[1]);
	/* Without a gate, up starts a group. */
	if (!row->joined || (row->role == PARAM_UP_W && !m->gated))
		*elements = round_up_int64(*elements, GROUP_ALIGN);
	p->offset = *elements;
	*elements += p->count;
}

/* Experts [lo, hi) of this share. */
static void experts_of(const struct model_shape *m, const struct share *s, int *lo, int *hi)
{
	int64_t a, b;
	layout_partition(m->experts, s->ep, s->ep_rank, 1, &a, &b);
	*lo = (int)a;
	*hi = (int)b;
}

static void name_param(struct param *p, const char *name)
{
	if (p->expert >= 0)
		snprintf(p->name, sizeof p->name, "layers.%d.moe.experts.%d.%s", p->layer,
			 p->expert, name);
	else if (p->layer >= 0)
		snprintf(p->name, sizeof p->name, "layers.%d.%s", p->layer, name);
	else
		snprintf(p->name, sizeof p->name, "%s", name);
}

struct builder {
	const struct model_shape *m;
	const struct share *s;
	struct catalogue *c;
};

static void add_row(struct builder *b, const struct param_row *row, int layer, int expert)
{
	struct catalogue *c = b->c;
	struct param *p = &c->params[c->n++];
	place_param(b->m, b->s, row, &c->elements, p);
	p->layer = layer;
	p->expert = expert;
	p->unit = c->n_units - 1;
	name_param(p, row->name);
	c->units[p->unit].partial |= p->partial;
}

static void add_rows(struct builder *b, enum unit_kind kind, int layer, int expert)
{
	for (int i = 0; i < N_ROWS; i++)
		if (rows[i].unit == kind && row_exists(b->m, rows[i].role))
			add_row(b, &rows[i], layer, expert);
}

static void begin_unit(struct builder *b, enum unit_kind kind, int chunk, int layer)
{
	struct catalogue *c = b->c;
	c->units[c->n_units++] = (struct unit){
		.kind = kind, .chunk = chunk, .layer = layer, .lo = c->elements, .first = c->n
	};
}

static void end_unit(struct builder *b)
{
	struct catalogue *c = b->c;
	struct unit *u = &c->units[c->n_units - 1];
	c->elements = round_up_int64(c->elements, GROUP_ALIGN);
	u->hi = c->elements;
	u->n_params = c->n - u->first;
	if (!u->n_params) /* the model has no such unit */
		c->n_units--;
}

static void add_unit(struct builder *b, enum unit_kind kind, int chunk, int layer)
{
	begin_unit(b, kind, chunk, layer);
	if (kind == UNIT_EXPERTS) {
		int lo, hi;
		experts_of(b->m, b->s, &lo, &hi);
		for (int x = lo; x < hi; x++)
			add_rows(b, kind, layer, x);
	} else {
		add_rows(b, kind, layer, -1);
	}
	end_unit(b);
}

static bool has_first(const struct share *s)
{
	for (int i = 0; i < s->n_chunks; i++)
		if (s->chunks[i].first)
			return true;
	return false;
}

/* Whether this share's tied head needs a copy of another rank's table. */
static bool needs_copy(const struct model_shape *m, const struct share *s)
{
	return m->tied && !has_first(s);
}

static void add_head(struct builder *b, int chunk)
{
	if (!needs_copy(b->m, b->s)) {
		add_unit(b, UNIT_HEAD, chunk, -1);
		return;
	}
	begin_unit(b, UNIT_HEAD, chunk, -1);
	add_row(b, &rows[PARAM_EMBED], -1, -1);
	b->c->params[b->c->n - 1].tied_copy = true;
	end_unit(b);
}

static void add_chunk(struct builder *b, int chunk)
{
	const struct stage *stage = &b->s->chunks[chunk];
	if (stage->first) {
		add_unit(b, UNIT_TOKENS, chunk, -1);
		add_unit(b, UNIT_POSITIONS, chunk, -1);
	}
	for (int l = stage->layer_lo; l < stage->layer_hi; l++) {
		add_unit(b, UNIT_LAYER, chunk, l);
		add_unit(b, UNIT_EXPERTS, chunk, l);
	}
	if (stage->last) {
		add_unit(b, UNIT_NORM, chunk, -1);
		add_head(b, chunk);
	}
}

/* Elements of one expert, rounded up to a whole group. */
static int64_t unit_elements(const struct model_shape *m, const struct share *s,
			     enum unit_kind kind)
{
	struct param p;
	int64_t n = 0;
	for (int i = 0; i < N_ROWS; i++)
		if (rows[i].unit == kind && row_exists(m, rows[i].role))
			place_param(m, s, &rows[i], &n, &p);
	return round_up_int64(n, GROUP_ALIGN);
}

int64_t catalogue_unit_elements(const struct model_shape *m, const struct share *s,
				enum unit_kind kind)
{
	if (kind == UNIT_EXPERTS) {
		int lo, hi;
		experts_of(m, s, &lo, &hi);
		return (hi - lo) * unit_elements(m, s, kind);
	}
	return unit_elements(m, s, kind == UNIT_HEAD && needs_copy(m, s) ? UNIT_TOKENS : kind);
}

void catalogue_sample(const struct model_shape *m, const struct share *s, enum unit_kind kind,
		      struct catalogue_sample *out)
{
	int lo = 0, hi = 1;
	out->n = 0;
	out->elements = 0;
	out->tied_copy = kind == UNIT_HEAD && needs_copy(m, s);
	if (out->tied_copy)
		kind = UNIT_TOKENS;
	for (int i = 0; i < N_ROWS; i++)
		if (rows[i].unit == kind && row_exists(m, rows[i].role))
			place_param(m, s, &rows[i], &out->elements, &out->params[out->n++]);
	out->elements = round_up_int64(out->elements, GROUP_ALIGN);
	if (kind == UNIT_EXPERTS)
		experts_of(m, s, &lo, &hi);
	out->times = hi - lo;
}

int catalogue_unit_count(const struct model_shape *m, const struct share *s, enum unit_kind kind)
{
	int n = 0;
	if (!catalogue_unit_elements(m, s, kind))
		return 0;
	for (int i = 0; i < s->n_chunks; i++) {
		const struct stage *stage = &s->chunks[i];
		switch (kind) {
		case UNIT_TOKENS:
		case UNIT_POSITIONS:
			n += stage->first;
			break;
		case UNIT_LAYER:
		case UNIT_EXPERTS:
			n += stage->layer_hi - stage->layer_lo;
			break;
		case UNIT_NORM:
		case UNIT_HEAD:
			n += stage->last;
			break;
		}
	}
	return n;
}

int64_t catalogue_overlap(int64_t lo, int64_t hi, int64_t from, int64_t to)
{
	return max_int64(0, min_int64(hi, to) - max_int64(lo, from));
}

/* Counted elements in [lo, hi) of one unit, or of one expert. */
static int64_t count_rows(const struct model_shape *m, const struct share *s, enum unit_kind kind,
			  int64_t lo, int64_t hi)
{
	struct param p;
	int64_t n = 0, at = 0;
	for (int i = 0; i < N_ROWS; i++) {
		if (rows[i].unit != kind || !row_exists(m, rows[i].role))
			continue;
		place_param(m, s, &rows[i], &at, &p);
		n += p.copy == 0 ? catalogue_overlap(p.offset, p.offset + p.count, lo, hi) : 0;
	}
	return n;
}

int64_t catalogue_unit_counted(const struct model_shape *m, const struct share *s,
			       enum unit_kind kind, int64_t lo, int64_t hi)
{
	int first = 0, end = 1;
	int64_t n = 0, each = unit_elements(m, s, kind);
	if (kind == UNIT_HEAD && needs_copy(m, s))
		return 0;
	if (kind == UNIT_EXPERTS)
		experts_of(m, s, &first, &end);
	for (int i = 0; i < end - first; i++)
		n += count_rows(m, s, kind, lo - i * each, hi - i * each);
	return n;
}

static int check_cut(const struct model_shape *m, const struct share *s, struct err *e)
{
	const struct {
		const char *degree;
		int parts;
		const char *what;
		int64_t n;
	} cut[] = {
		{ "tp", s->tp, "heads", m->heads },
		{ "tp", s->tp, "ffn", m->ffn },
		{ "tp", s->tp, "vocab", m->vocab },
		{ "ep", s->ep, "experts", m->experts ? m->experts : s->ep },
	};
	for (int i = 0; i < (int)(sizeof cut / sizeof *cut); i++)
		if (cut[i].n < cut[i].parts)
			return err_set(e, ERR_UNSUPPORTED,
				       "%s = %d: the model's %s = %lld cannot be cut into that "
				       "many parts; use at most %lld",
				       cut[i].degree, cut[i].parts, cut[i].what,
				       (long long)cut[i].n, (long long)cut[i].n);
	if (m->kv_heads < s->tp && (s->tp % m->kv_heads || m->heads % s->tp))
		return err_set(e, ERR_UNSUPPORTED,
			       "tp = %d: kv_heads = %lld is smaller, so tp must be a multiple of "
			       "kv_heads and divide heads = %lld; use tp = %lld",
			       s->tp, (long long)m->kv_heads, (long long)m->heads,
			       (long long)m->kv_heads);
	return 0;
}

int catalogue_build(const struct model_shape *m, const struct share *share, struct catalogue *out,
		    struct err *e)
{
	if (check_cut(m, share, e))
		return -1;
	size_t layers = 0;
	for (int i = 0; i < share->n_chunks; i++)
		layers += (size_t)(share->chunks[i].layer_hi - share->chunks[i].layer_lo);
	struct catalogue c = { .params = calloc((layers + 1) * (size_t)(N_ROWS + 3 * m->experts),
						sizeof *c.params) };
	c.units = calloc(2 * layers + 8, sizeof *c.units);
	if (!c.params || !c.units) {
		catalogue_free(&c);
		return err_set(e, ERR_NOMEM,
			       "no memory for the parameters of %zu layers; close other "
			       "programs",
			       layers);
	}
	struct builder b = { m, share, &c };
	for (int i = 0; i < share->n_chunks; i++)
		add_chunk(&b, i);
	*out = c;
	return 0;
}

void catalogue_free(struct catalogue *c)
{
	free(c->params);
	free(c->units);
	*c = (struct catalogue){ 0 };
}

const struct param *catalogue_find(const struct catalogue *c, enum param_role role, int layer,
				   int expert)
{
	for (int i = 0; i < c->n; i++) {
		const struct param *p = &c->params[i];
		if (p->role == role && p->layer == layer && p->expert == expert)
			return p;
	}
	return NULL;
}

int catalogue_unit(const struct catalogue *c, enum unit_kind kind, int layer)
{
	for (int i = 0; i < c->n_units; i++)
		if (c->units[i].kind == kind && c->units[i].layer == layer)
			return i;
	/* A tied head on the rank that has the table. */
	return kind == UNIT_HEAD ? catalogue_unit(c, UNIT_TOKENS, layer) : -1;
}

int64_t catalogue_block(int64_t n, int shards)
{
	return shards == 1 ? n : round_up_int64((n + shards - 1) / shards, CATALOGUE_SHARD_GRAIN);
}

void catalogue_piece(int64_t n, int shards, int i, int64_t *lo, int64_t *hi)
{
	int64_t block = catalogue_block(n, shards), at = block * i;
	*lo = at < n ? at : n;
	*hi = at + block < n ? at + block : n;
}
