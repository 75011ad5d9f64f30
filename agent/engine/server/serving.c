#include "agent/engine/server/serving.h"

#include <pthread.h>
#include <stdlib.h>

struct worker_thread {
	struct serving *serving;
	int worker;
	pthread_t thread;
	bool runs;
};

struct serving {
	struct comm *world;
	const struct worker_channel *channels;
	struct server_shard *shard;
	int n;
	struct worker_thread *threads; /* [n]; this rank's own is unused */
};

/* Handles one request. Returns 1 if the worker leaves. */
static int serve_request(const struct worker_thread *t, struct err *e)
{
	const struct worker_channel *p = &t->serving->channels[t->worker];
	struct server_shard *k = t->serving->shard;
	float *data = param_server_shard_buffer(k, t->worker);
	size_t count = (size_t)param_store_owned(param_server_shard_store(k));
	struct server_request request;
	struct server_reply reply;
	if (comm_recv(p->from, &request, sizeof request, COMM_U8, p->peer, e))
		return -1;
	if (request.kind == REQUEST_IDLE || request.kind == REQUEST_LEAVE)
		return request.kind == REQUEST_LEAVE;
	if (request.kind == REQUEST_PUSH &&
	    (comm_recv(p->from, data, count, COMM_F32, p->peer, e) ||
	     param_server_shard_push(k, t->worker, &request, e)))
		return -1;
	if (param_server_shard_reply(k, t->worker, request.kind == REQUEST_PUSH, &reply, e) ||
	    comm_send(p->from, &reply, sizeof reply, COMM_U8, p->peer, e) ||
	    comm_send(p->from, data, count, COMM_F32, p->peer, e))
		return -1;
	return 0;
}

static void *serve_worker(void *arg)
{
	struct worker_thread *t = arg;
	struct err e = ERR_INIT;
	int rc;
	while (!(rc = serve_request(t, &e)))
		;
	if (rc < 0) {
		/* Abort the world first: the thread that holds the lock of the shard may be waiting
		 * for another server. */
		comm_abort(t->serving->world, e.text);
		param_server_shard_fail(t->serving->shard, &e);
	}
	return NULL;
}

int param_server_serving_open(struct comm *world, const struct worker_channel *channels,
			      struct server_shard *k, struct serving **out, struct err *e)
{
	struct serving *s = calloc(1, sizeof *s);
	int n = comm_size(world);
	if (s)
		*s = (struct serving){ .world = world,
				       .channels = channels,
				       .shard = k,
				       .n = n,
				       .threads = calloc((size_t)n, sizeof *s->threads) };
	if (!s || !s->threads) {
		free(s);
		return err_set(e, ERR_NOMEM,
			       "parameter server: no memory for %d threads; close other programs",
			       n);
	}
	*out = s; /* also if a thread fails to start: the caller ends those that run */
	for (int i = 0; i < n; i++) {
		s->threads[i] = (struct worker_thread){ .serving = s, .worker = i };
		if (i != comm_rank(world) &&
		    pthread_create(&s->threads[i].thread, NULL, serve_worker, &s->threads[i]))
			return err_set(e, ERR_NOMEM,
				       "parameter server: cannot start the thread for worker %d of "
				       "%d; raise the limit of processes (ulimit -u)",
				       i, n);
		s->threads[i].runs = i != comm_rank(world);
	}
	return 0;
}

void param_server_serving_close(struct serving *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->n; i++)
		if (s->threads[i].runs)
			pthread_join(s->threads[i].thread, NULL);
	free(s->threads);
	free(s);
}
