#include "tests/unit/agent/store_world.h"

#include "base/philox.h"

#include <stdlib.h>
#include <string.h>

int cut_world(const struct cut *c)
{
	return c->tp * c->ep * c->shards * c->copies * c->pp;
}

static int replicas_of(const struct cut *c)
{
	return c->ep * c->shards * c->copies;
}

/* The sizes are such that nothing divides evenly. */
static struct model_shape shape_of(const struct cut *c)
{
	bool gpt2 = c->family == FAMILY_GPT2;
	return (struct model_shape){
		.family = c->family,
		.layers = 5,
		.hidden = 20,
		.heads = 4,
		.kv_heads = c->kv_heads,
		.head_dim = 6,
		.ffn = 23,
		.vocab = 37,
		.seq = 3,
		.rms = !gpt2,
		.rope = !gpt2,
		.gated = !gpt2,
		.bias = gpt2,
		.tied = gpt2,
		.experts = c->family == FAMILY_MIXTRAL ? 3 : 0,
		.top = 1,
	};
}

static int split(struct comm *world, bool exists, int color, int key, const char *name,
		 struct comm **out, struct err *e)
{
	return exists ? comm_split(world, color, key, name, out, e) : 0;
}

static struct zero_cut cut_of(struct comm *shard, struct comm *copies)
{
	return (struct zero_cut){
		.shards = shard ? comm_size(shard) : 1,
		.shard = shard ? comm_rank(shard) : 0,
		.copies = copies ? comm_size(copies) : 1,
		.copy = copies ? comm_rank(copies) : 0,
	};
}

/* Without ZeRO, all replicas are copies. */
static int open_groups(struct bench *b, struct err *e)
{
	const struct cut *c = b->cut;
	struct param_store_groups *g = &b->groups;
	int replicas = replicas_of(c), rank = comm_rank(b->world), place = b->pp * c->tp + b->tp;
	int shards = c->zero ? c->ep * c->shards : 1, expert_shards = c->zero ? c->shards : 1;
	int ep = b->replica % c->ep, over = b->replica / c->ep, experts = c->shards * c->copies;
	int kv = c->kv_heads < c->tp ? c->tp / c->kv_heads : 1;
	if (split(b->world, shards > 1, place * replicas + b->replica / shards, rank, "shard",
		  &g->shard, e) ||
	    split(b->world, replicas > shards, place * replicas + b->replica % shards, rank,
		  "copies", &g->copies, e) ||
	    split(b->world, expert_shards > 1,
		  (place * c->ep + ep) * replicas + over / expert_shards, rank, "expert shard",
		  &g->expert_shard, e) ||
	    split(b->world, experts > expert_shards,
		  (place * c->ep + ep) * replicas + over % expert_shards, rank, "expert copies",
		  &g->expert_copies, e) ||
	    split(b->world, c->tp > 1, b->pp * replicas + b->replica, rank, "tp", &g->tp, e) ||
	    split(b->world, kv > 1, (b->pp * replicas + b->replica) * c->tp + b->tp / kv, rank,
		  "kv", &g->kv, e) ||
	    split(b->world, b->shape.tied && c->pp > 1,
		  b->pp > 0 && b->pp < c->pp - 1 ? -1 : b->replica * c->tp + b->tp, rank, "tied",
		  &g->tied, e))
		return -1;
	b->cuts[ZERO_DENSE] = cut_of(g->shard, g->copies);
	b->cuts[ZERO_EXPERTS] = cut_of(g->expert_shard, g->expert_copies);
	return 0;
}

static void take_stages(struct bench *b)
{
	const struct cut *c = b->cut;
	for (int i = 0; i < c->pp; i++)
		b->stages[i] = (struct stage){ (int)b->shape.layers * i / c->pp,
					       (int)b->shape.layers * (i + 1) / c->pp, i == 0,
					       i == c->pp - 1 };
	b->share = (struct share){
		.tp = c->tp,
		.tp_rank = b->tp,
		.ep = c->ep,
		.ep_rank = b->replica % c->ep,
		.sp = c->sp,
		.chunks = &b->stages[b->pp],
		.n_chunks = 1,
	};
}

/* Returns a number from 0 to 15 that depends on the parameter, the place in it, and `what`. */
static int draw(const struct param *p, struct philox_key key, int64_t i, int what)
{
	int64_t width = p->hi[1] - p->lo[1];
	int64_t row = p->lo[0] + i / width, column = p->lo[1] + i % width;
	uint32_t out[4];
	philox4(key, (uint64_t)((what * 1000 + row) * 1000 + column), out);
	return (int)(out[0] % 16);
}

/* Returns what a micro-batch of one replica adds to the gradient on one of its copies: -1, 0 or 1.
 * These are so small that the sums over a few steps, micro-batches and replicas stay below 256, so
 * bf16 holds them exactly. */
static float gradient(const struct bench *b, const struct param *p, struct philox_key key,
		      int64_t i, int replica, int copy, int micro)
{
	if (p->expert >= 0 && replica % b->cut->ep != b->share.ep_rank)
		return 0;
	return (float)(draw(p, key, i, 1 + (replica * 8 + (p->partial ? copy : 0)) * 4 + micro) %
			       3 -
		       1);
}

static float total(const struct bench *b, const struct param *p, struct philox_key key, int64_t i)
{
	float sum = 0;
	for (int r = 0; r < replicas_of(b->cut); r++)
		for (int copy = 0; copy < (p->partial ? p->copies : 1); copy++)
			for (int micro = 0; micro < b->cut->micros; micro++)
				sum += gradient(b, p, key, i, r, copy, micro);
	return b->groups.tied && p->role == PARAM_EMBED ? 2 * sum : sum;
}

static void draw_all(struct bench *b)
{
	size_t n = (size_t)b->catalogue.elements;
	b->starts = calloc(n, sizeof(float));
	b->totals = calloc(n, sizeof(float));
	b->gradients = calloc(n * (size_t)b->cut->micros, sizeof(float));
	for (int k = 0; k < b->catalogue.n; k++) {
		const struct param *p = &b->catalogue.params[k];
		struct philox_key key = philox_key(7, PHILOX_TEST, philox_item(p->name));
		for (int64_t i = 0; i < p->count; i++) {
			b->starts[p->offset + i] = (float)(100 + draw(p, key, i, 0));
			b->totals[p->offset + i] = total(b, p, key, i);
			for (int micro = 0; micro < b->cut->micros; micro++)
				b->gradients[(size_t)micro * n + (size_t)(p->offset + i)] =
					gradient(b, p, key, i, b->replica, p->copy, micro);
		}
	}
}

int bench_open(const struct cut *cut, struct comm *world, struct bench *b, struct err *e)
{
	int rank = comm_rank(world);
	*b = (struct bench){ .cut = cut,
			     .world = world,
			     .tp = rank % cut->tp,
			     .replica = rank / cut->tp % replicas_of(cut),
			     .pp = rank / cut->tp / replicas_of(cut),
			     .shape = shape_of(cut) };
	take_stages(b);
	if (catalogue_build(&b->shape, &b->share, &b->catalogue, e) || open_groups(b, e) ||
	    backend_open(cut->backend_name, 1, &b->backend, e))
		return -1;
	b->backend_own = backend_peak(b->backend);
	draw_all(b);
	struct param_store_options opt = {
		.catalogue = &b->catalogue,
		.backend = b->backend,
		.groups = b->groups,
		.zero = cut->zero,
		.overlap = cut->overlap,
		.stochastic = cut->stochastic,
		.seed = 11,
	};
	return param_store_open(&opt, &b->store, e);
}

void bench_close(struct bench *b)
{
	param_store_close(b->store);
	backend_close(b->backend);
	catalogue_free(&b->catalogue);
	free(b->starts);
	free(b->totals);
	free(b->gradients);
}

int bench_start_all(struct bench *b, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(b->store, &n);
	for (int i = 0; i < n; i++)
		for (int64_t j = 0; j < pieces[i].count; j++)
			pieces[i].master[j] =
				b->starts[pieces[i].param->offset + pieces[i].first + j];
	return param_store_sync_params(b->store, 0, e);
}

/* Returns the stored element as a number. */
static float stored(const struct bench *b, const void *params, int64_t i)
{
	float x;
	backend_ops(b->backend)
		->storage_to_fp32(b->backend, &x,
				  (const char *)params + (size_t)i * backend_width(b->backend), 1);
	return x;
}

/* Also checks that gaps contain zeros. */
static int check_params(const struct bench *b, int unit, const void *params, int after,
			struct err *e)
{
	const struct unit *u = &b->catalogue.units[unit];
	for (int64_t i = u->lo; i < u->hi; i++) {
		float want = b->starts[i] - (float)after * b->totals[i];
		float got = stored(b, params, i - u->lo);
		if (got != want)
			return err_set(e, ERR_NUMERIC,
				       "%s: element %d of unit %d is %g after %d steps, not %g",
				       b->cut->name, (int)(i - u->lo), unit, (double)got, after,
				       (double)want);
	}
	return 0;
}

static int forward(struct bench *b, int unit, int after, struct err *e)
{
	const void *params;
	if (param_store_acquire(b->store, unit, &params, e) ||
	    check_params(b, unit, params, after, e))
		return -1;
	param_store_release(b->store, unit);
	return 0;
}

static int backward(struct bench *b, int unit, int after, int micro, struct err *e)
{
	const struct unit *u = &b->catalogue.units[unit];
	const void *params;
	float *grads;
	if (param_store_acquire(b->store, unit, &params, e) ||
	    param_store_grads(b->store, unit, &grads, e) || check_params(b, unit, params, after, e))
		return -1;
	const struct grad_range all = { 0, u->hi - u->lo };
	bool add = param_store_adds_grads(b->store, unit, &all, 1);
	for (int64_t i = u->lo; i < u->hi; i++)
		grads[i - u->lo] = (add ? grads[i - u->lo] : 0) +
				   b->gradients[micro * b->catalogue.elements + i];
	if (param_store_reduce(b->store, unit, micro == b->cut->micros - 1, e))
		return -1;
	param_store_release(b->store, unit);
	return 0;
}

int bench_pass(struct bench *b, int after, struct err *e)
{
	param_store_begin(b->store);
	for (int micro = 0; micro < b->cut->micros; micro++) {
		for (int unit = 0; unit < b->catalogue.n_units; unit++)
			if (forward(b, unit, after, e))
				return -1;
		for (int unit = b->catalogue.n_units - 1; unit >= 0; unit--)
			if (backward(b, unit, after, micro, e))
				return -1;
	}
	return param_store_finish(b->store, e);
}

int bench_update(struct bench *b, int step, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(b->store, &n);
	for (int i = 0; i < n; i++)
		for (int64_t j = 0; j < pieces[i].count; j++)
			pieces[i].master[j] -= pieces[i].grad[j];
	return param_store_sync_params(b->store, step + 1, e);
}

int bench_check(const struct bench *b, struct err *e)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(b->store, &n);
	for (int i = 0; i < n; i++)
		for (int64_t j = 0; j < pieces[i].count; j++) {
			float want = b->totals[pieces[i].param->offset + pieces[i].first + j],
			      got = pieces[i].grad[j];
			if (got != want)
				return err_set(e, ERR_NUMERIC,
					       "%s: the gradient of element %d of %s is %g, not %g",
					       b->cut->name, (int)(pieces[i].first + j),
					       pieces[i].param->name, (double)got, (double)want);
		}
	return 0;
}
