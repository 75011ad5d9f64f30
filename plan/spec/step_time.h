/*
 * step_time — the predicted time of a step, by part (base/step_parts.h).
 */
#ifndef MUSTER_PLAN_SPEC_STEP_TIME_H
#define MUSTER_PLAN_SPEC_STEP_TIME_H

#include "base/step_parts.h"

/* Seconds of a step for the stage with the most work on the slowest replica. Each part has its name
 * and is also parts[STEP_PART_...]. What they contain in a prediction:
 *   compute    the forward and backward passes of the stage's micro-batches
 *   recompute  what the backward passes recompute
 *   tp         tensor-parallel all-reduces in the passes
 *   cp         the transfers of the ring of keys and values that attention does not hide
 *   ep         the transfers of tokens to experts and back
 *   pp         the bubble: waiting for other stages, and messages between stages
 *   dp         the gradients' all-reduce and ZeRO's gathers of parameters that the passes do not hide
 *   optimizer  the update
 * data, checkpoint and other are 0; plan/cost/train_time.h predicts the time of checkpoints. */
struct plan_time {
	union {
		struct {
#define STEP_TIME_MEMBER(with, ENUM, member, name, transfers, doc) double member;
			STEP_PARTS(STEP_TIME_MEMBER, )
#undef STEP_TIME_MEMBER
		};
		double parts[STEP_PART_COUNT];
	};
	double total; /* the sum of the parts */
};

#endif
