#include "agent/engine/server/server.h"

#include "agent/engine/server/shard.h"
#include "agent/engine/server/channels.h"
#include "agent/engine/server/serving.h"
#include "base/clock.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* A unit in the worker's copy of the parameters. */
struct worker_unit {
	float *params, *grads;
	int64_t n;
};

struct param_server {
	const struct job *job;
	struct comm *world, *servers;
	struct worker_channel *channels;
	int n, me;
	struct server_shard *shard;
	struct serving *serving;
	struct param_store *worker;
	struct backend *backend;
	double share;
	struct worker_unit *units;
	int n_units;
	float *scratch; /* a shard */

	pthread_t ticker; /* sends "idle" while the worker computes */
	bool ticks;
	pthread_mutex_t talk; /* held during requests */
	pthread_cond_t ended;
	bool ending, left;
	double waited;
};

/* --- The worker's copy, cut into shards ---------------------------------------------------- */

/* Elements of a shard: a block of each unit, with its padding. */
static int64_t shard_size(const struct param_server *s)
{
	int64_t sum = 0;
	for (int u = 0; u < s->n_units; u++)
		sum += catalogue_block(s->units[u].n, s->n);
	return sum;
}

/* Copies the gradient of shard i into out, and zeros into its padding. */
static void pack_gradient(const struct param_server *s, int i, float *out)
{
	for (int u = 0; u < s->n_units; u++) {
		int64_t lo, hi;
		catalogue_piece(s->units[u].n, s->n, i, &lo, &hi);
		int64_t block = catalogue_block(s->units[u].n, s->n), own = hi - lo;
		memcpy(out, s->units[u].grads + lo, (size_t)own * sizeof(float));
		memset(out + own, 0, (size_t)(block - own) * sizeof(float));
		out += block;
	}
}

/* Copies the parameters of shard i from `in`. */
static void unpack_params(const struct param_server *s, int i, const float *in)
{
	for (int u = 0; u < s->n_units; u++) {
		int64_t lo, hi;
		catalogue_piece(s->units[u].n, s->n, i, &lo, &hi);
		memcpy(s->units[u].params + lo, in, (size_t)(hi - lo) * sizeof(float));
		in += catalogue_block(s->units[u].n, s->n);
	}
}

/* The norm of this worker's mean gradient. */
static double own_norm(const struct param_server *s)
{
	const struct ops *ops = backend_ops(s->backend);
	int n;
	const struct param_piece *p = param_store_pieces(s->worker, &n);
	double sum = 0;
	for (int i = 0; i < n; i++)
		ops->sqnorm(s->backend, &sum, p[i].grad, p[i].count);
	return sqrt(sum) / s->share;
}

static int find_units(struct param_server *s, const struct catalogue *c, struct err *e)
{
	int n;
	const struct param_piece *p = param_store_pieces(s->worker, &n);
	s->n_units = c->n_units;
	s->units = calloc((size_t)c->n_units + 1, sizeof *s->units);
	if (!s->units)
		return err_set(
			e, ERR_NOMEM,
			"parameter server: no memory for a table of %d units; close other programs",
			c->n_units);
	for (int i = 0; i < c->n_units; i++)
		s->units[i].n = c->units[i].hi - c->units[i].lo;
	for (int i = 0; i < n; i++) {
		int64_t at = p[i].param->offset - c->units[p[i].param->unit].lo + p[i].first;
		if (p[i].count != p[i].param->count)
			return err_set(e, ERR_INTERNAL,
				       "parameter server: the worker has only a part of %s",
				       p[i].param->name);
		s->units[p[i].param->unit].params = p[i].master - at;
		s->units[p[i].param->unit].grads = p[i].grad - at;
	}
	return 0;
}

/* --- Requests and replies ------------------------------------------------------------------- */

static int send_request(const struct param_server *s, int i, const struct server_request *request,
			struct err *e)
{
	return comm_send(s->channels[i].to, request, sizeof *request, COMM_U8, s->channels[i].peer,
			 e);
}

/* Sends to all other servers, beginning with the next rank, so that not all workers send to the
 * same server at once. */
static int send_requests(const struct param_server *s, const struct server_request *request,
			 struct err *e)
{
	for (int i = 1; i < s->n; i++) {
		int to = (s->me + i) % s->n;
		if (send_request(s, to, request, e))
			return -1;
		if (request->kind != REQUEST_PUSH)
			continue;
		pack_gradient(s, to, s->scratch);
		if (comm_send(s->channels[to].to, s->scratch, (size_t)shard_size(s), COMM_F32,
			      s->channels[to].peer, e))
			return -1;
	}
	return 0;
}

/* This rank's own server comes last: the wait for it has no timeout of its own, while a receive
 * from another server has. */
static int receive_replies(const struct param_server *s, bool bounded, struct server_reply *first,
			   struct err *e)
{
	struct server_reply a;
	for (int i = 1; i < s->n; i++) {
		int from = (s->me + i) % s->n;
		const struct worker_channel *p = &s->channels[from];
		if (comm_recv(p->to, &a, sizeof a, COMM_U8, p->peer, e) ||
		    comm_recv(p->to, s->scratch, (size_t)shard_size(s), COMM_F32, p->peer, e))
			return -1;
		unpack_params(s, from, s->scratch);
		if (from == 0)
			*first = a;
	}
	if (param_server_shard_reply(s->shard, s->me, bounded, &a, e))
		return -1;
	unpack_params(s, s->me, param_server_shard_buffer(s->shard, s->me));
	if (s->me == 0)
		*first = a;
	return 0;
}

/* Sends the request to all servers and receives their replies. *first: the first server's. */
static int exchange(struct param_server *s, const struct server_request *request,
		    struct server_reply *first, struct err *e)
{
	double since = clock_s();
	bool push = request->kind == REQUEST_PUSH;
	pthread_mutex_lock(&s->talk);
	int rc = send_requests(s, request, e);
	if (!rc && push) {
		pack_gradient(s, s->me, param_server_shard_buffer(s->shard, s->me));
		rc = param_server_shard_push(s->shard, s->me, request, e);
	}
	if (!rc)
		rc = receive_replies(s, push, first, e);
	pthread_mutex_unlock(&s->talk);
	s->waited += clock_s() - since;
	return rc;
}

static int pull_params(struct param_server *s, struct err *e)
{
	const struct server_request request = { .kind = REQUEST_PULL };
	struct server_reply a;
	return exchange(s, &request, &a, e);
}

/* --- While the worker computes ------------------------------------------------------------ */

/* Four ticks per network.timeout, so that a late tick does no harm. */
static struct timespec next_tick(double timeout)
{
	struct timespec t;
	double pause = timeout > 0 && timeout < 60 ? timeout / 4 : 15;
	clock_gettime(CLOCK_MONOTONIC, &t);
	t.tv_sec += (time_t)pause;
	t.tv_nsec += (long)((pause - floor(pause)) * 1e9);
	if (t.tv_nsec >= 1000000000) {
		t.tv_sec++;
		t.tv_nsec -= 1000000000;
	}
	return t;
}

/* A failure here aborts the world, and the worker sees that by itself. */
static void *send_ticks(void *arg)
{
	struct param_server *s = arg;
	const struct server_request request = { .kind = REQUEST_IDLE };
	pthread_mutex_lock(&s->talk);
	while (!s->ending) {
		struct timespec until = next_tick(s->job->network.timeout);
		while (!s->ending && !pthread_cond_timedwait(&s->ended, &s->talk, &until))
			;
		if (!s->ending && send_requests(s, &request, NULL))
			break;
	}
	pthread_mutex_unlock(&s->talk);
	return NULL;
}

static int start_ticker(struct param_server *s, struct err *e)
{
	if (s->n == 1)
		return 0;
	if (pthread_create(&s->ticker, NULL, send_ticks, s))
		return err_set(
			e, ERR_NOMEM,
			"parameter server: cannot start a thread; raise the limit of processes "
			"(ulimit -u)");
	s->ticks = true;
	return 0;
}

static void stop_ticker(struct param_server *s)
{
	pthread_mutex_lock(&s->talk);
	s->ending = true;
	pthread_cond_signal(&s->ended);
	pthread_mutex_unlock(&s->talk);
	if (s->ticks)
		pthread_join(s->ticker, NULL);
	s->ticks = false;
}

/* --- Opening and closing ---------------------------------------------------------------------- */

static int open_parts(struct param_server *s, const struct server_options *opt, struct err *e)
{
	if (comm_split(opt->world, 0, s->me, "servers", &s->servers, e) ||
	    param_server_channels_open(opt->world, &s->channels, e) ||
	    param_server_shard_open(opt, s->servers, &s->shard, e) ||
	    find_units(s, opt->catalogue, e))
		return -1;
	size_t bytes = (size_t)shard_size(s) * sizeof(float);
	s->scratch = backend_alloc(s->backend, bytes);
	return s->scratch
		       ? 0
		       : err_set(e, ERR_NOMEM,
				 "parameter server: no memory for %zu bytes; use a smaller model",
				 bytes);
}

int param_server_open(const struct server_options *opt, struct param_server **out, struct err *e)
{
	struct param_server *s = calloc(1, sizeof *s);
	pthread_condattr_t steady;
	if (!s)
		return err_set(e, ERR_NOMEM, "parameter server: no memory; close other programs");
	*s = (struct param_server){
		.job = opt->view->job,
		.world = opt->world,
		.n = comm_size(opt->world),
		.me = comm_rank(opt->world),
		.worker = opt->worker,
		.backend = opt->backend,
		.share = opt->view->fraction,
	};
	pthread_condattr_init(&steady);
	pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
	pthread_mutex_init(&s->talk, NULL);
	pthread_cond_init(&s->ended, &steady);
	pthread_condattr_destroy(&steady);
	if (open_parts(s, opt, e)) {
		param_server_close(s);
		return -1;
	}
	*out = s;
	return 0;
}

/* Ends the waits of the ranks that wait for this one. */
static void abort_world(struct param_server *s)
{
	struct err why = ERR_INIT;
	err_set(&why, ERR_ABORTED, "parameter server: rank %d ended in the middle of training",
		s->me);
	comm_abort(s->world, why.text);
	param_server_shard_fail(s->shard, &why);
}

void param_server_close(struct param_server *s)
{
	if (!s)
		return;
	if (s->serving && !s->left)
		abort_world(s);
	stop_ticker(s);
	param_server_serving_close(s->serving);
	backend_free(s->backend, s->scratch);
	param_server_shard_close(s->shard);
	param_server_channels_close(s->channels, s->n);
	comm_close(s->servers);
	pthread_cond_destroy(&s->ended);
	pthread_mutex_destroy(&s->talk);
	free(s->units);
	free(s);
}

int param_server_start(struct param_server *s, int64_t step, struct err *e)
{
	param_server_shard_begin(s->shard, step);
	if (param_server_serving_open(s->world, s->channels, s->shard, &s->serving, e) ||
	    start_ticker(s, e))
		return -1;
	return param_server_pause(s, e);
}

int param_server_leave(struct param_server *s, struct err *e)
{
	const struct server_request request = { .kind = REQUEST_LEAVE };
	/* Workers that are behind may still need the ticker, and all messages must be received
	 * before groups are closed. */
	if (comm_barrier(s->world, e))
		return -1;
	stop_ticker(s);
	if (send_requests(s, &request, e))
		return -1;
	param_server_serving_close(s->serving);
	s->serving = NULL;
	s->left = true;
	return comm_barrier(s->world, e);
}

struct param_store *param_server_store(struct param_server *s)
{
	return param_server_shard_store(s->shard);
}

struct optim *param_server_optim(struct param_server *s)
{
	return param_server_shard_optim(s->shard);
}

/* --- Training --------------------------------------------------------------------------------- */

int param_server_step(struct param_server *s, struct server_step *io, struct err *e)
{
	const struct server_request request = {
		.kind = REQUEST_PUSH,
		.wants = (io->wants_stop ? WANTS_STOP : 0) | (io->wants_save ? WANTS_SAVE : 0),
		.step = io->step,
		.loss = io->loss,
		.share = s->share,
		.norm = own_norm(s),
	};
	struct server_reply a;
	if (exchange(s, &request, &a, e))
		return -1;
	io->loss = a.loss;
	io->norm = s->job->parallel.staleness ? request.norm : a.norm;
	io->stops = a.stop == io->step + 1;
	io->saves = a.save == io->step + 1;
	return param_store_sync_params(s->worker, io->step + 1, e);
}

int param_server_pause(struct param_server *s, struct err *e)
{
	return comm_barrier(s->world, e) || pull_params(s, e) ||
			       param_store_sync_params(s->worker, 0, e)
		       ? -1
		       : 0;
}

int param_server_resume(struct param_server *s, struct err *e)
{
	return comm_barrier(s->world, e);
}

int64_t param_server_lead(struct param_server *s)
{
	return param_server_shard_lead(s->shard);
}

double param_server_wait_seconds(const struct param_server *s)
{
	return s->waited;
}

int64_t param_server_peak_bytes(const struct param_server *s)
{
	return param_server_shard_peak_bytes(s->shard);
}
