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
	struct worker_thread *seats; /* [n], one unused: of the worker of this rank */
};

/* 0: served, 1: the worker leaves. */
static int serve_one(const struct worker_thread *seat, struct err *e)
{
	const struct worker_channel *p = &seat->serving->channels[seat->worker];
	struct server_shard *k = seat->serving->shard;
	float *data = param_server_shard_buffer(k, seat->worker);
	size_t count = (size_t)param_store_owned(param_server_shard_store(k));
	struct server_request note;
	struct server_reply answer;
	if (comm_recv(p->from, &note, sizeof note, COMM_U8, p->peer, e))
		return -1;
	if (note.kind == REQUEST_IDLE || note.kind == REQUEST_LEAVE)
		return note.kind == REQUEST_LEAVE;
	if (note.kind == REQUEST_PUSH && (comm_recv(p->from, data, count, COMM_F32, p->peer, e) ||
				       param_server_shard_push(k, seat->worker, &note, e)))
		return -1;
	if (param_server_shard_reply(k, seat->worker, note.kind == REQUEST_PUSH, &answer, e) ||
	    comm_send(p->from, &answer, sizeof answer, COMM_U8, p->peer, e) ||
	    comm_send(p->from, data, count, COMM_F32, p->peer, e))
		return -1;
	return 0;
}

static void *serve(void *arg)
{
	struct worker_thread *seat = arg;
	struct err e = ERR_INIT;
	int rc;
	while (!(rc = serve_one(seat, &e)))
		;
	if (rc < 0) {
		/* First the world: who holds the shard may be waiting for another server. */
		comm_abort(seat->serving->world, e.text);
		param_server_shard_fail(seat->serving->shard, &e);
	}
	return NULL;
}

int param_server_serving_open(struct comm *world, const struct worker_channel *channels, struct server_shard *k,
			      struct serving **out, struct err *e)
{
	struct serving *s = calloc(1, sizeof *s);
	int n = comm_size(world);
	if (s)
		*s = (struct serving){ .world = world,
				       .channels = channels,
				       .shard = k,
				       .n = n,
				       .seats = calloc((size_t)n, sizeof *s->seats) };
	if (!s || !s->seats) {
		free(s);
		return err_set(e, ERR_NOMEM,
			       "parameter server: no memory for %d threads; close other programs",
			       n);
	}
	*out = s; /* also where a thread fails to start: those that run are to be ended */
	for (int i = 0; i < n; i++) {
		s->seats[i] = (struct worker_thread){ .serving = s, .worker = i };
		if (i != comm_rank(world) &&
		    pthread_create(&s->seats[i].thread, NULL, serve, &s->seats[i]))
			return err_set(e, ERR_NOMEM,
				       "parameter server: no thread for worker %d of %d; raise the "
				       "limit of processes "
				       "(ulimit -u)",
				       i, n);
		s->seats[i].runs = i != comm_rank(world);
	}
	return 0;
}

void param_server_serving_close(struct serving *s)
{
	if (!s)
		return;
	for (int i = 0; i < s->n; i++)
		if (s->seats[i].runs)
			pthread_join(s->seats[i].thread, NULL);
	free(s->seats);
	free(s);
}
