#include "agent/engine/parallel/param_store_inner.h"

#include "agent/engine/parallel/device.h"
#include "base/clock.h"
#include "base/spill.h"

#include <stdlib.h>
#include <string.h>

static void describe_replicas(struct replica_groups *r, struct comm *shard, struct comm *copies,
			      int zero)
{
	*r = (struct replica_groups){ .shard = shard, .copies = copies, .cut = { 1, 0, 1, 0 } };
	if (shard) {
		r->cut.shards = comm_size(shard);
		r->cut.shard = comm_rank(shard);
	}
	if (copies) {
		r->cut.copies = comm_size(copies);
		r->cut.copy = comm_rank(copies);
	}
	r->policy = zero_policy(zero, &r->cut);
}

/* Places all units, one after the other. *params, *grads: the elements of each buffer. */
static void place_units(struct param_store *s, int zero, int64_t *params, int64_t *grads)
{
	int count[UNIT_KINDS] = { 0 };
	*params = *grads = s->owned = 0;
	for (int i = 0; i < s->catalogue->n_units; i++) {
		const struct unit *u = &s->catalogue->units[i];
		const struct replica_groups *r = param_store_replicas(s, i);
		struct unit_layout *h = &s->layouts[i];
		h->n = u->hi - u->lo;
		zero_owned(h->n, zero, &r->cut, &h->lo, &h->hi);
		zero_counted(h->n, zero, &r->cut, &h->counted_lo, &h->counted_hi);
		h->block = zero_block(h->n, zero, &r->cut);
		h->whole = zero_whole(h->n, zero, &r->cut);
		h->at = r->policy->state ? r->cut.shard * h->block : 0;
		h->params = *params;
		h->grads = *grads;
		h->owned = s->owned;
		h->bucket_first = i;
		h->nth = count[u->kind]++;
		*params += r->policy->params ? h->block : h->whole;
		*grads += r->policy->grads ? h->block : h->whole;
		s->owned += h->block;
	}
}

/* source: NULL is the backend's own. */
static void *alloc_buffer(struct param_store *s, const struct backend_source *source,
			  const char *what, int64_t elements, size_t width, struct err *e)
{
	size_t bytes = (size_t)elements * width;
	void *p = backend_alloc_from(s->backend, source, bytes);
	if (!p)
		err_set(e, ERR_NOMEM,
			"%s: no memory for %zu bytes; raise parallel.tp, parallel.pp or "
			"parallel.zero",
			what, bytes);
	return p;
}

static int open_masters(struct param_store *s, const char *spill_dir, struct err *e)
{
	if (s->width == sizeof(float))
		return 0;
	s->spilled = spill_dir != NULL;
	if (!s->spilled) {
		s->masters = alloc_buffer(s, NULL, "master parameters", s->owned, sizeof(float), e);
		return s->masters ? 0 : -1;
	}
	size_t bytes = (size_t)s->owned * sizeof(float);
	if (backend_on_host(s->backend))
		return spill_open(spill_dir, "master parameters", bytes, (void **)&s->masters, e);
	s->masters = backend_host_alloc(s->backend, bytes);
	if (!s->masters)
		return err_set(e, ERR_NOMEM,
			       "master parameters: the host has no memory for %zu bytes that the "
			       "device copies from; free some, or set offload.optimizer = no",
			       bytes);
	memset(s->masters, 0, bytes);
	return 0;
}

bool param_store_masters_offloaded(const struct param_store *s)
{
	return s->spilled && !backend_on_host(s->backend);
}

/* Opens as many buffers as units of the kind can be in use at once, each as large as the largest
 * unit. */
static int open_pool(struct param_store *s, struct unit_buffers *p, const char *what,
		     enum unit_kind kind, size_t width, struct err *e)
{
	int64_t most = 0;
	int count = 0;
	for (int i = 0; i < s->catalogue->n_units; i++)
		if (s->catalogue->units[i].kind == kind) {
			most = s->layouts[i].whole > most ? s->layouts[i].whole : most;
			count++;
		}
	int n = count < ZERO_BUFFERS ? count : ZERO_BUFFERS;
	p->bytes = (size_t)most * width;
	for (; p->n < n; p->n++) {
		p->slots[p->n] = (struct unit_buffer){ .data = alloc_buffer(s, s->memory, what,
									    most, width, e),
						       .unit = -1,
						       .laid = -1 };
		if (!p->slots[p->n].data)
			return -1;
	}
	return 0;
}

static int open_pools(struct param_store *s, struct err *e)
{
	for (int kind = 0; kind < UNIT_KINDS; kind++) {
		const struct zero_policy *policy = s->replicas[zero_class(kind)].policy;
		if (policy->params &&
		    open_pool(s, &s->gathers[kind], "gathered parameters", kind, s->width, e))
			return -1;
		if (policy->grads && open_pool(s, &s->scatters[kind], "gradients of a micro-batch",
					       kind, sizeof(float), e))
			return -1;
	}
	return 0;
}

static int open_memory(struct param_store *s, const struct param_store_options *opt, struct err *e)
{
	int64_t params, grads;
	size_t units = (size_t)s->catalogue->n_units;
	s->layouts = calloc(units + 1, sizeof *s->layouts);
	s->sums = calloc(units + 1, sizeof *s->sums);
	s->set = calloc((size_t)s->catalogue->n + 1, sizeof *s->set);
	if (!s->layouts || !s->sums || !s->set)
		return err_set(
			e, ERR_NOMEM,
			"param_store: no memory for a table of %zu units; close other programs",
			units);
	place_units(s, opt->zero, &params, &grads);
	s->params = alloc_buffer(s, s->memory, "parameters", params, s->width, e);
	s->grads = s->params ? alloc_buffer(s, s->memory, "gradients", grads, sizeof(float), e)
			     : NULL;
	if (!s->grads || open_masters(s, opt->spill_dir, e) ||
	    (!opt->owned_only && open_pools(s, e)))
		return -1;
	s->params_bytes = (size_t)params * s->width;
	s->grads_bytes = (size_t)grads * sizeof *s->grads;
	return 0;
}

/* Gathers two numbers of each of the two ranks that hold the tied table, through the backend's
 * memory. */
static int gather_tied(struct param_store *s, const int64_t mine[2], int64_t both[4], struct err *e)
{
	if (backend_on_host(s->backend))
		return comm_all_gather(s->groups.tied, mine, both, 2, COMM_I64, e);
	int64_t *at = backend_alloc(s->backend, 6 * sizeof *at);
	if (!at)
		return err_set(e, ERR_NOMEM,
			       "param_store: no memory for %zu bytes; lower batch.micro",
			       6 * sizeof *at);
	backend_put(s->backend, at, mine, 2 * sizeof *at);
	int rc = comm_all_gather(s->groups.tied, at, at + 2, 2, COMM_I64, e) ||
				 backend_get(s->backend, both, at + 2, 4 * sizeof *at, e)
			 ? -1
			 : 0;
	backend_free(s->backend, at);
	return rc;
}

/* The two ranks that hold the tied table must own the same elements of it. */
static int check_tied(struct param_store *s, struct err *e)
{
	int64_t mine[2] = { 0, 0 }, both[4];
	if (!s->groups.tied)
		return 0;
	const struct param *p = catalogue_find(s->catalogue, PARAM_EMBED, -1, -1);
	if (!p)
		return err_set(e, ERR_INTERNAL,
			       "param_store: group %s ties a table that this rank does not have",
			       comm_name(s->groups.tied));
	s->tied = p->unit;
	mine[0] = s->layouts[s->tied].lo;
	mine[1] = s->layouts[s->tied].hi;
	if (gather_tied(s, mine, both, e))
		return -1;
	for (int i = 0; i < 2; i++)
		if (both[i] != both[2 + i])
			return err_set(
				e, ERR_UNSUPPORTED,
				"the tied table is cut differently over the replicas of the first "
				"and of the last stage; use parallel.zero_shard = all, or "
				"model.tie_head = no");
	return 0;
}

struct comm *param_store_partial_group(const struct param_store *s, const struct param *p)
{
	struct comm *tp = s->groups.tp, *kv = s->groups.kv;
	if (tp && comm_size(tp) == p->copies)
		return tp;
	return kv && comm_size(kv) == p->copies ? kv : NULL;
}

static int check_partial_groups(const struct param_store *s, struct err *e)
{
	for (int i = 0; i < s->catalogue->n; i++) {
		const struct param *p = &s->catalogue->params[i];
		if (p->partial && !param_store_partial_group(s, p))
			return err_set(
				e, ERR_INTERNAL,
				"param_store: there is no group of the %d ranks that have a part "
				"of %s's gradient",
				p->copies, p->name);
	}
	return 0;
}

/* Passes wait for gathered parameters, also those in graphs. */
static int prepare_graphs(struct param_store *s, struct err *e)
{
	for (int i = 0; i < ZERO_CLASSES; i++)
		if (s->replicas[i].shard && comm_graph_prepare(s->replicas[i].shard, e))
			return -1;
	return 0;
}

int param_store_open(const struct param_store_options *opt, struct param_store **out, struct err *e)
{
	struct param_store *s = calloc(1, sizeof *s);
	if (!s)
		return err_set(e, ERR_NOMEM, "param_store: no memory; close other programs");
	*s = (struct param_store){
		.backend = opt->backend,
		.ops = backend_ops(opt->backend),
		.catalogue = opt->catalogue,
		.memory = opt->memory,
		.groups = opt->groups,
		.overlap = opt->overlap,
		.stochastic = opt->stochastic,
		.seed = opt->seed,
		.width = backend_width(opt->backend),
	};
	s->type = s->width == sizeof(float) ? COMM_F32 : COMM_BF16;
	describe_replicas(&s->replicas[ZERO_DENSE], opt->groups.shard, opt->groups.copies,
			  opt->zero);
	describe_replicas(&s->replicas[ZERO_EXPERTS], opt->groups.expert_shard,
			  opt->groups.expert_copies, opt->zero);
	if (prepare_graphs(s, e) || param_store_open_buckets(s, e) || open_memory(s, opt, e) ||
	    param_store_build_pieces(s, e) || check_partial_groups(s, e) || check_tied(s, e)) {
		param_store_close(s);
		return -1;
	}
	*out = s;
	return 0;
}

enum { LIST = 2 + 2 * UNIT_KINDS * ZERO_BUFFERS };

/* The buffers that the groups of a class reduce and gather. */
static int list_buffers(const struct param_store *s, int class, struct comm_memory list[LIST])
{
	int n = 0;
	list[n++] = parallel_memory_piece(s->backend, s->params, s->params_bytes);
	list[n++] = parallel_memory_piece(s->backend, s->grads, s->grads_bytes);
	for (int kind = 0; kind < UNIT_KINDS; kind++) {
		const struct unit_buffers *pools[] = { &s->gathers[kind], &s->scatters[kind] };
		for (int i = 0; i < 2 && (int)zero_class(kind) == class; i++)
			for (int k = 0; k < pools[i]->n; k++)
				list[n++] = parallel_memory_piece(
					s->backend, pools[i]->slots[k].data, pools[i]->bytes);
	}
	return n;
}

/* tp sums the gradients that each of its ranks has a part of, where the backward pass puts them. */
static int register_sums(struct param_store *s, struct err *e)
{
	struct comm_memory list[1 + UNIT_KINDS * ZERO_BUFFERS];
	int n = 0;
	list[n++] = parallel_memory_piece(s->backend, s->grads, s->grads_bytes);
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		for (int i = 0; i < s->scatters[kind].n; i++)
			list[n++] = parallel_memory_piece(s->backend,
							  s->scatters[kind].slots[i].data,
							  s->scatters[kind].bytes);
	return parallel_memory_register(&s->groups.tp, 1, list, n, "gradients that tp sums", e);
}

int param_store_register(struct param_store *s, struct err *e)
{
	static const char *const what[ZERO_CLASSES] = {
		[ZERO_DENSE] = "parameters and gradients",
		[ZERO_EXPERTS] = "parameters and gradients of experts"
	};
	for (int class = 0; s->memory && class < ZERO_CLASSES; class ++) {
		const struct replica_groups *r = &s->replicas[class];
		struct comm *const groups[] = { r->shard, r->copies };
		struct comm_memory list[LIST];
		int n = list_buffers(s, class, list);
		if (parallel_memory_register(groups, 2, list, n, what[class], e))
			return -1;
	}
	return s->memory ? register_sums(s, e) : 0;
}

static void close_pool(struct param_store *s, struct unit_buffers *p)
{
	for (int i = 0; i < p->n; i++)
		backend_free(s->backend, p->slots[i].data);
}

static void drain_pool(struct unit_buffers *p)
{
	for (int i = 0; i < p->n; i++) {
		comm_wait(p->slots[i].req, NULL);
		p->slots[i].req = NULL;
	}
}

void param_store_drain(struct param_store *s)
{
	for (int i = 0; s->layouts && i < s->catalogue->n_units; i++) {
		comm_wait(s->layouts[i].publishing, NULL);
		s->layouts[i].publishing = NULL;
	}
	for (int i = 0; i < s->n_sums; i++)
		comm_wait(s->sums[i], NULL);
	s->n_sums = 0;
	s->late = NULL;
	for (int i = 0; i < UNIT_KINDS; i++) {
		drain_pool(&s->gathers[i]);
		drain_pool(&s->scatters[i]);
	}
}

void param_store_close(struct param_store *s)
{
	if (!s)
		return;
	param_store_drain(s);
	for (int i = 0; i < UNIT_KINDS; i++) {
		close_pool(s, &s->gathers[i]);
		close_pool(s, &s->scatters[i]);
	}
	if (param_store_masters_offloaded(s))
		backend_host_free(s->backend, s->masters);
	else if (s->spilled)
		spill_close(s->masters, (size_t)s->owned * sizeof(float));
	else
		backend_free(s->backend, s->masters);
	backend_free(s->backend, s->params);
	backend_free(s->backend, s->grads);
	param_store_order_fini(&s->order);
	param_store_close_buckets(s);
	free(s->pieces);
	free(s->layouts);
	free(s->sums);
	free(s->set);
	free(s);
}

void *param_store_stored(const struct param_store *s, int unit)
{
	const struct unit_layout *h = &s->layouts[unit];
	const struct replica_groups *r = param_store_replicas(s, unit);
	return s->params + (size_t)(h->params + (r->policy->params ? 0 : h->at)) * s->width;
}

float *param_store_master(const struct param_store *s, int unit)
{
	return s->masters ? s->masters + s->layouts[unit].owned
			  : (float *)param_store_stored(s, unit);
}

float *param_store_grad(const struct param_store *s, int unit)
{
	const struct unit_layout *h = &s->layouts[unit];
	const struct replica_groups *r = param_store_replicas(s, unit);
	return s->grads + h->grads + (r->policy->grads ? 0 : h->at);
}

int param_store_wait_request(struct comm_request **req, double *spent, struct err *e)
{
	if (!*req)
		return 0;
	double since = clock_s();
	int rc = comm_wait(*req, e);
	*req = NULL;
	*spent += clock_s() - since;
	return rc;
}

float *param_store_flat_grads(const struct param_store *s)
{
	for (int i = 0; i < s->catalogue->n_units; i++)
		if (param_store_replicas(s, i)->policy->grads)
			return NULL;
	return s->grads;
}

double param_store_wait_seconds(const struct param_store *s)
{
	return s->gather_s + s->reduce_s;
}
