#include "agent/engine/train/state.h"

#include "agent/engine/ckpt/load/exchange.h"
#include "agent/engine/ckpt/places/local.h"
#include "agent/engine/ckpt/memory/mirror.h"
#include "agent/engine/ckpt/format/state_digest.h"
#include "plan/spec/layout.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Boxes of a checkpoint --- */

/* The tensors of a parameter are the parameter itself and its optimizer states. */
enum { TENSORS_MAX = 1 + OPTIMIZER_STATES_MAX, BOXES_MAX = 3 };

/* Names a tensor. Tensor 0 is the parameter, and tensor i is its state i - 1. false: the parameter
 * has no such tensor. */
static bool name_tensor(const struct param *p, enum job_optimizer kind, int tensor,
			struct ckpt_tensor *t)
{
	*t = (struct ckpt_tensor){ .dims = p->dims,
				   .shape = { p->shape[0], p->shape[1] },
				   .moment = tensor > 0 };
	if (tensor == 0)
		snprintf(t->name, sizeof t->name, "%s", p->name);
	else if (optimizer_state_shape(kind, tensor - 1, p, t->shape, &t->dims))
		snprintf(t->name, sizeof t->name, "optim.%s.%s",
			 optimizer_of(kind)->states[tensor - 1].name, p->name);
	else
		return false;
	return true;
}

/* A growing list of boxes. Its memory is allocated for the largest possible number. */
struct boxes {
	struct ckpt_tensor *list;
	int n;
};

/* Adds elements [first, first + count) of the parameter's row-major box as boxes of `like`: the
 * rest of a row, whole rows, and the beginning of a row. */
static void add_run(struct boxes *b, const struct ckpt_tensor *like, const struct param *p,
		    int64_t first, int64_t count, float *data)
{
	int64_t width = p->hi[1] - p->lo[1];
	while (count > 0) {
		int64_t row = first / width, column = first % width;
		bool rows = column == 0 && count >= width;
		int64_t high = rows ? count / width : 1, wide = rows ? width
								: width - column < count
									? width - column
									: count;
		struct ckpt_tensor *t = &b->list[b->n++];
		*t = *like;
		t->lo[0] = p->lo[0] + row;
		t->hi[0] = t->lo[0] + high;
		t->lo[1] = p->lo[1] + column;
		t->hi[1] = t->lo[1] + wide;
		t->data = data;
		first += high * wide;
		count -= high * wide;
		data += high * wide;
	}
}

/* Adds a whole tensor. */
static void add_whole(struct boxes *b, const struct ckpt_tensor *like, float *data)
{
	struct ckpt_tensor *t = &b->list[b->n++];
	*t = *like;
	for (int d = 0; d < 2; d++) {
		t->lo[d] = 0;
		t->hi[d] = t->shape[d];
	}
	t->data = data;
}

/* Adds elements [lo, hi) of all tensors of the piece. there: memory of the tensors that are not on
 * the host. */
static void add_piece(struct boxes *b, const struct train_state *state,
		      const struct ckpt_memory *there, const struct param_piece *piece, int64_t lo,
		      int64_t hi)
{
	enum job_optimizer kind = optim_kind(state->optim);
	for (int i = 0; i < TENSORS_MAX; i++) {
		struct ckpt_tensor like;
		float *at = train_state_at(state, piece, i);
		if (!at || !name_tensor(piece->param, kind, i, &like))
			continue;
		like.there = train_state_on_host(state, i) ? NULL : there;
		add_run(b, &like, piece->param, piece->first + lo, hi - lo, at + lo);
	}
}

/* Adds the states that every rank with a slice of the parameter holds whole. */
static void add_factors(struct boxes *b, const struct train_state *state, const struct param *p)
{
	enum job_optimizer kind = optim_kind(state->optim);
	for (int i = 0; i < OPTIMIZER_STATES_MAX; i++) {
		struct ckpt_tensor like;
		float *at = optim_factor(state->optim, i, p);
		if (at && name_tensor(p, kind, i + 1, &like))
			add_whole(b, &like, at);
	}
}

/* --- Tensors in a device's memory --- */

static int copy_from_device(void *arg, void *to, const void *from, size_t bytes, struct err *e)
{
	return backend_get(arg, to, from, bytes, e);
}

static int copy_to_device(void *arg, void *to, const void *from, size_t bytes, struct err *e)
{
	(void)e;
	backend_put(arg, to, from, bytes);
	return 0;
}

static void *alloc_host(void *arg, size_t bytes)
{
	return backend_host_alloc(arg, bytes);
}

static void free_host(void *arg, void *p)
{
	backend_host_free(arg, p);
}

static struct ckpt_memory memory_of(const struct train_state *state)
{
	return (struct ckpt_memory){ .get = copy_from_device,
				     .put = copy_to_device,
				     .take = alloc_host,
				     .give_back = free_host,
				     .arg = param_store_backend(state->store) };
}

/* Lists the boxes of all pieces, or of the ranges that this rank counts. The caller frees the list.
 */
static int list_boxes(const struct train_state *state, const struct ckpt_memory *there,
		      bool counted, struct boxes *out, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(state->store, &n);
	const struct catalogue *c = param_store_catalogue(state->store);
	size_t most = (size_t)n * TENSORS_MAX * BOXES_MAX + (size_t)c->n * OPTIMIZER_STATES_MAX;
	struct boxes b = { calloc(most + 1, sizeof *b.list), 0 };
	if (!b.list)
		return err_set(e, ERR_NOMEM, "checkpoint: no memory for a list of %d pieces", n);
	for (int i = 0; i < n; i++)
		add_piece(&b, state, there, &pieces[i], counted ? pieces[i].count_lo : 0,
			  counted ? pieces[i].count_hi : pieces[i].count);
	for (int i = 0; i < c->n; i++)
		if (!counted || param_store_saves(state->store, &c->params[i]))
			add_factors(&b, state, &c->params[i]);
	*out = b;
	return 0;
}

int train_state_whole(const struct model_shape *s, enum job_optimizer kind,
		      struct ckpt_tensor **list, int *n, struct err *e)
{
	const struct stage all = {
		.layer_lo = 0, .layer_hi = (int)s->layers, .first = true, .last = true
	};
	const struct share share = { .tp = 1, .ep = 1, .chunks = &all, .n_chunks = 1 };
	struct catalogue c;
	if (catalogue_build(s, &share, &c, e))
		return -1;
	struct boxes b = { calloc((size_t)c.n * TENSORS_MAX + 1, sizeof *b.list), 0 };
	for (int i = 0; b.list && i < c.n; i++)
		for (int j = 0; j < TENSORS_MAX; j++) {
			struct ckpt_tensor like;
			if (name_tensor(&c.params[i], kind, j, &like))
				add_whole(&b, &like, NULL);
		}
	catalogue_free(&c);
	if (!b.list)
		return err_set(e, ERR_NOMEM, "checkpoint: no memory for a list of all tensors");
	*list = b.list;
	*n = b.n;
	return 0;
}

/* What a checkpoint must be, for its load. */
struct accept {
	const char *path;
	enum job_optimizer kind;
};

/* Checkpoints without an optimizer's name are older; they hold AdamW's moments. */
static int check_optimizer(void *arg, const struct ckpt_state *at, struct err *e)
{
	const struct accept *a = arg;
	const char *has = at->optimizer[0] ? at->optimizer : optimizer_of(OPTIMIZER_ADAMW)->name;
	if (!strcmp(has, optimizer_of(a->kind)->name) ||
	    (at->step == 0 && !strcmp(has, CKPT_NO_OPTIMIZER)))
		return 0;
	return err_set(e, ERR_USAGE,
		       "%s: it holds the moments of %s, the job says optimizer.kind = %s; set it "
		       "back, or begin a run of its own "
		       "from exported weights",
		       a->path, has, optimizer_of(a->kind)->name);
}

int train_state_load(struct comm *world, const struct train_source *from, json_t *model,
		     const struct train_state *state, struct ckpt_state *at, int *culprit,
		     struct err *e)
{
	struct accept accept = { from->path, optim_kind(state->optim) };
	struct ckpt_memory there = memory_of(state);
	struct err mine = ERR_INIT;
	struct boxes b = { 0 };
	int rc = train_state_settle(state, &mine) || list_boxes(state, &there, false, &b, &mine);
	const struct ckpt_load_options opt = { .path = from->path,
					       .local = from->local,
					       .store = from->memory,
					       .model = model,
					       .accept = check_optimizer,
					       .arg = &accept,
					       .attached = from->local ? NULL : state->attached,
					       .watch = state->watch,
					       .failure = rc ? &mine : NULL };
	rc = ckpt_load_all(world, &opt, at, b.list, b.n, culprit, e);
	free(b.list);
	if (rc || !from->local)
		return rc;
	*culprit = -1;
	return ckpt_local_attached(world, from->local, state->attached, e);
}

int train_state_check_loaded(struct comm *world, const struct train_source *from,
			     const struct train_state *state, struct err *e)
{
	struct err mine = ERR_INIT;
	struct boxes b;
	struct ckpt_memory there = memory_of(state);
	if (list_boxes(state, &there, true, &b, &mine)) {
		comm_abort(world, mine.text); /* the others wait in the collective */
		return err_set(e, mine.code, "%s", mine.text);
	}
	int rc = from->local ? ckpt_state_check_loaded(world, &from->local->manifest, b.list, b.n,
						       state->watch, e)
			     : ckpt_check_loaded(world, from->path, b.list, b.n, state->watch, e);
	free(b.list);
	return rc;
}

int train_state_recover(struct comm *world, const struct ckpt_store *store, json_t *model,
			const struct train_state *state, struct ckpt_state *at, int *culprit,
			struct err *e)
{
	struct accept accept = { "the copies in memory", optim_kind(state->optim) };
	struct ckpt_memory there = memory_of(state);
	struct err mine = ERR_INIT;
	struct boxes b = { 0 }, proof = { 0 };
	int rc = train_state_settle(state, &mine) || list_boxes(state, &there, false, &b, &mine) ||
		 list_boxes(state, &there, true, &proof, &mine);
	const struct ckpt_load_options opt = { .store = store,
					       .model = model,
					       .accept = check_optimizer,
					       .arg = &accept,
					       .proof = proof.list,
					       .n_proof = proof.n,
					       .watch = state->watch,
					       .failure = rc ? &mine : NULL };
	rc = ckpt_recover_all(world, &opt, at, b.list, b.n, culprit, e);
	free(b.list);
	free(proof.list);
	return rc;
}

static void name_optimizer(const struct train_state *state, struct ckpt_state *s)
{
	snprintf(s->optimizer, sizeof s->optimizer, "%s",
		 optimizer_of(optim_kind(state->optim))->name);
}

int train_state_copy(struct ckpt_mirror *m, const struct ckpt_state *at,
		     const struct train_state *state, struct err *e)
{
	struct ckpt_state s = *at;
	struct boxes b;
	struct ckpt_memory there = memory_of(state);
	if (optim_wait(state->optim, e) || list_boxes(state, &there, true, &b, e))
		return -1;
	name_optimizer(state, &s);
	ckpt_mirror_take(m, &s, b.list, b.n);
	free(b.list);
	return 0;
}

int train_state_bytes(const struct train_state *state, double *bytes, struct err *e)
{
	struct boxes b;
	*bytes = 0;
	if (list_boxes(state, NULL, true, &b, e))
		return -1;
	for (int i = 0; i < b.n; i++) {
		const struct ckpt_tensor *t = &b.list[i];
		int64_t n = t->hi[0] - t->lo[0];
		*bytes += (double)(t->dims > 1 ? n * (t->hi[1] - t->lo[1]) : n) * sizeof *t->data;
	}
	free(b.list);
	return 0;
}

void train_state_prepare_save(struct ckpt_writer *w, const struct train_state *state)
{
	struct boxes b;
	struct ckpt_memory there = memory_of(state);
	if (list_boxes(state, &there, true, &b, NULL))
		return;
	ckpt_writer_prepare(w, b.list, b.n);
	free(b.list);
}

int train_state_save(struct ckpt_writer *w, unsigned where, const struct ckpt_state *at,
		     const struct train_state *state, struct err *e)
{
	struct ckpt_state s = *at;
	struct boxes b;
	struct ckpt_memory there = memory_of(state);
	if (optim_wait(state->optim, e) || list_boxes(state, &there, true, &b, e))
		return -1;
	name_optimizer(state, &s);
	int rc = ckpt_save_to(w, where, &s, b.list, b.n, e);
	free(b.list);
	return rc;
}
