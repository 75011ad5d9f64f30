#include "libcomm/wire/wire.h"

#include "libcomm/group.h"
#include "libcomm/shm/peer_memory.h"
#include "libcomm/tcp/acceptor.h"
#include "libcomm/wire/book.h"
#include "libcomm/wire/directory.h"
#include "libcomm/wire/neighbours.h"
#include "libcomm/wire/tree.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { SPINS = 300 };

struct wire {
	const struct comm_bootstrap *boot; /* until comm_wire_up() returns */
	const struct comm_options *opt;
	struct err no_network; /* why this rank cannot listen */
	struct wire_card own;
	struct wire_card near[COMM_NEAR]; /* w->peers points to them */
	struct neighbours neighbours;
	struct directory directory; /* of the leader */
	bool leads;
	struct comm handle; /* for comm_options.joining: it has the world, and nothing else */
};

/* --- This rank -------------------------------------------------------------------------------- */

/* A network on which this rank cannot listen matters only if a rank is on another host. */
static void listen_to_ranks(struct wire *n, struct world *w)
{
	char address[NET_ADDR_MAX];
	if (n->opt->backend && !strcmp(n->opt->backend, "shm"))
		return;
	if (net_local_address(n->opt->interface, n->opt->address_hint, address, &n->no_network) ==
	    0)
		net_listen(address, &w->listener, n->own.address, &n->no_network);
}

static void describe_self(struct wire *n, struct world *w, const struct wakeup_pipe *wakeup)
{
	const char *host = n->opt->host;
	n->own = (struct wire_card){ .pid = getpid(),
				     .directory = -1,
				     .wakeup = wakeup->tx,
				     .address = "-",
				     .sockets = w->sockets,
				     .algorithm = w->algorithm,
				     .force_tcp = w->force_tcp,
				     .integrity = (int)w->integrity };
	snprintf(n->own.host, sizeof n->own.host, "%s", host && *host ? host : "localhost");
	randombytes_buf(n->own.secret, sizeof n->own.secret);
	listen_to_ranks(n, w);
}

/* What connections to a rank need of its card. */
static void set_peer(struct world *w, int rank, const struct wire_card *card)
{
	struct peer *p = &w->peers[rank];
	p->host = card->host;
	p->secret = card->secret;
	p->address = card->address;
	p->pid = card->pid;
}

/* --- The network ------------------------------------------------------------------------------ */

/* Starts to accept the other hosts' ranks. */
static int join_network(struct wire *n, struct world *w, struct err *e)
{
	const char *backend = n->opt->backend;
	if (w->acceptor)
		return 0;
	if (backend && !strcmp(backend, "shm"))
		return err_set(e, ERR_USAGE,
			       "the ranks are on several hosts, which share no memory; "
			       "[network] backend = auto also uses the network");
	if (w->listener < 0)
		return err_set(e, ERR_NET, "%s; [network] interface chooses another network",
			       n->no_network.text);
	return comm_acceptor_open(w, e);
}

static int join_network_if_needed(struct wire *n, struct world *w, struct err *e)
{
	bool far = w->force_tcp && w->size > 1;
	for (int r = 0; r < w->size; r++)
		far |= w->peers[r].host_id != w->peers[w->rank].host_id;
	if (far)
		return join_network(n, w, e);
	if (w->listener >= 0)
		close(w->listener);
	w->listener = -1;
	return 0;
}

/* --- The first rank of a host ----------------------------------------------------------------- */

static int check_host(const struct wire *n, const struct world *w, int rank, const char *host,
		      struct err *e)
{
	return strcmp(host, n->own.host)
		       ? err_set(e, ERR_PROTO,
				 "rank %d is on host %s and rank %d on host %s, but the launcher "
				 "has them on one node",
				 rank, host, w->rank, n->own.host)
		       : 0;
}

/* This host's part of the book. */
static int describe_host(struct wire *n, struct world *w, int *memfd, struct buf *book,
			 struct err *e)
{
	const struct neighbours *at = &n->neighbours;
	unsigned char nonce[SEG_NONCE] = { 0 };
	struct wire_card card = { 0 };
	int rc = 0;
	if (!w->force_tcp && w->size > 1 && comm_segment_offer(memfd, nonce, e))
		return -1;
	comm_book_add_host(book, n->own.host, at->n_here, *memfd, nonce);
	for (int i = 0; i < at->n_here && !rc; i++) {
		rc = comm_card_get(n->boot, w, at->here[i], &card, e) ||
				     check_host(n, w, at->here[i], card.host, e)
			     ? -1
			     : 0;
		if (!rc)
			comm_book_add_rank(book, at->here[i], &card);
	}
	sodium_memzero(&card, sizeof card);
	if (rc)
		return -1;
	return buf_failed(book) ? err_set(e, ERR_NOMEM, "no memory for the ranks' addresses") : 0;
}

static int exchange_with_hosts(struct wire *n, struct world *w, struct buf *book, struct err *e)
{
	const struct neighbours *at = &n->neighbours;
	if (!at->n_near)
		return 0;
	for (int i = 0; i < at->n_near; i++) {
		if (comm_card_get(n->boot, w, at->near[i], &n->near[i], e))
			return -1;
		set_peer(w, at->near[i], &n->near[i]);
	}
	return join_network(n, w, e) ||
			       comm_tree_exchange(w, at->near, at->n_near, at->has_parent, book, e)
		       ? -1
		       : 0;
}

static int lead(struct wire *n, struct world *w, int *memfd, struct err *e)
{
	struct buf book = BUF_INIT;
	int rc = describe_host(n, w, memfd, &book, e) || exchange_with_hosts(n, w, &book, e) ||
				 comm_directory_publish(&n->directory, &book, e)
			 ? -1
			 : 0;
	if (book.data)
		sodium_memzero(book.data, book.len);
	buf_fini(&book);
	return rc;
}

/* --- The other ranks -------------------------------------------------------------------------- */

static int follow(struct wire *n, struct world *w, struct err *e)
{
	struct wire_card card;
	int leader = n->neighbours.leader;
	comm_directory_close(&n->directory); /* it was offered before the leader was known */
	if (comm_card_get(n->boot, w, leader, &card, e) || check_host(n, w, leader, card.host, e))
		return -1;
	int rc = comm_directory_open(&n->directory, card.pid, card.directory, card.nonce, e)
			 ? err_prefix(e, "rank %d", leader)
			 : comm_directory_await(&n->directory, w, leader, card.pid, e);
	sodium_memzero(&card, sizeof card);
	return rc;
}

/* --- All -------------------------------------------------------------------------------------- */

/* Opens pidfds of this host's processes, and chooses how long to poll before sleeping. */
static int watch_host_processes(struct world *w, struct err *e)
{
	const struct peer *me = &w->peers[w->rank];
	int here = 0;
	for (int r = 0; r < w->size; r++) {
		struct peer *p = &w->peers[r];
		if (p->host_id != me->host_id)
			continue;
		here++;
		if (r == w->rank || w->force_tcp)
			continue;
		p->pidfd = (int)syscall(SYS_pidfd_open, p->pid, 0);
		if (p->pidfd < 0)
			return err_errno(e, ERR_PEER,
					 "rank %d, process %d on host %s, cannot be watched "
					 "(ranks of one host must see each other's processes; "
					 "[network] backend = tcp does without)",
					 r, (int)p->pid, p->host);
		p->readable = comm_cma_probe(p->pid);
	}
	w->spins = here <= sysconf(_SC_NPROCESSORS_ONLN) ? SPINS : 0;
	return 0;
}

/* Publishes this rank's card, and waits until all ranks have. */
static int publish(struct wire *n, const struct world *w, struct err *e)
{
	const struct comm_place *place = n->boot->place;
	if ((!place || place->leader == w->rank) &&
	    comm_directory_offer(&n->directory, n->own.nonce, e))
		return -1;
	n->own.directory = n->directory.fd;
	return comm_card_put(n->boot, &n->own, e) || n->boot->fence(n->boot->arg, e) ? -1 : 0;
}

static int get_book(struct wire *n, struct world *w, int *memfd, struct err *e)
{
	if (publish(n, w, e) || comm_neighbours_find(n->boot, w, &n->neighbours, e))
		return -1;
	if (n->opt->joining)
		n->opt->joining(n->opt->joining_arg, &n->handle);
	n->leads = n->neighbours.leader == w->rank;
	return n->leads ? lead(n, w, memfd, e) : follow(n, w, e);
}

int comm_wire_up(struct world *w, const struct comm_bootstrap *boot, const struct comm_options *opt,
		 const struct wakeup_pipe *wakeup, struct card *cards, int *memfd, struct err *e)
{
	struct wire *n = calloc(1, sizeof *n);
	if (!n)
		return err_set(e, ERR_NOMEM, "no memory to wire up %d ranks", w->size);
	*memfd = -1;
	w->wire = n;
	n->boot = boot;
	n->opt = opt;
	n->directory = (struct directory)DIRECTORY_NONE;
	n->handle = (struct comm){ .world = w, .rank = w->rank, .size = w->size };
	describe_self(n, w, wakeup);
	set_peer(w, w->rank, &n->own);
	struct err why = ERR_INIT;
	if (get_book(n, w, memfd, &why) ||
	    comm_book_read(w, n->directory.book, n->directory.bytes, cards, &why) ||
	    watch_host_processes(w, &why) || join_network_if_needed(n, w, &why)) {
		if (n->leads)
			comm_directory_fail(&n->directory, why.text);
		if (w->acceptor) /* hosts wait for this one */
			comm_world_fail(w, &why);
		if (*memfd >= 0)
			close(*memfd);
		return err_set(e, why.code, "%s", why.text);
	}
	comm_neighbours_fini(&n->neighbours);
	return 0;
}

void comm_wire_settle(struct world *w)
{
	comm_directory_withdraw(&w->wire->directory);
}

void comm_wire_free(struct wire *n)
{
	if (!n)
		return;
	comm_neighbours_fini(&n->neighbours);
	comm_directory_close(&n->directory);
	sodium_memzero(n, sizeof *n);
	free(n);
}
