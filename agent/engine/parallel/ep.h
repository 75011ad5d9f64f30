/*
 * ep — expert parallelism: rows of tokens to the ranks that have their experts, and back.
 *
 * The experts of a layer are dealt to the ranks of a group in runs (partition, plan/spec/layout.h).
 * A rank sorts its rows by expert; each rank then has, of every rank of the group, a block of rows
 * for each of its experts (GShard, Lepikhin et al., arXiv 2006.16668).
 *
 *     ep_plan      how many rows go and come: every rank tells every other one
 *     ep_dispatch  [sent, c] sorted by expert  →  [received, c] sorted by this rank's experts, within one by source rank
 *     ep_return    the way back
 *
 * One rank alone has all experts: the two orders are the same and nothing is copied.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_EP_H
#define MUSTER_AGENT_ENGINE_PARALLEL_EP_H

#include "base/err.h"
#include "kernels/ops.h"
#include "libcomm/comm.h"

#include <stdint.h>

struct ep {
	struct comm *comm;   /* NULL: alone; borrowed */
	struct comm *values; /* the same ranks, for numbers in the host's memory */
	int rank, size;
	enum comm_type type; /* of activations */
	int64_t experts;     /* of the model */
	int lo, hi;          /* this rank's */
	double seconds;      /* spent in here; the reader sets it back */
};

void ep_init(struct ep *p, struct comm *group, struct comm *values, int64_t experts,
	     enum comm_type type);

/* One layer's exchange of one micro-batch. */
struct ep_plan {
	int64_t sent, received; /* rows */
	size_t *out, *in;       /* [size] rows to and from each rank */
	int64_t *per_expert;    /* [hi - lo] rows received for each of this rank's experts */
	/* In the backend's memory: */
	int64_t *order;  /* [received] the place in arrival of the i-th row by expert */
	int64_t *back;   /* [received] its inverse */
	int64_t *sorted; /* both, one behind the other, in the host's */
	/* and in the device's, which has room for so many rows; NULL: the host's serve */
	int64_t *places;
	int64_t room;
};

/* A plan begins as zeros; its arrays grow in ep_plan. Takes what was never opened. */
void ep_plan_close(struct backend *k, struct ep_plan *plan);
/* Collective. counts [experts], the host's: this rank's rows for each. */
int ep_plan(struct ep *p, struct backend *k, const int64_t *counts, struct ep_plan *plan,
	    struct err *e);

/* c elements a row; arrival: [received, c] of scratch, not used when alone. When alone
 * `received` may be `sent` itself. */
int ep_dispatch(struct ep *p, struct backend *k, const struct ep_plan *plan, const void *sent,
		void *arrival, void *received, int64_t c, struct err *e);
int ep_return(struct ep *p, struct backend *k, const struct ep_plan *plan, const void *received,
	      void *arrival, void *sent, int64_t c, struct err *e);

#endif
