/*
 * world — what all groups of one comm_open share: the other ranks, the first error, and the
 * connections that have come in. For libcomm's own folders only.
 *
 * The first error ends everything. comm_world_fail keeps it, marks this rank's line in every
 * segment, shuts down every socket and wakes every sleeper, so that each thread of this process and
 * each peer sees it at its next check. Over the network the ranks send each other the error itself
 * (tcp/oob.h), so that all of them report the same cause.
 */
#ifndef MUSTER_LIBCOMM_WORLD_H
#define MUSTER_LIBCOMM_WORLD_H

#include "base/net.h"
#include "libcomm/p2p/wakeup.h"
#include "libcomm/comm.h"
#include "libcomm/shm/segment.h"

#include <pthread.h>

enum { SECRET_BYTES = 32 };

/* The texts and the secret belong to w->wire. While the world is wired up (wire/wire.h), those of some
 * ranks are not known yet, and are NULL. */
struct peer {
	const char *host;
	const char *address;         /* "-": it does not listen */
	const unsigned char *secret; /* proves a connection to it (tcp/handshake.h) */
	/* equal on ranks of the same host; below 0 and of no other rank: not known yet */
	int host_id;
	pid_t pid;
	int pidfd; /* of a rank on this host; otherwise -1 */
	/* it is on this host, and the kernel lets this rank read its memory */
	bool readable;
};

struct shared_buffer;
struct oob_peer; /* the state of a rank out of band, see tcp/oob.h */
struct arrival;  /* an authenticated connection that waits for its group */
struct acceptor;
struct wire;

struct world {
	int rank, size;
	struct peer *peers;
	struct wire *wire;        /* what the peers' addresses and secrets lie in */
	_Atomic double timeout_s; /* tests shorten it once all ranks have come */
	bool force_tcp;
	int algorithm;                 /* forced: enum algorithm_name; -1: by the table */
	int spins;                     /* checks of a word before sleeping */
	int listener;                  /* -1: none */
	int sockets;                   /* connections per endpoint */
	enum comm_integrity integrity; /* of TCP connections */
	double silence_s;              /* a rank that does not answer for so long is lost */
	struct acceptor *acceptor;     /* NULL: all ranks are on this host */

	char *dump_dir; /* for the flight recorder, or NULL */
	/* held while the first error is recorded and dumped; later errors wait. Taken before
	 * `lock` */
	pthread_mutex_t dump_lock;
	char dump_error[300];    /* why the dump failed */
	atomic_bool dump_failed; /* set after dump_error */

	pthread_mutex_t lock;         /* of all fields below, and of the groups' endpoint
				       * descriptors */
	pthread_cond_t peers_changed; /* state of other ranks, or the first error */
	atomic_bool failed;           /* set after `first` */
	struct err first;
	atomic_bool cause_known;                   /* the first error of some rank's world is
						    * known: */
	char cause[sizeof((struct err *)0)->text]; /* its text */
	int cause_rank;             /* whose it is; this rank's own if it failed first */
	struct oob_peer *oob_peers; /* by rank; NULL: no network is used */
	bool oob_wanted;            /* one of them has changed */
	struct comm *groups;
	struct arrival *arrivals;
	struct shared_buffer *shared_buffers; /* of comm_alloc */
	uint32_t shared_buffer_count;         /* created so far; also the source of their numbers */
	_Atomic uint32_t shared_buffers_live;
};

/* Keeps the first error and ends every operation. Later errors are dropped. */
void comm_world_fail(struct world *w, const struct err *why);
/* Keeps the first error of another rank's world. This world fails with it when an operation begins
 * or fails. An operation in progress may have all it needs, because that rank may have done its
 * part before it failed. */
void comm_world_record_cause(struct world *w, int cause_rank, const char *cause);
/* Fails the world with the recorded cause, if there is one. */
void comm_world_fail_with_cause(struct world *w);
static inline bool world_failed(const struct world *w)
{
	return atomic_load_explicit(&w->failed, memory_order_acquire);
}
/* Whether the world has failed, at the beginning of an operation: a recorded cause fails it. */
static inline bool world_check_failed(struct world *w)
{
	if (atomic_load_explicit(&w->cause_known, memory_order_relaxed))
		comm_world_fail_with_cause(w);
	return world_failed(w);
}
/* Copies the first error into e; returns -1. */
int comm_world_error(struct world *w, struct err *e);
/* Sets e to an operation's own error, adding why the flight recorder could not be written, if it
 * could not. Returns -1. */
int comm_world_report_error(struct world *w, const struct err *why, struct err *e);

/* How the ranks of a host reach a rank's part of a group. */
struct card {
	int32_t memfd, wakeup;
	unsigned char nonce[SEG_NONCE];
};

/* The host of a rank, for texts: "?" while it is not known. */
static inline const char *world_host(const struct world *w, int rank)
{
	return w->peers[rank].host ? w->peers[rank].host : "?";
}

void comm_world_free(struct world *w);

#endif
