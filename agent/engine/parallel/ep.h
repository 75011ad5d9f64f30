/*
 * ep — expert parallelism: sends rows of tokens to the ranks that have their experts, and back.
 *
 * Each rank of a group has a run of consecutive experts of a layer (partition, plan/spec/layout.h).
 * A rank sorts its rows by expert. After the exchange each rank has, from every rank of the group, a
 * block of rows for each of its experts (GShard, Lepikhin et al., arXiv 2006.16668).
 *
 *     ep_plan         the ranks exchange how many rows each sends to each other
 *     ep_plan_blocks  the same on a device, without its host
 *     ep_dispatch     [sent, c] sorted by expert  →  [received, c] sorted by this rank's experts, and for one expert by source rank
 *     ep_return       the reverse
 *
 * One rank alone has all experts: both orders are the same, and nothing is copied.
 *
 * A group's library takes the counts of an exchange from the host. With ep_plan the host therefore
 * waits in each layer until the device has counted the rows. ep_plan_blocks avoids the wait: each rank
 * sends every expert a block of the same number of rows, padded with zeros, so that only the number of
 * blocks matters to the exchange. The counts go to the other ranks from device memory to device
 * memory, and an op makes the order in which the rows are read from the blocks. Padding is only on the
 * wire: experts multiply the same rows in the same order as after ep_plan, and the bits are the same.
 *
 * A block must hold the most rows that a rank can have for an expert. A capacity limits them
 * (model.capacity). Without one, all tokens of a micro-batch can choose the same expert, and blocks
 * would have as many rows as it has tokens: experts / top times the bytes and the memory. Such a job
 * plans on the host.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_EP_H
#define MUSTER_AGENT_ENGINE_PARALLEL_EP_H

#include "base/err.h"
#include "kernels/ops.h"
#include "libcomm/comm.h"

#include <stdint.h>

struct ep {
	struct comm *comm;   /* NULL: one rank; borrowed */
	struct comm *values; /* the same ranks, for numbers in the host's memory */
	int rank, size;
	enum comm_type type; /* of activations */
	int64_t experts;     /* of the model */
	int lo, hi;          /* this rank's */
	double seconds;      /* spent here; the reader resets it */
};

void ep_init(struct ep *p, struct comm *group, struct comm *values, int64_t experts,
	     enum comm_type type);

/* One layer's exchange of one micro-batch. */
struct ep_plan {
	int64_t sent, received; /* rows */
	size_t *out, *in;       /* [size] rows to and from each rank */
	/* [hi - lo] rows received for each of this rank's experts; not set by ep_plan_blocks */
	int64_t *per_expert;
	/* In the backend's memory: */
	int64_t *order;  /* [received] the i-th row by expert arrives at this place; -1: no row */
	int64_t *back;   /* [received] its inverse; -1: padding */
	int64_t *sorted; /* both, one after the other, in the host's memory */
	/* both in the device's memory, which has room for `room` rows; NULL: the backend is the
	 * host */
	int64_t *places;
	int64_t room;
};

/* A plan is zeroed before its first ep_plan, which grows its arrays. Accepts a zeroed plan. */
void ep_plan_close(struct backend *k, struct ep_plan *plan);
/* Collective. counts: [experts] this rank's rows for each, in the host's memory. */
int ep_plan(struct ep *p, struct backend *k, const int64_t *counts, struct ep_plan *plan,
	    struct err *e);

/* What ep_plan_blocks reads and sets in the backend's memory, which the caller owns. */
struct ep_blocks {
	int64_t rows;          /* of a block */
	const int64_t *counts; /* [experts] this rank's rows for each */
	/* To set: */
	int64_t *theirs;     /* [size, hi - lo] each rank's rows for each of this rank's experts */
	int64_t *per_expert; /* [hi - lo] their sum over the ranks */
	int64_t *order, *back; /* [size, hi - lo, rows] as in the plan, which borrows them */
};
/* Collective; only for a group, with the same `rows` on all ranks. Sent and received are the rows of
 * all blocks; the rows that exist are first in the order. */
int ep_plan_blocks(struct ep *p, struct backend *k, const struct ep_blocks *b, struct ep_plan *plan,
		   struct err *e);

/* Collective. c: elements of a row; arrival: scratch of [received, c]. One rank alone does not use
 * `arrival`, and may pass `sent` as `received`. */
int ep_dispatch(struct ep *p, struct backend *k, const struct ep_plan *plan, const void *sent,
		void *arrival, void *received, int64_t c, struct err *e);
int ep_return(struct ep *p, struct backend *k, const struct ep_plan *plan, const void *received,
	      void *arrival, void *sent, int64_t c, struct err *e);

#endif
