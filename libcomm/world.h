/*
 * world — what all groups of one comm_open share: the other ranks, the first
 * error, the connections that have come in.
 *
 * The first error ends everything: comm_world_fail keeps it, marks every group's
 * shared line, shuts every socket down and wakes every sleeper, so that each
 * thread of this process, and each peer, sees it at its next look. Over the network the ranks
 * tell each other the error itself (side.h), so that all name the same cause.
 */
#ifndef MUSTER_LIBCOMM_WORLD_H
#define MUSTER_LIBCOMM_WORLD_H

#include "base/net.h"
#include "libcomm/p2p/wakeup.h"
#include "libcomm/comm.h"
#include "libcomm/shm/segment.h"

#include <pthread.h>

enum { SECRET_BYTES = 32 };

struct peer {
	char *host;
	char address[NET_ADDR_MAX];         /* "-": it does not listen */
	unsigned char secret[SECRET_BYTES]; /* who connects to it proves to know this */
	/* as this rank's in struct world, which must be equal */
	int sockets, algorithm, force_tcp, integrity;
	int host_id; /* equal: the same host */
	pid_t pid;
	int pidfd; /* of a rank on this host; else -1 */
	/* on this host, and the kernel lets this rank read its memory */
	bool readable;
};

struct shared_buffer;
struct oob_peer; /* what is known of a rank beside its data, see side.h */
struct arrival;  /* a connection that proved itself and waits for its group */
struct acceptor;

struct world {
	int rank, size;
	struct peer *peers;
	double timeout_s;
	bool force_tcp;
	int algorithm;                 /* forced: enum algorithm_name; -1: by the table */
	int spins;                     /* looks at a word before sleeping */
	int listener;                  /* -1: none */
	int sockets;                   /* connections of a link */
	enum comm_integrity integrity; /* of TCP connections */
	double silence_s;              /* after which a rank that does not answer at all is lost */
	struct acceptor *acceptor;     /* NULL: all ranks share this host */

	char *dump_dir; /* of the flight recorder, or NULL */
	/* held while the first error is told and dumped: later ones wait. Before `lock` */
	pthread_mutex_t dump_lock;
	char dump_error[300];    /* why the dump failed, */
	atomic_bool dump_failed; /* set after `note` */

	pthread_mutex_t lock;         /* of all that follows, and of the groups' link descriptors */
	pthread_cond_t peers_changed; /* of other ranks, or the first error */
	atomic_bool failed;           /* set after `first` */
	struct err first;
	atomic_bool cause_known;                   /* another rank's world has failed, with */
	char cause[sizeof((struct err *)0)->text]; /* these words */
	int cause_rank;             /* of this rank; this one's own when it failed first */
	struct oob_peer *oob_peers; /* by rank; NULL: no network is used */
	bool oob_wanted;            /* one of them has changed */
	struct comm *groups;
	struct arrival *arrivals;
	struct shared_buffer *shared_buffers; /* of comm_alloc */
	uint32_t shared_buffer_count;         /* ever made */
	_Atomic uint32_t shared_buffers_live;
};

/* Keeps the first error and ends every operation; the later ones are forgotten. */
void comm_world_fail(struct world *w, const struct err *why);
/* Keeps the first error of world rank `speaker`'s world. It ends this world when an operation
 * begins, or fails: one that is under way may have all it needs, as the speaker had done its part
 * before it failed. */
void comm_world_record_cause(struct world *w, int cause_rank, const char *cause);
/* Fails the world with what it was told, if it was. */
void comm_world_fail_with_cause(struct world *w);
static inline bool world_failed(const struct world *w)
{
	return atomic_load_explicit(&w->failed, memory_order_acquire);
}
/* The same, at the beginning of an operation. */
static inline bool world_check_failed(struct world *w)
{
	if (atomic_load_explicit(&w->cause_known, memory_order_relaxed))
		comm_world_fail_with_cause(w);
	return world_failed(w);
}
/* Copies the first error into e; returns -1. */
int comm_world_error(struct world *w, struct err *e);
/* The same with an operation's own error; says as well when the flight recorder could not be
 * written. */
int comm_world_report_error(struct world *w, const struct err *why, struct err *e);

/* What a rank tells the others so that they can reach its end of a group. */
struct card {
	int32_t memfd, wakeup;
	unsigned char nonce[SEG_NONCE];
};

/* Puts `mine`, fences, reads the others': w->peers and cards[size]. */
int comm_world_exchange_cards(struct world *w, const struct comm_bootstrap *boot,
			      const struct peer *mine, struct card *cards, struct err *e);
void comm_world_free(struct world *w);

#endif
