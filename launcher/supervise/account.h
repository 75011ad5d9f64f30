/*
 * account — where the time of all ranks goes: each microsecond of each of them, and of each device that
 * no rank uses, is in exactly one part (base/time_parts.h).
 *
 * At any moment a rank accrues to one part: to TIME_START or TIME_RESTART until it is ready, then to
 * TIME_UNREPORTED, and to TIME_STOP after its last step, or to TIME_RESTART if another generation
 * follows. A rank's report moves time from
 * TIME_UNREPORTED to the parts of its steps, never more than has passed since the rank was ready. So
 * the parts always add up to the time of all ranks and idle devices, whatever the ranks report.
 *
 * A report is about the first `step` steps of the rank. When every rank has reported beyond a step, the
 * account
 *   - moves from the communication of each rank to TIME_SLOWEST the time in which it waited for the rank
 *     of its group (its pipeline stage) whose own work took longest: the difference of their data,
 *     compute and recomputation. It sees what is slow over such a window, not from step to step.
 *   - makes a mark (marks.h) at that step, so that a restart from an earlier step knows what is lost.
 * When a generation is over, what its ranks have not reported is split by the time at which the last
 * reported step ended: before it, a rank that died trained, and nobody will report it; after it, the
 * step in flight is TIME_LOST, or for a rank that has finished what follows its last step.
 *
 * Time is in microseconds of a monotonic clock that the caller names; it may not fall. Only the files of
 * this room include this header.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_ACCOUNT_H
#define MUSTER_LAUNCHER_SUPERVISE_ACCOUNT_H

#include "base/err.h"
#include "base/time_parts.h"
#include "launcher/supervise/marks.h"

#include <stdbool.h>
#include <stdint.h>

/* What a rank has reported: sums since it was ready in this generation. */
struct account_report {
	int64_t step; /* finished steps */
	int64_t peak_bytes;
	int64_t us[TIME_REPORTED]; /* 0: TIME_STEP */
};

struct account_rank {
	enum time_part at;          /* the part that it accrues to */
	bool ready;                 /* in this generation, and its reports are not settled */
	bool ended, finished;       /* its training is over; it did all of it */
	enum time_part after;       /* of a rank that has finished: what it does since */
	bool fresh;                 /* it has reported beyond the last mark */
	int group;                  /* ranks of one group do the same work */
	int64_t ready_at, ended_at; /* times */
	int64_t booked; /* sum of last.us; what was reported beyond its time is left out */
	struct account_report last; /* its last report, as far as it was booked */
	struct account_report mark; /* of that what belongs to the steps up to the last mark */
};

struct account {
	int64_t now;  /* the time up to which the parts reach */
	int64_t wall; /* microseconds of every `muster run` in the folder */
	int64_t parts[TIME_PART_COUNT];
	/* how many ranks, or idle devices, accrue to each part now */
	int64_t accrue[TIME_PART_COUNT];
	/* of the parts from TIME_STEP on: what belongs to the steps up to the last mark */
	int64_t marked[TIME_TRAINED];
	struct marks marks;
	struct account_rank *ranks; /* [most] */
	int64_t *slowest;           /* [most]: own work of the slowest rank of a group */
	int most, world, devices;
	int fresh;      /* how many ranks are */
	int64_t step;   /* of the last mark; where the run continues before the first one */
	bool started;   /* a generation of this `muster run` has started */
	bool lost;      /* one was lost */
	bool continues; /* a rank of this generation was ready */
	/* ranks need not report: what those of a generation without any report do is not reported, and
	 * is not lost either */
	bool opaque;
	bool began; /* a rank of this generation has reported, or begun by supervise_account_begin() */
};

/* most: ranks of any generation, and groups. The run begins with `world` ranks that are not
 * ready. */
int supervise_account_open(struct account *a, int most, int world, int devices, int64_t now,
			   struct err *e);
void supervise_account_close(struct account *a);
/* A line of time.jsonl that an earlier `muster run` has left, in their order: the sums go on from the
 * last one. Call it before any time has passed. */
void supervise_account_continue(struct account *a, int64_t wall, int64_t step,
				const int64_t parts[TIME_PART_COUNT]);

/* Time passes. The other functions begin with this. */
void supervise_account_advance(struct account *a, int64_t now);

/* A generation of so many ranks starts; none is ready, and all are in group 0. */
void supervise_account_generation(struct account *a, int64_t now, int world);
/* Puts the rank into this group, below `most`. */
void supervise_account_group(struct account *a, int rank, int group);
/* The rank is ready, and its training continues after this step, as that of all others. */
void supervise_account_ready(struct account *a, int64_t now, int rank, int64_t step);
/* A rank that is ready and has reported nothing began its training later, at the time `since`: it starts
 * until then. The first rank of a generation to begin says after which step all do, unless another one
 * has reported. */
void supervise_account_begin(struct account *a, int64_t now, int rank, int64_t step, int64_t since);
/* What is more than the rank's time so far, or less than it has reported before, is not booked. */
void supervise_account_report(struct account *a, int64_t now, int rank,
			      const struct account_report *r);
/* The rank has finished; its last report has come. leaves: another generation follows, on other nodes. */
void supervise_account_finished(struct account *a, int64_t now, int rank, bool leaves);
/* The generation is lost, or leaves: its ranks wait for the next one. Does nothing if no generation has
 * started. */
void supervise_account_lose(struct account *a, int64_t now);
/* No further generation follows. The reports of ranks that still train are over. */
void supervise_account_stop(struct account *a, int64_t now);
/* No rank of the generation will report any more. */
void supervise_account_settle(struct account *a, int64_t now);

#endif
