/*
 * ep — expert parallelism: sends rows of tokens to the ranks that have their experts, and back.
 *
 * Each rank of a group has a run of consecutive experts of a layer (partition, plan/spec/layout.h).
 * A rank sorts its rows by expert. After the exchange each rank has, from every rank of the group, a
 * block of rows for each of its experts (GShard, Lepikhin et al., arXiv 2006.16668).
 *
 *     ep_plan      the ranks exchange how many rows each sends to each other
 *     ep_dispatch  [sent, c] sorted by expert  →  [received, c] sorted by this rank's experts, and for one expert by source rank
 *     ep_return    the reverse
 *
 * One rank alone has all experts: both orders are the same, and nothing is copied.
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
	int64_t *per_expert;    /* [hi - lo] rows received for each of this rank's experts */
	/* In the backend's memory: */
	int64_t *order;  /* [received] the i-th row by expert arrives at this place */
	int64_t *back;   /* [received] its inverse */
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

/* Collective. c: elements of a row; arrival: scratch of [received, c]. One rank alone does not use
 * `arrival`, and may pass `sent` as `received`. */
int ep_dispatch(struct ep *p, struct backend *k, const struct ep_plan *plan, const void *sent,
		void *arrival, void *received, int64_t c, struct err *e);
int ep_return(struct ep *p, struct backend *k, const struct ep_plan *plan, const void *received,
	      void *arrival, void *sent, int64_t c, struct err *e);

#endif
