/*
 * run — one run of a job on a cluster whose parts fail, simulated from fault to fault.
 *
 * Between two faults the run trains at a constant pace: steps, and a snapshot for each checkpoint and
 * each copy in memory. So the state at a fault is computed, not stepped through, and 54 days on 2,048
 * nodes take less than a millisecond. A fault
 *
 *   1. is detected after the time that its kind needs (faults.h, costs.h); meanwhile nothing counts;
 *   2. loses the steps since the last copy in memory that survives it, otherwise since the last
 *      checkpoint; wrong numbers lose those since the last checkpoint before they began;
 *   3. may take its node away: a spare replaces it, or an idle node of a replica that lost one;
 *      otherwise the run goes on with a data-parallel replica less, with the same global batch, until
 *      nodes are back, or waits for one;
 *   4. ends the processes that are not kept, starts those that are missing, and loads the state.
 *
 * A fault during steps 1 to 4 begins them again. A copy in memory is in the memory of its own node and
 * of the next one: it survives the loss of one of them, until it is made anew.
 *
 * Each second of the run is in exactly one part. `lower`: of the time in which a run with fewer
 * replicas trains, the share that they lack.
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_RUN_H
#define MUSTER_LAUNCHER_GOODPUT_RUN_H

#include "launcher/goodput/costs.h"
#include "launcher/goodput/faults.h"

#include <stdbool.h>
#include <stdint.h>

/* name, doc */
#define GOODPUT_PARTS(X) \
	X(TRAINED, "trained", "steps that count") \
	X(SAVING, "saving", "waiting for snapshots of checkpoints and copies") \
	X(LOST, "lost steps", "steps that are repeated") \
	X(LOWER, "fewer ranks", "what the missing replicas would have done") \
	X(SLOW, "slow nodes", "waiting for a node that computes more slowly") \
	X(DETECT, "detection", "from a fault until it is known") \
	X(RESTART, "restarts", "from there until training goes on") \
	X(WAIT, "waiting", "no node is there to replace one") \
	X(START, "starts", "starts of all processes: the first one, and after planned stops") \
	X(PERSON, "by hand", "until a person has begun the run again")

enum goodput_part {
#define GOODPUT_PART_ENUM(id, ...) GOODPUT_##id,
	GOODPUT_PARTS(GOODPUT_PART_ENUM)
#undef GOODPUT_PART_ENUM
		GOODPUT_PART_COUNT
};

const char *goodput_part_name(enum goodput_part p);
const char *goodput_part_doc(enum goodput_part p);

struct goodput_rules {
	bool warm;    /* the processes of the other ranks outlive a loss */
	bool keeps;   /* copies in memory outlive all processes: they are kept by the nodes */
	double finds; /* a node that makes steps more than so many times longer; INFINITY: none */
	bool leaves_slow; /* the run leaves such a node if that is faster; otherwise it stays until a repair */
	bool shrinks;     /* the run can go on with fewer replicas... */
	bool regrows;     /* ... and with all again, once nodes are back */
	int64_t restarts; /* after so many losses a person must begin the run again; -1: never */
	double patience;  /* the same after a wait of so many seconds for a node... */
	bool requeues;    /* ... unless Slurm gives the job another node, from its queue */
	/* steps between checkpoints, and between copies in memory; 0: none */
	int64_t every, copy_every;
};

struct goodput_setup {
	int nodes;    /* that work */
	int replicas; /* data-parallel; each has nodes / replicas of them */
	int spares;
	double seconds; /* the length of the run; 0: until it has done `steps` */
	int64_t steps;
	struct goodput_costs costs;
	struct goodput_rules rules;
	const struct goodput_faults *faults; /* borrowed */
};

enum { GOODPUT_SLICES = 120, GOODPUT_FAULTS_MOST = 400000 };

struct goodput_result {
	double seconds;                   /* of the run */
	double parts[GOODPUT_PART_COUNT]; /* they add up to it */
	int64_t steps;                    /* that count */
	int64_t faults[GOODPUT_KINDS], all_faults;
	/* how often a step was lost, the run went on from copies in memory, a person had to begin it again,
	 * a node was replaced, replicas were left out, a node was waited for */
	int64_t restarts, from_copies, people, replaced, shrunk, waited;
	double longest; /* seconds of the longest break in training */
	int64_t drawn;  /* faults, also those that happened to no node that worked */
	bool endless;   /* GOODPUT_FAULTS_MOST faults came before its end, or it waits for ever */
	/* seconds that were trained in each slice of the run; only if its length is given */
	double trained[GOODPUT_SLICES];
};

/* seed: of the random numbers; with the same seed the faults are the same, as long as the run uses as
 * many nodes. */
void goodput_run(const struct goodput_setup *s, uint64_t seed, struct goodput_result *out);

/* The share of the run that is trained: its effective training time. */
double goodput_effective(const struct goodput_result *r);

#endif
