#include "libcomm/tcp/acceptor.h"

#include "base/clock.h"
#include "base/owner.h"
#include "base/thread.h"
#include "libcomm/group.h"
#include "libcomm/tcp/handshake.h"
#include "libcomm/tcp/records.h"
#include "libcomm/tcp/oob.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { UNAUTHENTICATED_MAX = 64, AUTH_TIMEOUT_S = 30, EXHAUSTED_MS = 50, FINAL_NOTES_MS = 100 };

struct arrival {
	struct arrival *next;
	uint64_t group;
	int from, lane, fd; /* -1: announced but not authenticated */
	struct records *records;
};

struct pending_connection { /* not authenticated yet */
	struct handshake *handshake;
	struct arrival *coming; /* once its hello says that it carries data */
	int fd;
	double until;
};

struct acceptor {
	struct world *w;
	pthread_t thread;
	struct wakeup_pipe wakeup;
	atomic_bool leave;
	struct pending_connection *pending;
	struct pollfd *polls;
	int count, room, poll_room;
	struct oob *oob;
	bool out_of_descriptors;
	_Atomic uint32_t rounds; /* rounds of work on all pending connections */
};

/* Registers a data connection that a hello announces. */
static struct arrival *add_arrival(struct world *w, const struct hello *hello)
{
	struct arrival *new = malloc(sizeof *new);
	if (!new)
		return NULL;
	*new = (struct arrival){
		.group = hello->group, .from = (int)hello->from, .lane = hello->lane, .fd = -1
	};
	pthread_mutex_lock(&w->lock);
	new->next = w->arrivals;
	w->arrivals = new;
	pthread_mutex_unlock(&w->lock);
	return new;
}

static void cancel_arrival(struct world *w, struct arrival *a)
{
	pthread_mutex_lock(&w->lock);
	for (struct arrival **p = &w->arrivals; *p; p = &(*p)->next)
		if (*p == a) {
			*p = a->next;
			break;
		}
	pthread_mutex_unlock(&w->lock);
	free(a);
}

/* The connection is authenticated: its group may take it from here on. */
static void admit_arrival(struct world *w, struct arrival *a, int fd, struct records *records)
{
	pthread_mutex_lock(&w->lock);
	a->fd = fd;
	a->records = records;
	if (world_failed(w))
		shutdown(fd, SHUT_RDWR);
	for (struct comm *c = w->groups; c; c = c->next)
		if (c->id == a->group && c->wakeup.tx >= 0)
			comm_wakeup_signal(c->wakeup.tx);
	pthread_mutex_unlock(&w->lock);
}

static void drop_pending(struct acceptor *a, int i)
{
	struct pending_connection *g = &a->pending[i];
	comm_handshake_free(g->handshake);
	if (g->coming)
		cancel_arrival(a->w, g->coming);
	/* Keeps the order of arrival: the oldest connection comes first. */
	memmove(g, g + 1, (size_t)(--a->count - i) * sizeof *g);
}

static bool reserve_pending(struct acceptor *a)
{
	if (a->count < a->room)
		return true;
	int room = a->room ? 2 * a->room : 16;
	struct pending_connection *pending = realloc(a->pending, (size_t)room * sizeof *pending);
	if (!pending)
		return false;
	a->pending = pending;
	a->room = room;
	return true;
}

/* Drops the oldest connection without a hello, if there is one. A connection that has been answered
 * may have sent its proof, and its rank may already use it. */
static void drop_oldest(struct acceptor *a)
{
	int i = 0;
	while (i < a->count && comm_handshake_hello(a->pending[i].handshake))
		i++;
	if (a->count)
		drop_pending(a, i < a->count ? i : 0);
}

/* All ranks may connect at the same moment, for every lane and out of band, and strangers too. */
static int most_pending(const struct world *w)
{
	return UNAUTHENTICATED_MAX + (1 + w->sockets) * w->size;
}

/* Accepts only some at once, so that pending and out-of-band connections progress however fast
 * others connect. */
static void accept_connections(struct acceptor *a)
{
	int fd;
	a->out_of_descriptors = false;
	for (int n = 0; n < UNAUTHENTICATED_MAX; n++) {
		if (!reserve_pending(a) || net_accept(a->w->listener, &fd, NULL) < 0) {
			a->out_of_descriptors = true;
			drop_oldest(a);
			return;
		}
		if (fd < 0)
			return;
		if (owner_of_peer(fd) == OWNER_OTHER) {
			close(fd);
			continue;
		}
		if (a->count >= most_pending(a->w))
			drop_oldest(a);
		struct pending_connection g = { .fd = fd, .until = clock_s() + AUTH_TIMEOUT_S };
		if (comm_handshake_accept(a->w, fd, &g.handshake, NULL) < 0)
			return;
		a->pending[a->count++] = g;
	}
}

/* Continues one pending connection, which may leave the list. */
static void progress_pending(struct acceptor *a, int i)
{
	struct pending_connection *g = &a->pending[i];
	int rc = comm_handshake_step(g->handshake, NULL);
	const struct hello *hello = comm_handshake_hello(g->handshake);
	bool link = hello && hello->kind == HELLO_DATA;
	if (link && !g->coming)
		g->coming = add_arrival(a->w, hello);
	if (rc == 0 && clock_s() < g->until)
		return;
	if (rc <= 0 || (link && !g->coming)) {
		drop_pending(a, i);
		return;
	}
	struct pending_connection proven = *g;
	int from = (int)hello->from;
	memmove(g, g + 1, (size_t)(--a->count - i) * sizeof *g);
	struct records *records;
	comm_handshake_finish(proven.handshake, &records);
	if (link)
		admit_arrival(a->w, proven.coming, proven.fd, records);
	else
		comm_oob_adopt(a->oob, proven.fd, records, from);
}

/* Returns how many are set; -1: no memory. */
static int set_polls(struct acceptor *a)
{
	int need = 2 + a->count + comm_oob_poll_count(a->oob), n = 0;
	if (need > a->poll_room) {
		struct pollfd *more = realloc(a->polls, 2 * (size_t)need * sizeof *more);
		if (!more)
			return -1;
		a->polls = more;
		a->poll_room = 2 * need;
	}
	a->polls[n++] = (struct pollfd){ .fd = a->wakeup.rx, .events = POLLIN };
	a->polls[n++] = (struct pollfd){ .fd = a->out_of_descriptors ? -1 : a->w->listener,
					 .events = POLLIN };
	for (int i = 0; i < a->count; i++)
		comm_handshake_poll(a->pending[i].handshake, &a->polls[n++]);
	comm_oob_set_polls(a->oob, &a->polls[n]);
	return need;
}

/* Sleeps until there is a connection, data or a signal. */
static void wait_for_events(struct acceptor *a, int longest_ms)
{
	int ms = a->out_of_descriptors ? EXHAUSTED_MS : a->count ? 1000 * AUTH_TIMEOUT_S : -1;
	if (longest_ms >= 0 && (ms < 0 || longest_ms < ms))
		ms = longest_ms;
	int n = set_polls(a);
	int ready = n < 0 ? poll(NULL, 0, EXHAUSTED_MS) : poll(a->polls, (nfds_t)n, ms);
	if (n < 0 || (ready > 0 && a->polls[0].revents))
		comm_wakeup_drain(&a->wakeup);
}

static void process_events(struct acceptor *a)
{
	/* The loop goes from the last entry down: removing an entry moves only entries already
	 * visited. */
	for (int i = a->count - 1; i >= 0; i--)
		progress_pending(a, i);
	comm_oob_progress(a->oob);
	atomic_fetch_add(&a->rounds, 1);
	accept_connections(a);
}

static void *acceptor_main(void *arg)
{
	struct acceptor *a = arg;
	while (!atomic_load(&a->leave)) {
		wait_for_events(a, -1);
		process_events(a);
	}
	/* Ranks that are about to receive the cause of the failure get a moment to do so. */
	int64_t until = clock_ns() + FINAL_NOTES_MS * 1000000LL, left;
	while (world_failed(a->w) && (a->count || comm_oob_is_connecting(a->oob)) &&
	       (left = until - clock_ns()) > 0) {
		wait_for_events(a, (int)(left / 1000000) + 1);
		process_events(a);
	}
	while (a->count)
		drop_pending(a, a->count - 1);
	comm_oob_free(a->oob);
	/* After this, nobody can believe that this rank still exists. */
	shutdown(a->w->listener, SHUT_RDWR);
	return NULL;
}

static void acceptor_free(struct acceptor *a)
{
	comm_wakeup_close(&a->wakeup);
	free(a->pending);
	free(a->polls);
	free(a);
}

static int start_thread(struct acceptor *a, struct err *e)
{
	int rc = thread_start(&a->thread, "acceptor", acceptor_main, a);
	return rc ? err_set(e, ERR_NOMEM, "cannot start the acceptor's thread: %s", strerror(rc))
		  : 0;
}

int comm_acceptor_open(struct world *w, struct err *e)
{
	struct acceptor *a = calloc(1, sizeof *a);
	if (!a)
		return err_set(e, ERR_NOMEM, "no memory for the acceptor");
	a->w = w;
	a->wakeup = (struct wakeup_pipe)WAKEUP_NONE;
	w->oob_peers = calloc((size_t)w->size, sizeof *w->oob_peers);
	a->oob = w->oob_peers ? comm_oob_new(w) : NULL;
	if (!a->oob)
		err_set(e, ERR_NOMEM, "no memory for the acceptor of %d ranks", w->size);
	if (a->oob && comm_wakeup_open(&a->wakeup, e) == 0 && start_thread(a, e) == 0) {
		pthread_mutex_lock(&w->lock); /* another thread may abort the world by now */
		w->acceptor = a;
		pthread_mutex_unlock(&w->lock);
		return 0;
	}
	comm_oob_free(a->oob);
	acceptor_free(a);
	return -1;
}

void comm_acceptor_close(struct world *w)
{
	struct acceptor *a = w->acceptor;
	if (a) {
		atomic_store(&a->leave, true);
		comm_wakeup_signal(a->wakeup.tx);
		pthread_join(a->thread, NULL);
		acceptor_free(a);
		w->acceptor = NULL;
	}
	while (w->arrivals) {
		struct arrival *next = w->arrivals->next;
		close(w->arrivals->fd); /* authenticated: the thread has removed all others */
		comm_records_free(w->arrivals->records);
		free(w->arrivals);
		w->arrivals = next;
	}
}

int comm_acceptor_take(struct world *w, uint64_t group, int from, int lane, bool *coming,
		       struct records **records)
{
	int fd = -1;
	*coming = false;
	pthread_mutex_lock(&w->lock);
	for (struct arrival **p = &w->arrivals; *p; p = &(*p)->next) {
		struct arrival *a = *p;
		if (a->group != group || a->from != from || a->lane != lane)
			continue;
		*coming = true;
		if (a->fd < 0)
			continue;
		fd = a->fd;
		*records = a->records;
		*p = a->next;
		free(a);
		break;
	}
	pthread_mutex_unlock(&w->lock);
	return fd;
}

uint32_t comm_acceptor_count_rounds(struct world *w)
{
	comm_wakeup_signal(w->acceptor->wakeup.tx);
	return atomic_load(&w->acceptor->rounds);
}

void comm_acceptor_interrupt(struct world *w)
{
	for (struct arrival *a = w->arrivals; a; a = a->next)
		if (a->fd >= 0)
			shutdown(a->fd, SHUT_RDWR);
	comm_acceptor_wake(w);
}

void comm_acceptor_wake(struct world *w)
{
	if (w->acceptor)
		comm_wakeup_signal(w->acceptor->wakeup.tx);
}
