/*
 * traffic — what each kind of group moves in a step of the job.
 *
 * Bytes of one operation, and how many of it a rank takes part in, one after the other; of the rank
 * with most to do. The cost model (plan/cost/) takes its sizes from here and charges as many of
 * each:
 *   tp     an all-reduce of [tokens, hidden] after attention and after the feed-forward part,
 *          forward and backward, and one for the embedding and one for the head; sequence
 *          parallelism gathers two inputs again in the backward pass, half an all-reduce each.
 *          Where a layer is recomputed, its forward pass's again, but for the last transfer
 *   cp     keys and values of the rank's tokens to the next rank, cp - 1 times; twice as much in
 *          the backward pass. Ranks that share a key-value head hold a copy each
 *   ep     the rows of the experts' tokens out and back, forward and backward
 *   dp     the gradients' all-reduce, fp32; under ZeRO half of it, and gathers of the parameters
 *          (for each micro-batch under ZeRO 3)
 *   pp     activations to the next stage, gradients back
 *   tie    the tied embedding's gradient
 */
#ifndef MUSTER_PLAN_PLACE_TRAFFIC_H
#define MUSTER_PLAN_PLACE_TRAFFIC_H

#include "plan/spec/job/job.h"
#include "plan/spec/model/model.h"
#include "plan/place/group_links.h"

/* Bytes of one transfer for a micro-batch. */
struct traffic_sizes {
	double stream; /* [tokens, hidden]: what tp sums */
	double keys;   /* a rank's keys and values, which go round cp's ring */
	double rows;   /* what a rank sends to experts */
	/* to the next stage; of one tp rank's own rows under sequence parallelism */
	double message;
};
struct traffic_sizes place_traffic_sizes_of(const struct job *job, const struct model_shape *m,
					    const struct layout *l);

enum { TRAFFIC_OPS = 2 };

struct traffic_op {
	double bytes, times;
};

struct traffic {
	struct traffic_op ops[GROUP_KINDS][TRAFFIC_OPS]; /* those that are not there have times 0 */
	/* share of its seconds that goes on behind computation, roughly: placement minds them
	 * less */
	double hidden[GROUP_KINDS];
};

/* stages: of the whole model; micros: micro-batches of the replica with most. */
void place_traffic_of(const struct job *job, const struct model_shape *m, const struct layout *l,
		      const struct stage *stages, int micros, struct traffic *out);
/* One operation of so many bytes of each kind. */
void place_traffic_even(double bytes, struct traffic *out);
/* Seconds that a group of this kind spends on it over such links. */
double place_traffic_seconds(const struct traffic *t, enum group_kind kind,
			     const struct group_links *s);
/* Bytes that a rank hands to its groups of this kind in a step. */
double place_traffic_bytes(const struct traffic *t, enum group_kind kind);

#endif
