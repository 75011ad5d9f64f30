#include "agent/engine/server/shard.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The server's view of a worker. */
struct worker {
	int64_t clock;      /* the steps that it has pushed */
	double loss, share; /* of its last push; share 0: none yet */
	float *buffer;      /* [owned] */
};

struct server_shard {
	struct comm *servers;
	int n;
	int64_t staleness;
	struct backend *backend;
	const struct ops *ops;
	struct param_store *store;
	struct optim *optim;
	float *params, *grads; /* [owned] in the store: all blocks, adjacent */
	int64_t owned;

	pthread_mutex_t lock; /* guards all below, and the store */
	pthread_cond_t moved;
	struct worker *workers;
	int64_t parts; /* gradients applied so far */
	int64_t lead, stop, save;
	double loss, norm; /* of the next replies */
	bool failed;
	struct err why;
};

static int open_workers(struct server_shard *k, struct err *e)
{
	size_t bytes = (size_t)k->owned * sizeof(float);
	k->workers = calloc((size_t)k->n, sizeof *k->workers);
	for (int i = 0; k->workers && i < k->n; i++) {
		k->workers[i].buffer = backend_alloc(k->backend, bytes);
		if (!k->workers[i].buffer)
			return err_set(
				e, ERR_NOMEM,
				"parameter server: no memory for %zu bytes for each of %d "
				"workers; use parallel.sync = all-reduce, or a smaller model",
				bytes, k->n);
	}
	return k->workers
		       ? 0
		       : err_set(e, ERR_NOMEM, "parameter server: no memory; close other programs");
}

/* Finds the shard. Its pieces must have the same places in all buffers. */
static int find_shard(struct server_shard *k, struct err *e)
{
	int n;
	const struct param_piece *p = param_store_pieces(k->store, &n);
	k->owned = param_store_owned(k->store);
	k->params = param_store_owned_masters(k->store);
	k->grads = param_store_owned_grads(k->store);
	for (int i = 0; i < n; i++)
		if (p[i].master - p[i].at != k->params || p[i].grad - p[i].at != k->grads)
			return err_set(e, ERR_INTERNAL,
				       "parameter server: the shard's part of %s is not adjacent",
				       p[i].param->name);
	return 0;
}

static int open_shard(struct server_shard *k, const struct server_options *opt, struct err *e)
{
	const struct param_store_options o = {
		.catalogue = opt->catalogue,
		.backend = k->backend,
		.zero = 3,
		.owned_only = true,
		.seed = opt->view->job->job.seed,
		.groups = { .shard = k->n > 1 ? k->servers : NULL,
			    .expert_shard = k->n > 1 ? k->servers : NULL },
	};
	if (param_store_open(&o, &k->store, e))
		return -1;
	const struct optim_options by = { .backend = k->backend,
					  .store = k->store,
					  .job = opt->view->job };
	return optim_open(&by, &k->optim, e) || find_shard(k, e) || open_workers(k, e) ? -1 : 0;
}

int param_server_shard_open(const struct server_options *opt, struct comm *servers,
			    struct server_shard **out, struct err *e)
{
	struct server_shard *k = calloc(1, sizeof *k);
	if (!k)
		return err_set(e, ERR_NOMEM, "parameter server: no memory; close other programs");
	*k = (struct server_shard){ .servers = servers,
				    .n = comm_size(servers),
				    .staleness = opt->view->job->parallel.staleness };
	pthread_mutex_init(&k->lock, NULL);
	pthread_cond_init(&k->moved, NULL);
	if (backend_open(opt->backend_name, 1, &k->backend, e))
		goto fail;
	k->ops = backend_ops(k->backend);
	if (open_shard(k, opt, e))
		goto fail;
	*out = k;
	return 0;
fail:
	param_server_shard_close(k);
	return -1;
}

void param_server_shard_close(struct server_shard *k)
{
	if (!k)
		return;
	for (int i = 0; k->workers && i < k->n; i++)
		backend_free(k->backend, k->workers[i].buffer);
	free(k->workers);
	optim_close(k->optim);
	param_store_close(k->store);
	if (k->backend)
		backend_close(k->backend);
	pthread_cond_destroy(&k->moved);
	pthread_mutex_destroy(&k->lock);
	free(k);
}

struct param_store *param_server_shard_store(struct server_shard *k)
{
	return k->store;
}

struct optim *param_server_shard_optim(struct server_shard *k)
{
	return k->optim;
}

int64_t param_server_shard_peak_bytes(const struct server_shard *k)
{
	return (int64_t)backend_peak(k->backend);
}

void param_server_shard_begin(struct server_shard *k, int64_t step)
{
	for (int i = 0; i < k->n; i++)
		k->workers[i].clock = step;
	k->parts = step * k->n;
}

float *param_server_shard_buffer(struct server_shard *k, int worker)
{
	return k->workers[worker].buffer;
}

/* --- Under the lock ------------------------------------------------------------------ */

static int64_t slowest_clock(const struct server_shard *k)
{
	int64_t least = k->workers[0].clock;
	for (int i = 1; i < k->n; i++)
		least = k->workers[i].clock < least ? k->workers[i].clock : least;
	return least;
}

static int64_t fastest_clock(const struct server_shard *k)
{
	int64_t most = k->workers[0].clock;
	for (int i = 1; i < k->n; i++)
		most = k->workers[i].clock > most ? k->workers[i].clock : most;
	return most;
}

/* The mean over the workers' last pushes. */
static double mean_loss(const struct server_shard *k)
{
	double loss = 0, share = 0;
	for (int i = 0; i < k->n; i++) {
		loss += k->workers[i].loss;
		share += k->workers[i].share;
	}
	return loss / share;
}

static void copy_shard(const struct server_shard *k, float *to, const float *from)
{
	memcpy(to, from, (size_t)k->owned * sizeof *to);
}

/* Applies one worker's gradient. */
static void apply_gradient(struct server_shard *k, int worker, const struct server_request *request)
{
	k->loss = mean_loss(k);
	if (!isfinite(request->norm))
		return;
	copy_shard(k, k->grads, k->workers[worker].buffer);
	optim_step_part(k->optim, request->norm, request->share, request->step, k->parts++);
}

/* Applies the gradients of all workers, summed in rank order. Loss and norm do not change before
 * all workers have their replies, because the next step is complete only after that. */
static int apply_step(struct server_shard *k, int64_t step, struct err *e)
{
	copy_shard(k, k->grads, k->workers[0].buffer);
	for (int i = 1; i < k->n; i++)
		k->ops->accumulate(k->backend, k->grads, k->workers[i].buffer, k->owned);
	k->loss = mean_loss(k);
	if (optim_grad_norm(k->optim, k->servers, 1, &k->norm, e))
		return -1;
	return isfinite(k->norm) ? optim_step(k->optim, k->norm, 1, step, e) : 0;
}

static int handle_push(struct server_shard *k, int worker, const struct server_request *request,
		       struct err *e)
{
	struct worker *w = &k->workers[worker];
	if (k->failed)
		return err_set(e, k->why.code, "%s", k->why.text);
	if (request->step != w->clock)
		return err_set(e, ERR_PROTO,
			       "parameter server: worker %d pushed step %lld instead of step %lld",
			       worker, (long long)request->step, (long long)w->clock);
	w->loss = request->loss;
	w->share = request->share;
	w->clock++;
	/* The fastest worker may already be in its next step, because its reply named no such step. */
	if (request->wants & WANTS_STOP && !k->stop)
		k->stop = fastest_clock(k) + 1;
	/* Every worker has had the reply that names the last such step: it has pushed a later one. */
	if (request->wants & WANTS_SAVE && slowest_clock(k) > k->save)
		k->save = fastest_clock(k) + 1;
	if (k->staleness > 0)
		apply_gradient(k, worker, request);
	else if (slowest_clock(k) == w->clock)
		return apply_step(k, request->step, e);
	return 0;
}

/* --- Calls of the threads --------------------------------------------------------------------- */

int param_server_shard_push(struct server_shard *k, int worker,
			    const struct server_request *request, struct err *e)
{
	pthread_mutex_lock(&k->lock);
	int rc = handle_push(k, worker, request, e);
	pthread_cond_broadcast(&k->moved);
	pthread_mutex_unlock(&k->lock);
	return rc;
}

int param_server_shard_reply(struct server_shard *k, int worker, bool bounded,
			     struct server_reply *out, struct err *e)
{
	struct worker *w = &k->workers[worker];
	int rc = 0;
	pthread_mutex_lock(&k->lock);
	while (bounded && !k->failed && w->clock - slowest_clock(k) > k->staleness)
		pthread_cond_wait(&k->moved, &k->lock);
	int64_t lead = w->clock - slowest_clock(k);
	if (k->failed) {
		rc = err_set(e, k->why.code, "%s", k->why.text);
	} else {
		k->lead = lead > k->lead ? lead : k->lead;
		*out = (struct server_reply){
			.loss = k->loss, .norm = k->norm, .stop = k->stop, .save = k->save
		};
		copy_shard(k, w->buffer, k->params);
	}
	pthread_mutex_unlock(&k->lock);
	return rc;
}

void param_server_shard_fail(struct server_shard *k, const struct err *why)
{
	pthread_mutex_lock(&k->lock);
	if (!k->failed)
		k->why = *why;
	k->failed = true;
	pthread_cond_broadcast(&k->moved);
	pthread_mutex_unlock(&k->lock);
}

int64_t param_server_shard_lead(struct server_shard *k)
{
	pthread_mutex_lock(&k->lock);
	int64_t lead = k->lead;
	pthread_mutex_unlock(&k->lock);
	return lead;
}
