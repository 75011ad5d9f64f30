#include "agent/engine/optim/matrices.h"

#include "libcomm/comm.h"

#include <stdlib.h>
#include <string.h>

enum { CLASSES = 2 }; /* dense, experts */

/* A rank's box of a parameter. */
struct box {
	int64_t lo[2], hi[2];
};

struct optim_matrices {
	struct param_store *store;
	struct comm *shards[CLASSES], *tp; /* NULL: one rank */
	struct optim_matrix *list[CLASSES];
	int n[CLASSES];
	struct box *boxes; /* [tp ranks][parameters] */
	int n_params;
	size_t *counts; /* of the group in use */
	/* the run that a rank owns, its box, the boxes of all tp ranks one after another, the
	 * matrix, and working memory */
	float *run, *box, *parts, *x, *y, *a, *b;
};

static int size_of(struct comm *c)
{
	return c ? comm_size(c) : 1;
}

static int rank_of(struct comm *c)
{
	return c ? comm_rank(c) : 0;
}

/* --- Opening ------------------------------------------------------------------------------- */

static const struct param_piece *find_piece(const struct param_store *s, const struct param *p)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(s, &n);
	for (int i = 0; i < n; i++)
		if (pieces[i].param == p)
			return &pieces[i];
	return NULL;
}

static int list_matrices(struct optim_matrices *m, struct err *e)
{
	const struct catalogue *c = param_store_catalogue(m->store);
	for (int class = 0; class < CLASSES; class ++)
		if (!(m->list[class] = calloc((size_t)c->n + 1, sizeof **m->list)))
			return err_set(e, ERR_NOMEM,
				       "optimizer: no memory for a table of %d matrices; close "
				       "other programs",
				       c->n);
	for (int i = 0; i < c->n; i++) {
		const struct param *p = &c->params[i];
		int class = c->units[p->unit].kind == UNIT_EXPERTS;
		if (optimizer_hidden(p))
			m->list[class][m->n[class]++] =
				(struct optim_matrix){ p, find_piece(m->store, p) };
	}
	return 0;
}

static int gather_boxes(struct optim_matrices *m, struct err *e)
{
	const struct catalogue *c = param_store_catalogue(m->store);
	int tp = size_of(m->tp);
	m->n_params = c->n;
	m->boxes = calloc((size_t)tp * (size_t)c->n + 1, sizeof *m->boxes);
	m->counts =
		calloc((size_t)tp + (size_t)size_of(m->shards[0]) + (size_t)size_of(m->shards[1]),
		       sizeof *m->counts);
	if (!m->boxes || !m->counts)
		return err_set(e, ERR_NOMEM,
			       "optimizer: no memory for the boxes of %d parameters; close other "
			       "programs",
			       c->n);
	struct box *mine = m->boxes + (size_t)rank_of(m->tp) * (size_t)c->n;
	for (int i = 0; i < c->n; i++)
		mine[i] = (struct box){ { c->params[i].lo[0], c->params[i].lo[1] },
					{ c->params[i].hi[0], c->params[i].hi[1] } };
	return m->tp ? comm_all_gather(m->tp, mine, m->boxes,
				       (size_t)c->n * (sizeof *mine / sizeof(int64_t)), COMM_I64, e)
		     : 0;
}

static int open_buffers(struct optim *o, struct optim_matrices *m, struct err *e)
{
	const struct catalogue *c = param_store_catalogue(m->store);
	struct optimizer_matrix most = { 0 };
	for (int i = 0; i < c->n; i++)
		optimizer_matrix_add(&most, &c->params[i]);
	size_t bytes = (size_t)optimizer_matrix_bytes(&most);
	if (!(m->run = backend_alloc(o->backend, bytes)))
		return err_set(e, ERR_NOMEM,
			       "optimizer: no memory for %zu bytes of a whole matrix; lower "
			       "batch.micro",
			       bytes);
	m->box = m->run + most.box;
	m->parts = m->box + most.box;
	m->x = m->parts + most.boxes;
	m->y = m->x + most.whole;
	m->a = m->y + most.whole;
	m->b = m->a + most.side * most.side;
	return 0;
}

int optim_matrices_open(struct optim *o, struct optim_matrices **out, struct err *e)
{
	struct optim_matrices *m = calloc(1, sizeof *m);
	if (!m)
		return err_set(e, ERR_NOMEM, "optimizer: no memory; close other programs");
	m->store = o->store;
	m->tp = param_store_tp(o->store);
	m->shards[0] = param_store_shards(o->store, UNIT_LAYER);
	m->shards[1] = param_store_shards(o->store, UNIT_EXPERTS);
	if (list_matrices(m, e) || gather_boxes(m, e) || open_buffers(o, m, e)) {
		optim_matrices_close(o, m);
		return -1;
	}
	*out = m;
	return 0;
}

void optim_matrices_close(struct optim *o, struct optim_matrices *m)
{
	if (!m)
		return;
	backend_free(o->backend, m->run);
	for (int class = 0; class < CLASSES; class ++)
		free(m->list[class]);
	free(m->boxes);
	free(m->counts);
	free(m);
}

/* --- One matrix ----------------------------------------------------------------------------- */

/* The rank at which matrix k of a class is gathered. */
struct meeting {
	const struct param *param;
	struct comm *shards;
	int shard, tp; /* the owner's ranks in the two groups */
	bool cut;      /* over tp; otherwise each tp rank has the whole box */
};

static struct meeting meeting_of(const struct optim_matrices *m, int class, int k)
{
	struct meeting at = { .param = m->list[class][k].param, .shards = m->shards[class] };
	int n = size_of(at.shards), tp = size_of(m->tp);
	at.shard = k % n;
	at.tp = k / n % tp;
	at.cut = at.param->copies < tp;
	return at;
}

static bool has_box(const struct meeting *at)
{
	return rank_of(at->shards) == at->shard;
}

static bool owns(const struct optim_matrices *m, const struct meeting *at)
{
	return has_box(at) && rank_of(m->tp) == at->tp;
}

static const size_t *shard_counts(const struct optim_matrices *m, const struct meeting *at)
{
	for (int i = 0; i < size_of(at->shards); i++) {
		int64_t first, count;
		param_store_shard_range(m->store, at->param, i, &first, &count);
		m->counts[i] = (size_t)count;
	}
	return m->counts;
}

static const struct box *box_of(const struct optim_matrices *m, const struct param *p, int tp)
{
	const struct catalogue *c = param_store_catalogue(m->store);
	return &m->boxes[(size_t)tp * (size_t)m->n_params + (size_t)(p - c->params)];
}

static const size_t *box_counts(const struct optim_matrices *m, const struct meeting *at)
{
	for (int i = 0; i < size_of(m->tp); i++) {
		const struct box *b = box_of(m, at->param, i);
		m->counts[i] = (size_t)((b->hi[0] - b->lo[0]) * (b->hi[1] - b->lo[1]));
	}
	return m->counts;
}

/* Copies between the matrix x and the boxes of all tp ranks. Copies of a box are equal. */
static void copy_boxes(const struct optim_matrices *m, const struct param *p, bool to_matrix)
{
	float *part = m->parts;
	for (int i = 0; i < size_of(m->tp); i++) {
		const struct box *b = box_of(m, p, i);
		int64_t width = b->hi[1] - b->lo[1];
		for (int64_t row = b->lo[0]; row < b->hi[0]; row++, part += width) {
			float *whole = m->x + row * p->shape[1] + b->lo[1];
			memcpy(to_matrix ? whole : part, to_matrix ? part : whole,
			       (size_t)width * sizeof *part);
		}
	}
}

static int gather_matrix(struct optim_matrices *m, const struct meeting *at, struct err *e)
{
	size_t count = (size_t)at->param->count;
	if (at->shards) {
		if (comm_gatherv(at->shards, m->run, m->box, shard_counts(m, at), COMM_F32,
				 at->shard, e))
			return -1;
	} else {
		memcpy(m->box, m->run, count * sizeof *m->box);
	}
	if (!has_box(at))
		return 0;
	if (at->cut &&
	    comm_gatherv(m->tp, m->box, m->parts, box_counts(m, at), COMM_F32, at->tp, e))
		return -1;
	if (!owns(m, at))
		return 0;
	if (at->cut)
		copy_boxes(m, at->param, true);
	else
		memcpy(m->x, m->box, count * sizeof *m->x);
	return 0;
}

static int scatter_matrix(struct optim_matrices *m, const struct meeting *at, struct err *e)
{
	size_t count = (size_t)at->param->count;
	if (owns(m, at) && at->cut)
		copy_boxes(m, at->param, false);
	else if (owns(m, at))
		memcpy(m->box, m->x, count * sizeof *m->box);
	if (has_box(at) && at->cut &&
	    comm_scatterv(m->tp, m->parts, m->box, box_counts(m, at), COMM_F32, at->tp, e))
		return -1;
	if (has_box(at) && !at->cut && m->tp &&
	    comm_broadcast(m->tp, m->box, count, COMM_F32, at->tp, e))
		return -1;
	if (at->shards)
		return comm_scatterv(at->shards, m->box, m->run, shard_counts(m, at), COMM_F32,
				     at->shard, e);
	memcpy(m->run, m->box, count * sizeof *m->run);
	return 0;
}

/* --- Rounds --------------------------------------------------------------------------------- */

/* Matrices [from, to), no two of which have the same owner: all owners compute at once. */
static int run_round(struct optim_matrices *m, const struct optim_matrix_work *w, int class,
		     int from, int to, struct err *e)
{
	const struct param *mine = NULL;
	for (int k = from; k < to; k++) {
		const struct meeting at = meeting_of(m, class, k);
		const struct param_piece *piece = m->list[class][k].piece;
		if (piece)
			w->take(w->arg, piece, m->run);
		if (gather_matrix(m, &at, e))
			return -1;
		if (owns(m, &at))
			mine = at.param;
	}
	if (mine)
		w->replace(w->arg, mine, m->x, m->y, m->a, m->b);
	for (int k = from; k < to; k++) {
		const struct meeting at = meeting_of(m, class, k);
		const struct param_piece *piece = m->list[class][k].piece;
		if (scatter_matrix(m, &at, e))
			return -1;
		if (piece)
			w->apply(w->arg, piece, m->run);
	}
	return 0;
}

int optim_matrices_run(struct optim_matrices *m, const struct optim_matrix_work *w, struct err *e)
{
	for (int class = 0; class < CLASSES; class ++) {
		int round = size_of(m->shards[class]) * size_of(m->tp);
		for (int from = 0; from < m->n[class]; from += round) {
			int to = from + round < m->n[class] ? from + round : m->n[class];
			if (run_round(m, w, class, from, to, e))
				return -1;
		}
	}
	return 0;
}
