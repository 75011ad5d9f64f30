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
 * A fault during steps 1 to 4 begins them again; if the processes have not been started yet, it belongs to
 * the same loss. A copy in memory is in the memory of its own node and of the next one: it survives the
 * loss of one of them, until it is made anew. A slow node that leaves the run is not slow when it returns.
 *
 * Losses are counted as the supervisor does it (launcher/supervise/restart.h). A loss is futile if its
 * generation finished no step, and committed no checkpoint, that is later than all before since the
 * supervisor started. Faults of a node are counted as in launcher/supervise/pool.h: a node that has
 * `exclude_after` of them, each within a day of the one before, is replaced as if it were lost; it is used
 * again if the run needs it. A planned stop, a person, and a requeue start another supervisor, which counts
 * from 0.
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_RUN_H
#define MUSTER_LAUNCHER_GOODPUT_RUN_H

#include "launcher/goodput/costs.h"
#include "launcher/goodput/faults.h"
#include "launcher/goodput/parts.h"

#include <stdbool.h>
#include <stdint.h>

struct goodput_history;

struct goodput_rules {
	bool warm;    /* the processes of the other ranks outlive a loss */
	bool keeps;   /* copies in memory outlive all processes: they are kept by the nodes */
	double finds; /* a node that makes steps more than so many times longer; INFINITY: none */
	bool leaves_slow; /* the run leaves such a node if that is faster; otherwise it stays until a repair */
	bool shrinks;     /* the run can go on with fewer replicas... */
	bool regrows;     /* ... and with all again, once nodes are back */
	int64_t restarts; /* after so many losses a person must begin the run again; -1: never */
	int64_t futile; /* the same after so many restarts in a row without progress; 0: never... */
	double backoff; /* ... seconds before the second one; it doubles, up to GOODPUT_WAIT_MOST */
	int64_t exclude_after; /* faults of a node after which it is not used any more; 0: never */
	double patience;       /* the same after a wait of so many seconds for a node... */
	bool requeues;         /* ... unless Slurm gives the job another node, from its queue */
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

enum { GOODPUT_FAULTS_MOST = 400000 };

/* As RESTART_WAIT_MAX and POOL_FAULT_MEMORY of launcher/supervise. Seconds. */
enum { GOODPUT_WAIT_MOST = 60, GOODPUT_FAULT_MEMORY = 24 * 3600 };

struct goodput_result {
	double seconds;                   /* of the run */
	double parts[GOODPUT_PART_COUNT]; /* they add up to it */
	int64_t steps;                    /* that count */
	int64_t faults[GOODPUT_KINDS], all_faults;
	/* how often a step was lost, the run went on from copies in memory, a person had to begin it again,
	 * a node was replaced, replicas were left out, a node was waited for, a node was not used any more
	 * because of its faults, restarts without progress ended the run */
	int64_t restarts, from_copies, people, replaced, shrunk, waited, excluded, futile;
	double longest; /* seconds of the longest break in training */
	int64_t drawn;  /* faults, also those that happened to no node that worked */
	bool endless;   /* GOODPUT_FAULTS_MOST faults came before its end, or it waits for ever */
};

/* seed: of the random numbers; with the same seed the faults are the same, as long as the run uses as
 * many nodes. */
void goodput_run(const struct goodput_setup *s, uint64_t seed, struct goodput_result *out);
/* The same run, which is also recorded in the history; NULL: it is not. */
void goodput_run_record(const struct goodput_setup *s, uint64_t seed, struct goodput_history *h,
			struct goodput_result *out);

/* The share of the run that is trained: its effective training time. */
double goodput_effective(const struct goodput_result *r);

#endif
