/*
 * step_time — the parts of a step's time.
 */
#ifndef MUSTER_PLAN_SPEC_STEP_TIME_H
#define MUSTER_PLAN_SPEC_STEP_TIME_H

/* Predicted seconds of a step, by part, for the stage with the most work on the slowest replica.
 * total is their sum. */
struct plan_time {
	double compute;   /* forward and backward of its micro-batches */
	double recompute; /* what the backward passes recompute */
	double tp;        /* tensor-parallel all-reduces in them */
	/* the ring of keys and values that attention does not hide; tokens to experts and back */
	double cp, ep;
	double bubble; /* waiting for other stages, messages between stages */
	/* the gradients' all-reduce and ZeRO's gathers of parameters that the passes do not hide */
	double dp;
	double optimizer;
	double total;
};

#endif
