/*
 * time — the parts of a step's time.
 */
#ifndef MUSTER_PLAN_SPEC_TIME_H
#define MUSTER_PLAN_SPEC_TIME_H

/* Predicted seconds of a step, by part: those of the stage with most to do of the slowest
 * replica; total is their sum. */
struct plan_time {
	double compute;   /* forward and backward of its micro-batches */
	double recompute; /* what the backward passes do again */
	double tp;        /* tensor-parallel sums in them */
	/* the ring of keys and values, as far as attention does not hide it; tokens to experts
	 * and back */
	double cp, ep;
	double bubble; /* waiting for other stages, messages between stages */
	/* sums of gradients and ZeRO's gathers of parameters, as far as the passes do not hide
	 * them */
	double dp;
	double optimizer;
	double total;
};

#endif
