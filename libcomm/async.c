#include "libcomm/async.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

struct comm_request {
	struct comm *c;
	struct comm_request *next;
	struct op op;
	struct comm_p2p *p2p; /* op's own copy */
	atomic_bool done;
	int rc;
	struct err err;
};

struct worker {
	struct comm *c;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work, finished;
	struct comm_request *head, **tail;
	bool leave;
};

static struct comm_request *next_request(struct worker *w)
{
	pthread_mutex_lock(&w->lock);
	while (!w->head && !w->leave)
		pthread_cond_wait(&w->work, &w->lock);
	struct comm_request *r = w->head;
	if (r) {
		w->head = r->next;
		if (!w->head)
			w->tail = &w->head;
	}
	pthread_mutex_unlock(&w->lock);
	return r;
}

static void *worker_main(void *arg)
{
	struct worker *w = arg;
	for (struct comm_request *r; (r = next_request(w));) {
		r->rc = group_run(w->c, &r->op, &r->err);
		pthread_mutex_lock(&w->lock);
		atomic_store_explicit(&r->done, true, memory_order_release);
		pthread_cond_broadcast(&w->finished);
		pthread_mutex_unlock(&w->lock);
	}
	return NULL;
}

static int worker_open(struct comm *c, struct err *e)
{
	struct worker *w = calloc(1, sizeof *w);
	if (!w)
		return err_set(e, ERR_NOMEM, "no memory for the thread of group %s", c->name);
	w->c = c;
	w->tail = &w->head;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	pthread_cond_init(&w->finished, NULL);
	/* Signals belong to the threads that the program made. */
	sigset_t all, old;
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	int rc = pthread_create(&w->thread, NULL, worker_main, w);
	pthread_sigmask(SIG_SETMASK, &old, NULL);
	if (rc) {
		free(w);
		return err_set(e, ERR_NOMEM, "cannot start the thread of group %s: %s", c->name, strerror(rc));
	}
	c->worker = w;
	return 0;
}

void worker_close(struct comm *c)
{
	struct worker *w = c->worker;
	if (!w)
		return;
	if (c->open_requests) {
		struct err why = ERR_INIT;
		err_set(&why, ERR_ABORTED, "group %s was closed while %d operations were under way", c->name,
			c->open_requests);
		world_fail(c->world, &why);
	}
	pthread_mutex_lock(&w->lock);
	w->leave = true;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
	pthread_join(w->thread, NULL);
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->finished);
	free(w);
	c->worker = NULL;
}

static struct comm_request *request_new(struct comm *c, const struct op *op, struct err *e)
{
	struct comm_request *r = calloc(1, sizeof *r);
	if (r) {
		r->c = c;
		r->op = *op;
		if (op->kind != OP_P2P)
			return r;
		r->p2p = calloc((size_t)op->n + 1, sizeof *r->p2p);
		if (r->p2p) {
			memcpy(r->p2p, op->p2p, (size_t)op->n * sizeof *r->p2p);
			r->op.p2p = r->p2p;
			return r;
		}
	}
	free(r);
	err_set(e, ERR_NOMEM, "no memory for a request");
	return NULL;
}

int async_start(struct comm *c, const struct op *op, struct comm_request **req, struct err *e)
{
	struct err why = ERR_INIT;
	struct comm_request *r = NULL;
	if (c->worker || worker_open(c, &why) == 0)
		r = request_new(c, op, &why);
	if (!r) {
		world_fail(c->world, &why); /* the others will wait for this rank */
		return err_set(e, why.code, "%s", why.text);
	}
	struct worker *w = c->worker;
	c->open_requests++;
	*req = r;
	pthread_mutex_lock(&w->lock);
	*w->tail = r;
	w->tail = &r->next;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
	return 0;
}

int comm_test(struct comm_request *req)
{
	return !req || atomic_load_explicit(&req->done, memory_order_acquire);
}

int comm_wait(struct comm_request *req, struct err *e)
{
	if (!req)
		return 0;
	struct worker *w = req->c->worker;
	pthread_mutex_lock(&w->lock);
	while (!atomic_load_explicit(&req->done, memory_order_relaxed))
		pthread_cond_wait(&w->finished, &w->lock);
	pthread_mutex_unlock(&w->lock);
	req->c->open_requests--;
	int rc = req->rc;
	if (rc < 0)
		err_set(e, req->err.code, "%s", req->err.text);
	free(req->p2p);
	free(req);
	return rc;
}
