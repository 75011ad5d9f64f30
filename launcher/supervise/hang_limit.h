/*
 * hang_limit — after how many seconds without progress a run counts as hung, learned from the run.
 *
 * A gap is the time between two moves of any rank. It counts for the phase of the rank whose move
 * ended it, because the others waited for that one. Of each step only the longest gap of each phase
 * counts, so that many ranks, which move at nearly the same time, do not hide it. The limit of a
 * phase is
 *
 *     HANG_FACTOR × the 99th percentile of the gaps in the last HANG_STEPS steps that had the phase,
 *
 * but at least `floor` and at most `cap` seconds ([restart] hang_floor and hang_timeout). A phase
 * that was in fewer than HANG_STEPS_MIN steps, such as an evaluation that has run once, has the
 * limit `cap`. After each hang that a learned limit has found, the floor doubles: if the run was
 * only slow, the next such delay ends it no more.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_HANG_LIMIT_H
#define MUSTER_LAUNCHER_SUPERVISE_HANG_LIMIT_H

enum { HANG_PHASES = 32, HANG_PHASE = 32, HANG_STEPS = 256, HANG_STEPS_MIN = 30, HANG_FACTOR = 20 };

struct hang_phase {
	char name[HANG_PHASE];
	float gaps[HANG_STEPS]; /* seconds: the longest of each step; a ring */
	long n;                 /* steps so far that had the phase */
	float longest;          /* of this step; 0: it has not had the phase */
	float high;             /* the percentile; 0: too few steps */
};

struct hang_limit {
	struct hang_phase phases[HANG_PHASES]; /* those with a name */
	double floor;                          /* 0: not doubled yet */
};

void supervise_hang_note_gap(struct hang_limit *h, const char *phase, double seconds);
/* A step is finished. */
void supervise_hang_note_step(struct hang_limit *h);
/* cap: 0: nothing ever counts as hung, and the limit is 0. */
double supervise_hang_limit_of(const struct hang_limit *h, const char *phase, double floor,
			       double cap);
/* A hang was found with this limit. */
void supervise_hang_note_hang(struct hang_limit *h, double floor, double limit, double cap);

#endif
