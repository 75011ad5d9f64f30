/*
 * hosts — which ranks of a group share a host, and what follows from that for its reductions.
 *
 * All ranks come to the same, so it may steer an algorithm.
 */
#ifndef MUSTER_LIBCOMM_ALGORITHMS_HOSTS_H
#define MUSTER_LIBCOMM_ALGORITHMS_HOSTS_H

#include "base/err.h"
#include "libcomm/algorithms/tree.h"

struct owned_piece {              /* what a rank sums up in one round of an operation, in bytes */
	size_t slot, vector, len; /* where in the slots, where in the vector */
};

struct hosts {
	int n, here; /* hosts, numbered by their first ranks; this rank's */
	int most;    /* ranks on the largest one */
	int *of;     /* by rank: its host */
	/* host h has the ranks ranks[begin[h]] to ranks[begin[h + 1] - 1], in rank order */
	int *begin, *ranks;
	int *leader;             /* by host: its first rank, which speaks for it */
	int *number;             /* by rank: where it stands among those of its host */
	struct tree_part *parts; /* of all hosts, in rank order */
	int part_count;
	int *part_begin, *part; /* parts of host h: parts[part[part_begin[h]]] to … */
	/* blocks of other hosts' ranks that one rank carries in an all_gather, at most */
	int carried;
	/* How much of a vector each host's ranks sum up: host h from share[ratio - 1][h] to [h +
	 * 1], in share[…][n]ths. ratio: bytes of an accumulator by those of an element. */
	int *share[2];
	struct owned_piece *owned[2]; /* room for two rounds, by rank */
};

/* host[r]: any number that is the same for ranks of the same host. */
int comm_hosts_open(const int *host, int size, int rank, struct hosts **out, struct err *e);
void comm_hosts_close(struct hosts *h);

static inline int hosts_size(const struct hosts *h, int host)
{
	return h->begin[host + 1] - h->begin[host];
}

/* Where the i-th of n slices of `bytes` begins, in whole cache lines; i = n: the end. */
static inline size_t hosts_slice(size_t bytes, int n, int i)
{
	size_t lines = (bytes + 63) / 64, each = (lines + (size_t)n - 1) / (size_t)n * 64,
	       at = each * (size_t)i;
	return at < bytes ? at : bytes;
}

/* The same for the part of a vector that host's ranks sum up. */
size_t comm_hosts_share(const struct hosts *h, int ratio, size_t bytes, int host);

#endif
