/*
 * traffic — what each kind of group transfers in one step of the job.
 *
 * It gives the bytes of one operation and how many such operations a rank takes part in, one after
 * the other, for the rank with the most traffic. The cost model (plan/cost/) uses these sizes and
 * charges the same numbers of operations:
 *   tp     an all-reduce of [tokens, hidden] after attention and after the feed-forward part, both
 *          forward and backward, and one each for the embedding and the head. Sequence parallelism
 *          gathers two inputs again in the backward pass, which is half an all-reduce each. A layer
 *          that is recomputed repeats the transfers of its forward pass except the last one
 *   cp     keys and values of the rank's tokens to the next rank, cp - 1 times; twice as much in
 *          the backward pass. Ranks that share a key-value head hold a copy each
 *   ep     the rows of the experts' tokens, out and back, forward and backward
 *   dp     the all-reduce of the gradients in fp32; under ZeRO half of it, and gathers of the
 *          parameters (for each micro-batch under ZeRO 3)
 *   pp     activations to the next stage, gradients back
 *   tie    the gradient of the tied embedding
 */
#ifndef MUSTER_PLAN_PLACE_TRAFFIC_H
#define MUSTER_PLAN_PLACE_TRAFFIC_H

#include "plan/spec/job/job.h"
#include "plan/spec/model/model.h"
#include "plan/place/group_links.h"

/* Bytes of one transfer for a micro-batch. */
struct traffic_sizes {
	double stream; /* [tokens, hidden], which tp all-reduces */
	double keys;   /* a rank's keys and values, which go round the cp ring */
	double rows;   /* the rows that a rank sends to experts, with their padding */
	/* activations to the next stage; under sequence parallelism only the tp rank's own rows */
	double message;
};
struct traffic_sizes place_traffic_sizes_of(const struct job *job, const struct model_shape *m,
					    const struct layout *l);

enum { TRAFFIC_OPS = 2 };

struct traffic_op {
	double bytes, times;
};

struct traffic {
	struct traffic_op ops[GROUP_KINDS][TRAFFIC_OPS]; /* unused ones have times 0 */
	/* rough share of its seconds that computation hides; placement gives it less weight */
	double hidden[GROUP_KINDS];
};

/* stages: of the whole model. micros: the most micro-batches of any replica. */
void place_traffic_of(const struct job *job, const struct model_shape *m, const struct layout *l,
		      const struct stage *stages, int micros, struct traffic *out);
/* What a Transformer usually transfers, for a program of which only the degrees are known. */
void place_traffic_usual(const struct layout *l, struct traffic *out);
/* One operation of `bytes` bytes for each kind. */
void place_traffic_even(double bytes, struct traffic *out);
/* Seconds that a group of this kind spends on its traffic over these links. */
double place_traffic_seconds(const struct traffic *t, enum group_kind kind,
			     const struct group_links *s);
/* Bytes that a rank passes to its groups of this kind in one step. */
double place_traffic_bytes(const struct traffic *t, enum group_kind kind);

#endif
