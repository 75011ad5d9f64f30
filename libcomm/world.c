#include "libcomm/world.h"

#include "libcomm/tcp/acceptor.h"
#include "libcomm/flight/dump.h"
#include "libcomm/group.h"
#include "libcomm/tcp/oob.h"
#include "libcomm/shm/shared_buffer.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char key[] = "muster.comm.1";

enum { HEX_NONCE = 2 * SEG_NONCE + 1, HEX_SECRET = 2 * SECRET_BYTES + 1 };

/* --- Exchange of cards ------------------------------------------------------------------------ */

/* Fields: pid memfd wakeup nonce secret address sockets algorithm force_tcp integrity host. The
 * host comes last, because it may contain any characters. */
static int put_self(const struct comm_bootstrap *boot, const struct peer *mine, const char *host,
		    const struct card *card, struct err *e)
{
	char nonce[HEX_NONCE], secret[HEX_SECRET],
		text[HEX_NONCE + HEX_SECRET + NET_ADDR_MAX + 400];
	sodium_bin2hex(nonce, sizeof nonce, card->nonce, SEG_NONCE);
	sodium_bin2hex(secret, sizeof secret, mine->secret, SECRET_BYTES);
	snprintf(text, sizeof text, "%d %d %d %s %s %s %d %d %d %d %.256s", (int)mine->pid,
		 (int)card->memfd, (int)card->wakeup, nonce, secret, mine->address, mine->sockets,
		 mine->algorithm, mine->force_tcp, mine->integrity,
		 host && *host ? host : "localhost");
	int rc = boot->put(boot->arg, key, text, e);
	sodium_memzero(secret, sizeof secret);
	sodium_memzero(text, sizeof text);
	return rc;
}

static int parse_peer(const char *text, struct peer *p, struct card *card)
{
	char nonce[HEX_NONCE], secret[HEX_SECRET];
	int pid, memfd, wakeup, host = 0;
	size_t a, b;
	_Static_assert(HEX_NONCE == 65 && HEX_SECRET == 65 && NET_ADDR_MAX == 80, "widths below");
	if (sscanf(text, "%d %d %d %64s %64s %79s %d %d %d %d %n", &pid, &memfd, &wakeup, nonce,
		   secret, p->address, &p->sockets, &p->algorithm, &p->force_tcp, &p->integrity,
		   &host) != 10 ||
	    !host || pid <= 0 ||
	    sodium_hex2bin(card->nonce, SEG_NONCE, nonce, strlen(nonce), NULL, &a, NULL) < 0 ||
	    a != SEG_NONCE ||
	    sodium_hex2bin(p->secret, SECRET_BYTES, secret, strlen(secret), NULL, &b, NULL) < 0 ||
	    b != SECRET_BYTES)
		return -1;
	p->pid = pid;
	card->memfd = memfd;
	card->wakeup = wakeup;
	p->host = strdup(text + host);
	return p->host ? 0 : -1;
}

static int get_peer(const struct comm_bootstrap *boot, int rank, struct peer *p, struct card *card,
		    struct err *e)
{
	char *text = NULL;
	if (boot->get(boot->arg, rank, key, &text, e) < 0)
		return err_prefix(e, "rank %d", rank);
	int rc = parse_peer(text, p, card);
	sodium_memzero(text, strlen(text));
	free(text);
	return rc < 0 ? err_set(e, ERR_PROTO,
				"rank %d published an invalid address; "
				"all ranks must run the same version of muster",
				rank)
		      : 0;
}

static int compare_hosts(const void *a, const void *b)
{
	const struct peer *const *x = a, *const *y = b;
	int order = strcmp((*x)->host, (*y)->host);
	return order ? order : (*x > *y) - (*x < *y);
}

/* Numbers the hosts, so that comparing them is cheap. */
static int number_hosts(struct world *w, struct err *e)
{
	struct peer **sorted = calloc((unsigned)w->size, sizeof(struct peer *));
	if (!sorted)
		return err_set(e, ERR_NOMEM, "no memory for %d ranks", w->size);
	for (int r = 0; r < w->size; r++)
		sorted[r] = &w->peers[r];
	qsort(sorted, (size_t)w->size, sizeof *sorted, compare_hosts);
	for (int i = 0, id = 0; i < w->size; i++) {
		id += i > 0 && strcmp(sorted[i - 1]->host, sorted[i]->host);
		sorted[i]->host_id = id;
	}
	free(sorted);
	return 0;
}

/* Settings that must be equal on all ranks. Otherwise, ranks would wait for each other forever, or
 * use one rank's data as another's. */
static int check_same(const struct world *w, int rank, struct err *e)
{
	const struct peer *p = &w->peers[rank];
	const char *other = p->sockets != w->sockets            ? "sockets"
			    : p->force_tcp != w->force_tcp      ? "backend"
			    : p->integrity != (int)w->integrity ? "integrity"
								: NULL;
	if (other)
		return err_set(e, ERR_USAGE,
			       "rank %d on host %s has other [network] %s than this one; it must "
			       "be the same on "
			       "all ranks",
			       rank, p->host, other);
	if (p->algorithm != w->algorithm)
		return err_set(e, ERR_USAGE,
			       "rank %d on host %s has another [network] algorithm than this one; "
			       "it must be "
			       "the same on all ranks",
			       rank, p->host);
	return 0;
}

int comm_world_exchange_cards(struct world *w, const struct comm_bootstrap *boot,
			      const struct peer *mine, const char *host, struct card *cards,
			      struct err *e)
{
	if (put_self(boot, mine, host, &cards[w->rank], e) || boot->fence(boot->arg, e))
		return -1;
	for (int r = 0; r < w->size; r++)
		if (get_peer(boot, r, &w->peers[r], &cards[r], e))
			return -1;
	for (int r = 0; r < w->size; r++)
		if (check_same(w, r, e))
			return -1;
	return number_hosts(w, e);
}

/* --- The first error --- */

/* Called under the lock. */
static void keep_cause(struct world *w, int cause_rank, const char *cause)
{
	if (w->cause_known)
		return;
	w->cause_rank = cause_rank;
	snprintf(w->cause, sizeof w->cause, "%s", cause);
	atomic_store(&w->cause_known, true);
}

/* Returns true if this was the first error. */
static bool end_operations(struct world *w, const struct err *why)
{
	pthread_mutex_lock(&w->lock);
	bool first = !world_failed(w);
	if (first) {
		keep_cause(w, w->rank, why->text);
		w->first = *why;
		atomic_store_explicit(&w->failed, true, memory_order_release);
		for (struct comm *c = w->groups; c; c = c->next)
			comm_group_interrupt(c, why);
		comm_acceptor_interrupt(w);
		pthread_cond_broadcast(&w->peers_changed);
	}
	pthread_mutex_unlock(&w->lock);
	return first;
}

void comm_world_fail(struct world *w, const struct err *why)
{
	pthread_mutex_lock(&w->dump_lock);
	if (end_operations(w, why))
		comm_dump_first_error(w);
	pthread_mutex_unlock(&w->dump_lock);
}

void comm_world_record_cause(struct world *w, int cause_rank, const char *cause)
{
	pthread_mutex_lock(&w->lock);
	keep_cause(w, cause_rank, cause);
	pthread_mutex_unlock(&w->lock);
}

void comm_world_fail_with_cause(struct world *w)
{
	struct err why = ERR_INIT;
	if (!atomic_load(&w->cause_known) || world_failed(w))
		return;
	/* Written once, before cause_known was set. */
	err_set(&why, ERR_PEER, "rank %d on host %s gave up: %s", w->cause_rank,
		w->peers[w->cause_rank].host, w->cause);
	comm_world_fail(w, &why);
}

int comm_world_report_error(struct world *w, const struct err *why, struct err *e)
{
	bool dump_failed = atomic_load_explicit(&w->dump_failed, memory_order_acquire) &&
			   !strstr(why->text, w->dump_error);
	return err_set(e, why->code, "%s%s%s", why->text, dump_failed ? "; " : "",
		       dump_failed ? w->dump_error : "");
}

int comm_world_error(struct world *w, struct err *e)
{
	/* Written once, before `failed` was set. */
	return comm_world_report_error(w, &w->first, e);
}

void comm_world_free(struct world *w)
{
	comm_acceptor_close(w);
	comm_shared_buffers_free(w);
	if (w->listener >= 0)
		close(w->listener);
	for (int r = 0; w->peers && r < w->size; r++) {
		free(w->peers[r].host);
		sodium_memzero(w->peers[r].secret, SECRET_BYTES);
		if (w->peers[r].pidfd >= 0)
			close(w->peers[r].pidfd);
	}
	free(w->peers);
	comm_dump_close(w);
	free(w->oob_peers);
	pthread_cond_destroy(&w->peers_changed);
	pthread_mutex_destroy(&w->lock);
	free(w);
}
