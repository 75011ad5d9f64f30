/*
 * traffic — what each kind of group moves in a step of the job.
 *
 * Bytes of one operation, and how many of it a rank takes part in, one after the other; of the rank with most to do. The formulas are those
 * of the cost model (plan/cost/):
 *   tp     an all-reduce of [tokens, hidden] after attention and after the feed-forward part, forward and backward; again where a
 *          layer is recomputed; sequence parallelism gathers two inputs again in the backward pass, half an all-reduce each
 *   cp     keys and values of the rank's tokens to the next rank, cp - 1 times; twice as much in the backward pass
 *   ep     the rows of the experts' tokens out and back, forward and backward
 *   dp     the gradients' all-reduce, fp32; under ZeRO half of it, and gathers of the parameters (for each micro-batch under ZeRO 3)
 *   pp     activations to the next stage, gradients back
 *   tie    the tied embedding's gradient
 */
#ifndef MUSTER_PLAN_PLACE_TRAFFIC_H
#define MUSTER_PLAN_PLACE_TRAFFIC_H

#include "plan/job/job.h"
#include "plan/model/model.h"
#include "plan/place/span.h"

enum { TRAFFIC_OPS = 3 };

struct traffic_op {
	double bytes, times;
};

struct traffic {
	struct traffic_op ops[GROUP_KINDS][TRAFFIC_OPS]; /* those that are not there have times 0 */
	double hidden[GROUP_KINDS]; /* share of its seconds that goes on behind computation, roughly: placement minds them less */
};

/* stages: of the whole model; micros: micro-batches of the replica with most. */
void traffic_of(const struct job *job, const struct model_shape *m, const struct layout *l, const struct stage *stages, int micros,
		struct traffic *out);
/* One operation of so many bytes of each kind. */
void traffic_even(double bytes, struct traffic *out);
/* Seconds that a group of this kind spends on it over such links. */
double traffic_seconds(const struct traffic *t, enum group_kind kind, const struct span *s);
/* Bytes that a rank hands to its groups of this kind in a step. */
double traffic_bytes(const struct traffic *t, enum group_kind kind);

#endif
