#include "libcomm/async.h"

#include "base/thread.h"
#include "libcomm/device/graph.h"
#include "libcomm/flight/recorder.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct comm_request {
	struct comm *c;
	struct comm_request *next;          /* in the queue */
	struct comm_request *newer, *older; /* of the open ones */
	struct op *ops;                     /* [n], behind the request with their lists */
	int n;
	atomic_bool done;
	int rc;
	struct err err;
	max_align_t lists[];
};

struct worker {
	struct comm *c;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t work, finished;
	struct comm_request *head, **tail;
	bool started; /* the thread */
	bool leave;
	/* open: started, not waited for yet. Only the group's caller accesses it */
	struct comm_request *newest;
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
		r->rc = comm_group_run(w->c, r->ops, r->n, &r->err);
		pthread_mutex_lock(&w->lock);
		atomic_store_explicit(&r->done, true, memory_order_release);
		pthread_cond_broadcast(&w->finished);
		pthread_mutex_unlock(&w->lock);
	}
	return NULL;
}

static int start_thread(struct worker *w, struct err *e)
{
	char name[THREAD_NAME];
	snprintf(name, sizeof name, "comm %.10s", w->c->name);
	int rc = thread_start(&w->thread, name, worker_main, w);
	w->started = rc == 0;
	return rc ? err_set(e, ERR_NOMEM, "cannot start the thread of group %s: %s", w->c->name,
			    strerror(rc))
		  : 0;
}

static int open_worker(struct comm *c, struct err *e)
{
	struct worker *w = calloc(1, sizeof *w);
	if (!w)
		return err_set(e, ERR_NOMEM, "no memory for the thread of group %s", c->name);
	w->c = c;
	w->tail = &w->head;
	pthread_mutex_init(&w->lock, NULL);
	pthread_cond_init(&w->work, NULL);
	pthread_cond_init(&w->finished, NULL);
	c->worker = w;
	return 0;
}

void comm_worker_close(struct comm *c)
{
	struct worker *w = c->worker;
	if (!w)
		return;
	if (c->open_requests) {
		struct err why = ERR_INIT;
		err_set(&why, ERR_ABORTED, "group %s was closed while %d operations were under way",
			c->name, c->open_requests);
		comm_world_fail(c->world, &why);
	}
	pthread_mutex_lock(&w->lock);
	w->leave = true;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
	if (w->started)
		pthread_join(w->thread, NULL);
	for (struct comm_request *r = w->newest, *older; r; r = older) {
		older = r->older;
		free(r);
	}
	pthread_mutex_destroy(&w->lock);
	pthread_cond_destroy(&w->work);
	pthread_cond_destroy(&w->finished);
	free(w);
	c->worker = NULL;
}

/* Bytes of an operation's lists. */
struct list_sizes {
	size_t messages, counts, out_counts;
};

static struct list_sizes sizes_of(const struct comm *c, const struct op *op)
{
	size_t list = (size_t)c->size * sizeof *op->counts;
	return (struct list_sizes){
		.messages = op->kind == OP_P2P ? (size_t)op->n * sizeof *op->p2p : 0,
		.counts = op->counts ? list : 0,
		.out_counts = op->out_counts ? list : 0,
	};
}

static void *copy_list(char **at, const void *list, size_t bytes)
{
	void *copy = *at;
	if (bytes)
		memcpy(copy, list, bytes);
	*at += bytes;
	return copy;
}

/* *at: where the lists go; then behind them. */
static struct op copy_op(const struct comm *c, const struct op *op, char **at)
{
	struct list_sizes s = sizes_of(c, op);
	struct op copy = *op;
	if (s.messages)
		copy.p2p = copy_list(at, op->p2p, s.messages);
	if (s.counts)
		copy.counts = copy_list(at, op->counts, s.counts);
	if (s.out_counts)
		copy.out_counts = copy_list(at, op->out_counts, s.out_counts);
	return copy;
}

static struct comm_request *new_request(struct comm *c, const struct op *ops, int n, struct err *e)
{
	size_t bytes = (size_t)n * sizeof *ops;
	for (int i = 0; i < n; i++) {
		struct list_sizes s = sizes_of(c, &ops[i]);
		bytes += s.messages + s.counts + s.out_counts;
	}
	struct comm_request *r = malloc(sizeof *r + bytes);
	if (!r) {
		err_set(e, ERR_NOMEM, "no memory for a request");
		return NULL;
	}
	*r = (struct comm_request){ .c = c, .ops = (struct op *)r->lists, .n = n };
	char *at = (char *)(r->ops + n);
	for (int i = 0; i < n; i++)
		r->ops[i] = copy_op(c, &ops[i], &at);
	return r;
}

static void add_request(struct worker *w, struct comm_request *r)
{
	r->older = w->newest;
	if (r->older)
		r->older->newer = r;
	w->newest = r;
	r->c->open_requests++;
}

static void free_request(struct comm_request *r)
{
	struct worker *w = r->c->worker;
	*(r->newer ? &r->newer->older : &w->newest) = r->older;
	if (r->older)
		r->older->newer = r->newer;
	r->c->open_requests--;
	free(r);
}

/* Whether the caller's thread issues the operation itself, so that the operations of all groups
 * reach the device's library in the order of the program. Threads of groups would issue them in any
 * order, and the library's kernels that wait for each other in two orders can fill the devices and
 * never end. */
static bool issued_by_caller(const struct comm *c)
{
	return c->device_group && c->device_group->native;
}

static void issue(struct worker *w, struct comm_request *r)
{
	r->rc = comm_group_run(w->c, r->ops, r->n, &r->err);
	atomic_store_explicit(&r->done, true, memory_order_release);
}

static void queue(struct worker *w, struct comm_request *r)
{
	pthread_mutex_lock(&w->lock);
	*w->tail = r;
	w->tail = &r->next;
	pthread_cond_signal(&w->work);
	pthread_mutex_unlock(&w->lock);
}

/* Makes what the request needs: its group's worker, with a thread if it runs there. */
static struct comm_request *prepare(struct comm *c, const struct op *ops, int n, bool by_caller,
				    struct err *e)
{
	if ((!c->worker && open_worker(c, e)) ||
	    (!by_caller && !c->worker->started && start_thread(c->worker, e)))
		return NULL;
	return new_request(c, ops, n, e);
}

int comm_async_start(struct comm *c, const struct op *ops, int n, struct comm_request **req,
		     struct err *e)
{
	struct err why = ERR_INIT;
	bool by_caller = issued_by_caller(c);
	struct comm_request *r = prepare(c, ops, n, by_caller, &why);
	if (!r) {
		comm_world_fail(c->world, &why); /* the other ranks would wait for this one */
		return err_set(e, why.code, "%s", why.text);
	}
	for (int i = 0; i < n && !comm_graph_records(); i++)
		r->ops[i].record = comm_recorder_queue(c->recorder, &ops[i]);
	add_request(c->worker, r);
	*req = r;
	(by_caller ? issue : queue)(c->worker, r);
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
	int rc = req->rc;
	if (rc < 0)
		err_set(e, req->err.code, "%s", req->err.text);
	else if (req->ops[0].mark)
		rc = comm_device_group_join(req->c, req->ops[0].mark, e);
	free_request(req);
	return rc;
}
