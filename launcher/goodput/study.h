/*
 * study — what many simulated runs say: the effective training time to expect, and what each setting of the
 * job is worth. Settings are compared by the same faults, so that few runs tell them apart.
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_STUDY_H
#define MUSTER_LAUNCHER_GOODPUT_STUDY_H

#include "launcher/goodput/history.h"
#include "launcher/goodput/run.h"

/* Means of the runs, unless it says otherwise. */
struct goodput_sum {
	int runs;
	double effective, low, high; /* low, high: nine of ten runs are between them */
	double seconds, steps, parts[GOODPUT_PART_COUNT]; /* seconds */
	double faults[GOODPUT_KINDS], all_faults, restarts, people, from_copies, replaced, shrunk,
		waited, excluded, futile;
	double longest;
	int64_t most_restarts; /* of any run */
	bool endless;          /* a run would never end */
	struct goodput_result first;
};

/* For people who wait. `show` is called after each run. counts: nothing is simulated; the runs are added to `all`,
 * and the sums are 0. */
struct goodput_watch {
	void (*show)(const struct goodput_watch *w);
	void *arg;
	int64_t done, all; /* runs */
	bool counts;
};

struct goodput_plan { /* how often, and from where on, it is simulated */
	int runs;
	uint64_t seed;                   /* of the first run; the next ones follow */
	struct goodput_watch *watch;     /* NULL: nobody waits */
	struct goodput_history *history; /* of the first run; NULL: it is not recorded */
};

/* ERR_NOMEM. ERR_USAGE: the runs have more than GOODPUT_SUM_MOST faults. A run that does not end is the last one,
 * and its figures mean nothing. */
enum { GOODPUT_SUM_MOST = 4000000 };
int goodput_sum(const struct goodput_setup *s, const struct goodput_plan *p,
		struct goodput_sum *out, struct err *e);
/* The part's share of the time, from 0 to 1. */
double goodput_share(const struct goodput_sum *s, enum goodput_part part);

/* Steps between checkpoints, steps between copies in memory, and spare nodes. The best ones do most with all
 * nodes that the run has, the spares among them. Of those that are nearly as good (GOODPUT_NEAR) it is the one
 * that costs the least besides: the rarest checkpoint or copy, or none (0), the fewest spares, and to stay on
 * slow nodes. */
struct goodput_advice {
	bool known; /* there were enough faults to tell */
	int64_t every, copy_every;
	int spares;
	bool leaves_slow;
	int64_t restarts; /* that restart.max_restarts should permit */
	struct goodput_sum sum;
};
#define GOODPUT_NEAR 2e-4

/* Sets the interval of checkpoints that is best for the setup. */
int goodput_choose_every(struct goodput_setup *s, const struct goodput_plan *p, struct err *e);
int goodput_advise(const struct goodput_setup *s, const struct goodput_plan *p,
		   struct goodput_advice *out, struct err *e);

#endif
