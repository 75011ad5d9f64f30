#include "agent/engine/ckpt/load/exchange.h"

#include "agent/engine/ckpt/load/agree.h"
#include "agent/engine/ckpt/format/attached.h"
#include "agent/engine/ckpt/load/load.h"
#include "agent/engine/ckpt/places/local.h"
#include "agent/engine/ckpt/memory/recover.h"
#include "agent/engine/ckpt/load/rounds.h"
#include "agent/engine/ckpt/format/state_digest.h"
#include "base/numbers.h"

#include <stdlib.h>

/* The largest part of a manifest that is broadcast at once, and the memory that each rank allocates
 * first. */
enum { CHUNK = 1 << 20 };

/* The boxes that the ranks want. */
struct lists {
	struct buf own;
	int64_t *bytes; /* of each rank's list */
	size_t *counts; /* the same */
	char *all;      /* in the exchange's chunk, or in `large` */
	char *large;
};

/* One load, on this rank. */
struct exchange {
	struct comm *group;
	const struct ckpt_load_options *opt;
	struct ckpt_tensor *tensors;
	int n;
	char *chunk;
	struct buf text; /* of the manifest */
	struct manifest manifest;
	bool parsed;
	struct lists lists;
	struct wants wants;
	bool in_memory; /* the whole state is */
	struct copies copies;
	struct ckpt_provider *providers[2];
	int n_providers;
	struct pieces pieces;
	struct landing landing;
	struct rounds *rounds;
};

static void close_exchange(struct exchange *x)
{
	ckpt_rounds_close(x->rounds);
	ckpt_landing_fini(&x->landing);
	ckpt_pieces_fini(&x->pieces);
	for (int i = 0; i < x->n_providers; i++)
		ckpt_provider_close(x->providers[i]);
	ckpt_copies_fini(&x->copies);
	ckpt_wants_fini(&x->wants);
	if (x->parsed)
		ckpt_manifest_fini(&x->manifest);
	buf_fini(&x->lists.own);
	free(x->lists.bytes);
	free(x->lists.counts);
	free(x->lists.large);
	buf_fini(&x->text);
	free(x->chunk);
}

/* --- The manifest --- */

static int parse_manifest(struct exchange *x, struct err *e)
{
	if (ckpt_manifest_parse_of(x->opt->path, &x->text, &x->manifest, e))
		return -1;
	x->parsed = true;
	return 0;
}

/* The manifest of a checkpoint on the nodes is known, but this node may not have it. */
static int read_text(struct exchange *x, struct err *e)
{
	const struct ckpt_load_options *o = x->opt;
	if (!o->local)
		return ckpt_manifest_read_text(ckpt_storage_of(o->path), o->path, &x->text, e);
	ckpt_manifest_write(&o->local->manifest, &x->text);
	return buf_failed(&x->text)
		       ? err_set(e, ERR_NOMEM, "%s: no memory for its manifest", o->path)
		       : 0;
}

static int read_manifest(struct exchange *x, struct err *e)
{
	const struct ckpt_load_options *o = x->opt;
	if ((!x->in_memory && read_text(x, e)) || parse_manifest(x, e))
		return -1;
	if (ckpt_manifest_check_model(&x->manifest, o->model, e))
		return err_prefix(e, "%s", o->path);
	if (o->accept && o->accept(o->arg, &x->manifest.state, e))
		return -1;
	if (!o->attached || x->in_memory)
		return 0;
	ckpt_attached_fini(o->attached);
	return ckpt_attached_load(o->path, &x->manifest, o->attached, e);
}

/* What a rank does before it knows anything of the others. Rank 0 reads the manifest. */
static int begin_load(struct exchange *x, struct err *e)
{
	if (x->opt->failure)
		return err_set(e, x->opt->failure->code, "%s", x->opt->failure->text);
	size_t ranks = (size_t)comm_size(x->group);
	x->chunk = malloc(CHUNK);
	x->lists.bytes = malloc(ranks * sizeof *x->lists.bytes);
	x->lists.counts = malloc(ranks * sizeof *x->lists.counts);
	if (!x->chunk || !x->lists.bytes || !x->lists.counts)
		return err_set(e, ERR_NOMEM, "%s: no memory to load it", x->opt->path);
	return comm_rank(x->group) == 0 ? read_manifest(x, e) : 0;
}

/* Rank 0 hands the text to the others. A rank without memory for it takes part nevertheless. */
static int share_text(struct exchange *x, int64_t size, struct err *e)
{
	bool has = comm_rank(x->group) == 0;
	char *to = has ? x->text.data : buf_room(&x->text, (size_t)size);
	for (int64_t at = 0; at < size; at += CHUNK)
		if (comm_broadcast(x->group, to ? to + at : x->chunk,
				   (size_t)min_int64(CHUNK, size - at), COMM_U8, 0, e))
			return -1;
	x->text.len = to ? (size_t)size : 0;
	return 0;
}

static int share_manifest(struct exchange *x, int *culprit, struct err *e)
{
	struct err mine = ERR_INIT;
	int rc = begin_load(x, &mine);
	int64_t size = (int64_t)x->text.len;
	if (ckpt_agree_most(x->group, rc, &mine, &size, culprit, e))
		return -1;
	return comm_size(x->group) > 1 ? share_text(x, size, e) : 0;
}

/* --- The boxes of all ranks --- */

static int encode_list(struct exchange *x, struct err *e)
{
	if (!x->text.len)
		return err_set(e, ERR_NOMEM, "%s: no memory for its manifest", x->opt->path);
	if (!x->parsed && parse_manifest(x, e))
		return -1;
	if (ckpt_wants_encode(&x->manifest, x->tensors, x->n, &x->lists.own, e))
		return err_prefix(e, "%s", x->opt->path);
	return 0;
}

/* Allocates the memory for all lists. Small ones are sure to have it. */
static int alloc_lists(struct exchange *x, int *culprit, struct err *e)
{
	struct lists *l = &x->lists;
	struct err mine = ERR_INIT;
	size_t total = 0;
	for (int r = 0; r < comm_size(x->group); r++)
		total += l->counts[r] = (size_t)l->bytes[r];
	l->all = x->chunk;
	if (total <= CHUNK)
		return 0;
	l->all = l->large = malloc(total);
	int rc = l->all ? 0
			: err_set(&mine, ERR_NOMEM, "no memory for %zu bytes of lists of boxes",
				  total);
	return ckpt_agree(x->group, rc, &mine, culprit, e);
}

static int decode_lists(struct exchange *x, struct err *e)
{
	const struct lists *l = &x->lists;
	const char *at = l->all;
	for (int r = 0; r < comm_size(x->group); at += l->counts[r++])
		if (ckpt_wants_decode(&x->manifest, r, at, l->counts[r], &x->wants, e))
			return -1;
	return 0;
}

static int gather_lists(struct exchange *x, int *culprit, struct err *e)
{
	struct lists *l = &x->lists;
	struct err mine = ERR_INIT;
	int rc = encode_list(x, &mine);
	if (ckpt_agree_all(x->group, rc, &mine, (int64_t)l->own.len, l->bytes, culprit, e) ||
	    alloc_lists(x, culprit, e))
		return -1;
	return comm_all_gatherv(x->group, l->own.data, l->all, l->counts, COMM_U8, e);
}

/* --- The load --- */

/* Copies in memory come before the storage. */
static int open_providers(struct exchange *x, struct err *e)
{
	const struct ckpt_load_options *o = x->opt;
	if (x->copies.n) {
		if (ckpt_provider_memory_open(&x->manifest, &x->copies, o->store,
					      comm_rank(x->group), &x->providers[0], e))
			return -1;
		x->n_providers = 1;
	}
	if (x->in_memory)
		return 0;
	struct ckpt_provider **next = &x->providers[x->n_providers];
	if (o->local ? ckpt_provider_local_open(o->local, &x->manifest, o->watch, next, e)
		     : ckpt_provider_storage_open(o->path, &x->manifest, o->watch, next, e))
		return -1;
	x->n_providers++;
	return 0;
}

static int plan_load(struct exchange *x, struct err *e)
{
	const struct ckpt_load_options *o = x->opt;
	if (decode_lists(x, e) || open_providers(x, e) ||
	    ckpt_pieces_init(&x->pieces, &x->manifest, &x->wants, comm_rank(x->group),
			     comm_size(x->group), x->providers, x->n_providers, e) ||
	    ckpt_landing_init(&x->landing, &x->pieces, x->tensors, x->n, e))
		return -1;
	ckpt_turns_limit(&x->pieces, o->turn_bytes, o->round_bytes);
	return ckpt_rounds_open(x->group, &x->pieces, &x->landing, x->providers, o->watch,
				&x->rounds, e);
}

static int load_shared(struct exchange *x, int *culprit, struct err *e)
{
	struct err mine = ERR_INIT;
	if (gather_lists(x, culprit, e) ||
	    ckpt_agree(x->group, plan_load(x, &mine), &mine, culprit, e))
		return -1;
	return ckpt_rounds_run(x->rounds, culprit, e);
}

/* One rank has nobody to share with. */
static int load_alone(struct exchange *x, int *culprit, struct err *e)
{
	const struct ckpt_load_options *o = x->opt;
	*culprit = 0;
	return ckpt_load_boxes(o->path, &x->manifest, x->tensors, x->n, o->watch, e);
}

/* The rest of a load, when the copies are known. */
static int load(struct exchange *x, struct ckpt_state *state, int *culprit, struct err *e)
{
	int rc = share_manifest(x, culprit, e);
	if (!rc)
		rc = comm_size(x->group) == 1 && !x->copies.n ? load_alone(x, culprit, e)
							      : load_shared(x, culprit, e);
	if (!rc && x->opt->proof) {
		*culprit = -1;
		rc = ckpt_state_check_loaded(x->group, &x->manifest, x->opt->proof, x->opt->n_proof,
					     x->opt->watch, e);
	}
	if (!rc)
		*state = x->manifest.state;
	return rc;
}

int ckpt_load_all(struct comm *group, const struct ckpt_load_options *opt, struct ckpt_state *state,
		  struct ckpt_tensor *tensors, int n, int *culprit, struct err *e)
{
	struct exchange x = { .group = group,
			      .opt = opt,
			      .tensors = tensors,
			      .n = n,
			      .text = BUF_INIT,
			      .lists.own = BUF_INIT };
	int rc = opt->store ? ckpt_copies_gather(group, opt->store, &x.copies, culprit, e) : 0;
	if (!rc)
		rc = load(&x, state, culprit, e);
	close_exchange(&x);
	return rc;
}

/* *owned: as in ckpt_copies_newest, equal on all ranks. */
static int find_newest(struct comm *group, const struct ckpt_store *store, struct copies *copies,
		       const struct copy_held ***owned, int *owners, int *culprit, struct err *e)
{
	struct err mine = ERR_INIT;
	*owned = NULL;
	if (ckpt_copies_gather(group, store, copies, culprit, e))
		return -1;
	int rc = ckpt_copies_newest(copies, owned, owners, &mine);
	return ckpt_agree(group, rc, &mine, culprit, e);
}

int ckpt_recover_find(struct comm *group, const struct ckpt_store *store, int64_t *step,
		      uint32_t *generation, int *culprit, struct err *e)
{
	struct copies copies = { 0 };
	const struct copy_held **owned;
	int owners, rc = find_newest(group, store, &copies, &owned, &owners, culprit, e);
	bool found = !rc && owned;
	if (found) {
		*step = owned[0]->step;
		*generation = owned[0]->generation;
	}
	free(owned);
	ckpt_copies_fini(&copies);
	return rc ? -1 : found;
}

/* 1: rank 0 has the manifest of the newest state; 0: there is no whole one. */
static int find_state(struct exchange *x, struct err *why, int *culprit, struct err *e)
{
	const struct ckpt_store *store = x->opt->store;
	const struct copy_held **owned;
	int owners, rc = find_newest(x->group, store, &x->copies, &owned, &owners, culprit, e);
	bool found = !rc && owned;
	if (found)
		rc = ckpt_recover_manifest(x->group, store, owned, owners, &x->text, why, culprit,
					   e);
	free(owned);
	return rc ? -1 : found;
}

int ckpt_recover_all(struct comm *group, const struct ckpt_load_options *opt,
		     struct ckpt_state *state, struct ckpt_tensor *tensors, int n, int *culprit,
		     struct err *e)
{
	struct ckpt_load_options o = *opt;
	struct err why = ERR_INIT;
	struct exchange x = { .group = group,
			      .opt = &o,
			      .tensors = tensors,
			      .n = n,
			      .in_memory = true,
			      .text = BUF_INIT,
			      .lists.own = BUF_INIT };
	o.path = "copies in memory";
	int rc = find_state(&x, &why, culprit, e);
	if (why.code != ERR_NONE && !o.failure)
		o.failure = &why;
	if (rc == 1)
		rc = load(&x, state, culprit, e) ? -1 : 1;
	close_exchange(&x);
	return rc;
}
