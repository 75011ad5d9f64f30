/*
 * hosts — which ranks of a group share a host, and how its reductions follow from that.
 *
 * All ranks compute the same values, so an algorithm may depend on them.
 */
#ifndef MUSTER_LIBCOMM_ALGORITHMS_HOSTS_H
#define MUSTER_LIBCOMM_ALGORITHMS_HOSTS_H

#include "base/err.h"
#include "libcomm/algorithms/tree.h"

struct owned_piece {              /* the bytes that a rank sums in one round of an operation */
	size_t slot, vector, len; /* offset in the slots; offset in the vector */
};

struct hosts {
	int n, here; /* number of hosts, which are numbered by their first ranks; this rank's
		      * host */
	int most;    /* ranks on the largest host */
	int *of;     /* by rank: its host */
	/* the ranks of host h, in rank order: ranks[begin[h]] to ranks[begin[h + 1] - 1] */
	int *begin, *ranks;
	int *leader;             /* by host: its first rank, which uses the network for it */
	int *number;             /* by rank: its index among the ranks of its host */
	struct tree_part *parts; /* of all hosts, in rank order */
	int part_count;
	int *part_begin, *part; /* parts of host h: parts[part[part_begin[h]]] to … */
	/* the most blocks of other hosts' ranks that one rank carries in an all_gather */
	int carried;
	/* How much of a vector each host's ranks sum: host h from share[ratio - 1][h] to [h + 1],
	 * in units of 1/share[…][n]. ratio: bytes of an accumulator divided by bytes of an
	 * element. */
	int *share[2];
	struct owned_piece *owned[2]; /* two rounds, by rank */
};

/* host[r]: any number that is equal for ranks of the same host. */
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

/* Where the part of a vector that a host's ranks sum begins; host = n: the end. */
size_t comm_hosts_share(const struct hosts *h, int ratio, size_t bytes, int host);

#endif
