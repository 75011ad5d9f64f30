/*
 * copy_pace — how often copies in memory are taken: not more often than they cost a given share of the
 * training time, and not more often than they are worth. Pure arithmetic: the caller measures.
 *
 * A copy costs what training waits for, and what the steps behind which it is completed take longer than
 * others. Both are means over the last copies, because single steps vary.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_COPY_PACE_H
#define MUSTER_AGENT_ENGINE_TRAIN_COPY_PACE_H

#include <stdbool.h>
#include <stdint.h>

struct copy_pace {
	double step_s;          /* of steps without a copy in progress; 0: not measured yet */
	double stall_s, slow_s; /* of a copy: what training waits for, and what steps are slower */
	double slower;          /* of the copy in progress so far */
	int copies;             /* so many are in the means */
};

/* A step took so long. copying: a copy was in progress in some part of it. */
void train_copy_pace_step(struct copy_pace *p, double seconds, bool copying);
/* Training has waited so long for a copy, which is now in progress. */
void train_copy_pace_take(struct copy_pace *p, double stall_s);
/* The fewest steps from one copy to the next so that copies take at most `share` of the time; at least
 * 1. 0: no step without a copy has been measured yet. */
int64_t train_copy_pace_every(const struct copy_pace *p, double share);

/* The steps from one copy to the next with which the least time is lost: by copies, and by the steps that a
 * fault repeats, one in `mtbf` seconds (INFINITY: none is expected). Young's formula, as in
 * plan/cost/train_time.h. So early in a run few steps have been done that could be lost, and so little is
 * known, that it is at most a tenth of those `done` since the run began or continued. 0: as above. */
int64_t train_copy_pace_worth(const struct copy_pace *p, double mtbf, int64_t done);

#endif
