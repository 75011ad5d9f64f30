#include "launcher/slurm/reach.h"

#include "launcher/slurm/limit.h"

#include <netdb.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One host. Its addresses are tried one after the other until one connects. */
struct attempt {
	struct reach *r;
	int index;
	uv_getaddrinfo_t lookup;
	uv_connect_t connect;
	uv_tcp_t tcp;
	struct addrinfo *addresses, *next;
	bool looking; /* lookup is under way */
	bool open;    /* tcp must be closed */
	bool over;    /* has a result */
};

struct reach {
	uv_loop_t *loop;
	struct slurm_limit limit;
	struct attempt *attempts;
	enum reach_result *results;
	int n, left; /* attempts without a result */
	int held;    /* lookups and handles that still refer to this memory */
	bool ended;
	void (*done)(void *arg, const enum reach_result *results);
	void *arg;
};

static void release(void *arg)
{
	struct reach *r = arg;
	if (--r->held)
		return;
	for (int i = 0; i < r->n; i++)
		uv_freeaddrinfo(r->attempts[i].addresses);
	free(r->attempts);
	free(r->results);
	free(r);
}

static void on_tcp_closed(uv_handle_t *h);

/* Ends all attempts. The memory is freed once the loop has closed every handle. */
static void end_reach(struct reach *r)
{
	r->ended = true;
	for (int i = 0; i < r->n; i++) {
		struct attempt *a = &r->attempts[i];
		if (a->looking)
			uv_cancel((uv_req_t *)&a->lookup);
		if (a->open && !uv_is_closing((uv_handle_t *)&a->tcp))
			uv_close((uv_handle_t *)&a->tcp, on_tcp_closed);
	}
	slurm_limit_close(&r->limit, release, r);
}

static void report_results(void *arg)
{
	struct reach *r = arg;
	r->done(r->arg, r->results);
	if (!r->ended)
		end_reach(r);
}

static void end_attempt(struct attempt *a, enum reach_result result)
{
	struct reach *r = a->r;
	a->over = true;
	r->results[a->index] = result;
	/* The limit calls `done`, so that it is never called within slurm_reach_start(). */
	if (!--r->left && !r->ended)
		slurm_limit_start(&r->limit, 0, report_results, r);
}

static void try_next_address(struct attempt *a);

static void on_tcp_closed(uv_handle_t *h)
{
	struct attempt *a = h->data;
	a->open = false;
	if (!a->r->ended && !a->over)
		try_next_address(a);
	release(a->r);
}

static void on_connected(uv_connect_t *c, int status)
{
	struct attempt *a = c->data;
	if (a->r->ended)
		return;
	if (!status)
		end_attempt(a, REACH_CONNECTED);
	else if (status == UV_ECONNREFUSED)
		a->r->results[a->index] = REACH_REFUSED;
	if (!uv_is_closing((uv_handle_t *)&a->tcp))
		uv_close((uv_handle_t *)&a->tcp, on_tcp_closed);
}

static void try_next_address(struct attempt *a)
{
	struct addrinfo *at = a->next;
	if (!at || uv_tcp_init(a->r->loop, &a->tcp)) {
		end_attempt(a, a->r->results[a->index]);
		return;
	}
	a->next = at->ai_next;
	a->open = true;
	a->r->held++;
	a->tcp.data = a->connect.data = a;
	if (a->r->results[a->index] == REACH_UNKNOWN)
		a->r->results[a->index] = REACH_SILENT;
	if (uv_tcp_connect(&a->connect, &a->tcp, at->ai_addr, on_connected))
		uv_close((uv_handle_t *)&a->tcp, on_tcp_closed);
}

static void on_looked_up(uv_getaddrinfo_t *q, int status, struct addrinfo *found)
{
	struct attempt *a = q->data;
	a->looking = false;
	a->addresses = a->next = status ? NULL : found;
	if (!a->r->ended)
		try_next_address(a);
	release(a->r);
}

static void start_attempt(struct attempt *a, const struct reach_target *t)
{
	char port[16];
	const struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
	snprintf(port, sizeof port, "%d", t->port);
	a->lookup.data = a;
	if (uv_getaddrinfo(a->r->loop, &a->lookup, on_looked_up, t->host, port, &hints)) {
		end_attempt(a, REACH_UNKNOWN);
		return;
	}
	a->looking = true;
	a->r->held++;
}

int slurm_reach_start(uv_loop_t *loop, const struct reach_target *targets, int n, int limit_ms,
		      void (*done)(void *arg, const enum reach_result *results), void *arg,
		      struct reach **out, struct err *e)
{
	struct reach *r = calloc(1, sizeof *r);
	struct attempt *attempts = calloc((size_t)n + 1, sizeof *attempts);
	enum reach_result *results = calloc((size_t)n + 1, sizeof *results);
	if (!r || !attempts || !results) {
		free(r);
		free(attempts);
		free(results);
		return err_set(e, ERR_NOMEM, "no memory to connect to %d nodes", n);
	}
	*r = (struct reach){ .loop = loop,
			     .attempts = attempts,
			     .results = results,
			     .n = n,
			     .left = n,
			     .held = 1,
			     .done = done,
			     .arg = arg };
	slurm_limit_init(&r->limit, loop);
	slurm_limit_start(&r->limit, n ? limit_ms : 0, report_results, r);
	for (int i = 0; i < n; i++) {
		attempts[i] = (struct attempt){ .r = r, .index = i };
		start_attempt(&attempts[i], &targets[i]);
	}
	*out = r;
	return 0;
}

void slurm_reach_stop(struct reach *r)
{
	r->done = NULL;
	end_reach(r);
}
