#include "libcomm/group.h"

#include "base/clock.h"
#include "libcomm/async.h"
#include "libcomm/p2p/exchange.h"
#include "libcomm/shm/futex.h"
#include "libcomm/device/device_group.h"
#include "libcomm/algorithms/hosts.h"
#include "libcomm/shm/peer_memory.h"
#include "libcomm/flight/recorder.h"

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* A question to the kernel is a system call: if every rank of a large group asked about every other one,
 * they would do nothing else. */
enum { ASKED_AT_ONCE = 16 };

static bool is_same_host(const struct world *w, int a, int b)
{
	return !w->force_tcp && w->peers[a].host_id == w->peers[b].host_id;
}

static int compare_ints(const void *a, const void *b)
{
	const int *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* The backend of a group with these members. */
static int choose_backend(const struct world *w, const int *members, int size,
			  enum group_backend *out, struct err *e)
{
	int *hosts = malloc((size_t)size * sizeof *hosts);
	if (!hosts)
		return err_set(e, ERR_NOMEM, "no memory for a group of %d ranks", size);
	for (int r = 0; r < size; r++)
		hosts[r] = w->force_tcp ? members[r] : w->peers[members[r]].host_id;
	qsort(hosts, (size_t)size, sizeof *hosts, compare_ints);
	bool near = false, far = false;
	for (int r = 1; r < size; r++) {
		near |= hosts[r] == hosts[r - 1];
		far |= hosts[r] != hosts[r - 1];
	}
	free(hosts);
	*out = !far ? GROUP_SHM : near ? GROUP_HYBRID : GROUP_TCP;
	return 0;
}

/* The first rank on `rank`'s host offers the memory. */
static int find_leader(const struct world *w, const int *members, int size, int rank)
{
	for (int r = 0; r < size && r != rank; r++)
		if (is_same_host(w, members[r], members[rank]))
			return r;
	return rank;
}

static struct comm *new_group(const struct group_spec *s, struct err *e)
{
	struct comm *c = calloc(1, sizeof *c);
	if (!c) {
		struct wakeup_pipe wakeup = s->wakeup;
		comm_wakeup_close(&wakeup);
		if (s->memfd >= 0)
			close(s->memfd);
		err_set(e, ERR_NOMEM, "no memory for a group");
		return NULL;
	}
	size_t n = (size_t)s->size;
	c->world = s->world;
	c->id = s->id;
	c->wait.accused = -1;
	c->wait.waits_for = -1;
	c->wait.look = s->size > ASKED_AT_ONCE ? s->rank : 0;
	c->rank = s->rank;
	c->size = s->size;
	c->memfd = s->memfd;
	c->wakeup = s->wakeup;
	snprintf(c->name, sizeof c->name, "%s", s->name);
	c->members = calloc(n, sizeof *c->members);
	c->local = calloc(n, sizeof *c->local);
	c->wait.absent = calloc(n, sizeof *c->wait.absent);
	c->off = calloc(n + 1, sizeof *c->off);
	c->off2 = calloc(n + 1, sizeof *c->off2);
	if (c->members && c->local && c->wait.absent && c->off && c->off2)
		return c;
	err_set(e, ERR_NOMEM, "no memory for a group of %d ranks", s->size);
	comm_group_free(c);
	return NULL;
}

/* Numbers the ranks of this host; returns how many there are. */
static int number_locals(struct comm *c, const struct group_spec *s)
{
	int n = 0;
	for (int r = 0; r < c->size; r++) {
		c->members[r] = s->members[r];
		c->local[r] = is_same_host(c->world, s->members[r], s->members[c->rank]) ? n++ : -1;
	}
	return n;
}

static void add_to_world(struct comm *c)
{
	struct world *w = c->world;
	pthread_mutex_lock(&w->lock);
	c->next = w->groups;
	w->groups = c;
	if (world_failed(w))
		comm_group_interrupt(c, &w->first);
	pthread_mutex_unlock(&w->lock);
}

static void remove_from_world(struct comm *c)
{
	struct world *w = c->world;
	pthread_mutex_lock(&w->lock);
	for (struct comm **p = &w->groups; *p; p = &(*p)->next)
		if (*p == c) {
			*p = c->next;
			break;
		}
	pthread_mutex_unlock(&w->lock);
}

/* Closes the resources that the group does not need after all. */
static void drop_unused(struct comm *c, int leader, int locals)
{
	if (c->backend == GROUP_SHM)
		comm_wakeup_close(&c->wakeup);
	if ((locals == 1 || leader != c->rank) && c->memfd >= 0) {
		close(c->memfd);
		c->memfd = -1;
	}
}

static int open_hosts(struct comm *c, struct err *e)
{
	int *host = malloc((size_t)c->size * sizeof *host);
	if (!host)
		return err_set(e, ERR_NOMEM, "no memory for a group of %d ranks", c->size);
	for (int r = 0; r < c->size; r++)
		host[r] = c->world->peers[c->members[r]].host_id;
	int rc = comm_hosts_open(host, c->size, c->rank, &c->hosts, e);
	free(host);
	return rc;
}

/* A group of this host's ranks, which pass steps and share slots while the whole group exchanges
 * messages. */
static int open_node_group(struct comm *c, int locals, struct err *e)
{
	const struct hosts *h = c->hosts;
	int *members = malloc((size_t)locals * sizeof *members);
	if (!members)
		return err_set(e, ERR_NOMEM, "no memory for a group of %d ranks", locals);
	for (int i = 0; i < locals; i++)
		members[i] = c->members[h->ranks[h->begin[h->here] + i]];
	struct group_spec s = { .world = c->world,
				.id = c->id,
				.name = c->name,
				.members = members,
				.rank = c->local[c->rank],
				.size = locals,
				.memfd = -1,
				.wakeup = WAKEUP_NONE };
	struct comm *in = new_group(&s, e);
	if (in) {
		in->backend = GROUP_SHM;
		in->parent_group = c;
		in->segment = c->segment;
		number_locals(in, &s);
		comm_peer_memory_open(in);
		c->node_group = in;
	}
	free(members);
	return in ? 0 : -1;
}

static int attach_group(struct comm *c, const struct group_spec *s, struct err *e)
{
	if (choose_backend(c->world, s->members, s->size, &c->backend, e) < 0)
		return -1;
	int locals = number_locals(c, s);
	int leader = find_leader(c->world, s->members, s->size, s->rank);
	const struct card *card = &s->cards[leader];
	char who[160];
	if (locals > 1 && comm_segment_attach(&c->segment, c->world->peers[s->members[leader]].pid,
					      card->memfd, card->nonce, locals, e))
		return err_prefix(e, "%s", comm_group_rank_text(c, leader, who));
	drop_unused(c, leader, locals);
	comm_peer_memory_open(c);
	if (c->backend == GROUP_HYBRID &&
	    (open_hosts(c, e) || (locals > 1 && open_node_group(c, locals, e))))
		return -1;
	return comm_endpoints_open(c, s->cards, e);
}

int comm_group_open(const struct group_spec *s, struct comm **out, struct err *e)
{
	struct comm *c = new_group(s, e);
	if (!c)
		return -1;
	if (attach_group(c, s, e)) {
		comm_group_free(c);
		return -1;
	}
	if (comm_recorder_open(c->size, &c->recorder, e)) {
		comm_group_free(c);
		return -1;
	}
	add_to_world(c);
	*out = c;
	return 0;
}

void comm_group_free(struct comm *c)
{
	comm_worker_close(c);
	comm_device_group_close(c);
	remove_from_world(c);
	if (c->node_group)
		comm_group_free(c->node_group);
	if (c->segment.head && !c->parent_group) {
		struct seg_line *me = &c->segment.line[c->local[c->rank]];
		uint32_t here = SEG_HERE;
		atomic_compare_exchange_strong(&me->state, &here, SEG_LEFT);
		comm_segment_wake(&c->segment);
	}
	comm_endpoints_close(c);
	comm_peer_memory_close(c);
	if (!c->parent_group)
		comm_segment_detach(&c->segment);
	comm_hosts_close(c->hosts);
	comm_wakeup_close(&c->wakeup);
	if (c->memfd >= 0)
		close(c->memfd);
	comm_recorder_close(c->recorder);
	free(c->members);
	free(c->local);
	free(c->wait.absent);
	free(c->off);
	free(c->off2);
	free(c->exchange.polls);
	free(c->exchange.transfers);
	free(c->scratch);
	free(c);
}

void comm_group_interrupt(struct comm *c, const struct err *why)
{
	if (c->segment.head) {
		struct seg_line *me = &c->segment.line[c->local[c->rank]];
		snprintf(me->reason, sizeof me->reason, "%.*s", SEG_REASON - 1, why->text);
		atomic_store_explicit(&me->state, SEG_FAILED, memory_order_release);
		/* Makes this rank's own threads and its peers check the world. */
		for (int i = 0; i < c->segment.n; i++) {
			atomic_fetch_add(&c->segment.line[i].doorbell, 1);
			futex_wake_all(&c->segment.line[i].doorbell);
		}
		comm_segment_wake(&c->segment);
	}
	comm_endpoints_interrupt(c);
	comm_device_group_interrupt(c);
	if (c->wakeup.tx >= 0)
		comm_wakeup_signal(c->wakeup.tx);
}

/* --- Waiting for other ranks ------------------------------------------------------------------ */

const char *comm_group_rank_text(const struct comm *c, int rank, char out[160])
{
	int known_as = c->parent_group
			       ? c->parent_group->hosts
					 ->ranks[c->parent_group->hosts
							 ->begin[c->parent_group->hosts->here] +
						 rank]
			       : rank;
	snprintf(out, 160, "rank %d (world rank %d, host %.80s)", known_as, c->members[rank],
		 c->world->peers[c->members[rank]].host);
	return out;
}

void *comm_group_scratch(struct comm *c, size_t size, struct err *e)
{
	if (c->scratch_size < size) {
		void *more = aligned_alloc(64, (size + 63) & ~(size_t)63);
		if (!more) {
			err_set(e, ERR_NOMEM, "no memory for %zu bytes of working space", size);
			return NULL;
		}
		free(c->scratch);
		c->scratch = more;
		c->scratch_size = size;
	}
	return c->scratch;
}

int comm_group_check_rank(struct comm *c, int rank, bool thorough, struct err *e)
{
	char who[160];
	struct seg_line *line = &c->segment.line[c->local[rank]];
	switch (atomic_load_explicit(&line->state, memory_order_acquire)) {
	case SEG_FAILED:
		return err_set(e, ERR_PEER, "%s gave up: %.*s", comm_group_rank_text(c, rank, who),
			       SEG_REASON, line->reason);
	case SEG_LEFT:
		return err_set(e, ERR_PEER, "%s has closed the group",
			       comm_group_rank_text(c, rank, who));
	}
	struct pollfd p = { .fd = c->world->peers[c->members[rank]].pidfd, .events = POLLIN };
	if (thorough && p.fd >= 0 && poll(&p, 1, 0) == 1)
		return err_set(e, ERR_PEER, "%s has died", comm_group_rank_text(c, rank, who));
	return 0;
}

static int report_timeout(struct comm *c, struct err *e)
{
	char who[160], list[600] = "";
	int absent = 0;
	for (int r = 0; r < c->size; r++) {
		if (!c->wait.absent[r] || absent++ >= 4)
			continue;
		size_t used = strlen(list);
		snprintf(list + used, sizeof list - used, "%s%s", used ? ", " : "",
			 comm_group_rank_text(c, r, who));
	}
	if (!absent)
		return 0; /* the last rank came in the meantime */
	c->wait.accused = c->wait.waits_for;
	return err_set(e, ERR_TIMEOUT, "%s%s did not join within %g s", list,
		       absent > 4 ? " and others" : "", c->world->timeout_s);
}

/* The world rank of the first rank that the operation waits for; -1: none. */
static int find_absent(const struct comm *c)
{
	for (int r = 0; r < c->size; r++)
		if (c->wait.absent[r] && r != c->rank)
			return c->members[r];
	return -1;
}

/* Whether an absent rank of this host seems to be gone: then the next call begins with the same ranks. */
static bool find_suspect(struct comm *c, bool thorough, struct err *e)
{
	int asked = 0, next = c->wait.look;
	for (int i = 0; i < c->size; i++) {
		int r = (c->wait.look + i) % c->size;
		if (!c->wait.absent[r] || r == c->rank || c->local[r] < 0)
			continue;
		bool ask = thorough && asked < ASKED_AT_ONCE;
		if (comm_group_check_rank(c, r, ask, e) < 0)
			return true;
		asked += ask;
		if (asked == ASKED_AT_ONCE && ask)
			next = (r + 1) % c->size;
	}
	c->wait.look = next;
	return false;
}

int comm_group_check_wait(struct comm *c, bool thorough, struct err *e)
{
	atomic_store_explicit(&c->wait.waits_for, find_absent(c), memory_order_relaxed);
	if (world_failed(c->world))
		return comm_world_error(c->world, e);
	bool looked_twice = c->wait.suspect;
	c->wait.suspect = c->segment.head && find_suspect(c, thorough || looked_twice, e);
	if (c->wait.suspect)
		return looked_twice ? -1 : 0;
	if (c->wait.deadline && clock_ns() >= c->wait.deadline + c->wait.grace)
		return report_timeout(c, e);
	return 0;
}

int64_t comm_group_sleep_ns(struct comm *c)
{
	if (c->world->timeout_s <= 0)
		return SLICE_NS;
	int64_t now = clock_ns();
	if (!c->wait.deadline)
		c->wait.deadline = now + (int64_t)(c->world->timeout_s * 1e9);
	int64_t left = c->wait.deadline + c->wait.grace - now;
	return left < 0 ? 0 : left < SLICE_NS ? left : SLICE_NS;
}
