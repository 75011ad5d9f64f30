/*
 * costs — the seconds that each part of a run with faults takes.
 *
 * Those of muster come from the job: its predicted step, its limits ([restart], [health]), and its
 * figures for predictions (checkpoint.node_bandwidth, restart.respawn; plan/cost/train_time.h). What
 * the job does not say was measured (the table in costs.c has the source of each).
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_COSTS_H
#define MUSTER_LAUNCHER_GOODPUT_COSTS_H

#include "base/err.h"
#include "launcher/deployment.h"

/* name, doc */
#define GOODPUT_COSTS(X) \
	X(step, "a step, without checkpoints and faults") \
	X(snapshot, "training waits for the snapshot of a checkpoint, or of a copy in memory") \
	X(write, "from the snapshot of a checkpoint until it counts") \
	X(copy, "from the snapshot of a copy in memory until it counts, at its keeper") \
	X(closed, "until it is seen that a process has ended") \
	X(silent, "until a node that is gone counts as lost") \
	X(hang, "until ranks that stand still count as hung") \
	X(numbers, "until wrong numbers are found, on average") \
	X(slow, "until a slow node is found, and the checkpoint with which the run leaves it") \
	X(end, \
	  "from a loss until the processes that are not kept have ended, and muster has decided") \
	X(respawn, "until the ranks run again, with their communicators") \
	X(replace, "in addition, if ranks must start on another node") \
	X(recall, "to load the state from copies in memory") \
	X(load, "to load the state from a checkpoint") \
	X(start, "in addition, if all processes of the run start") \
	X(queue, "until a job that was requeued without its lost node runs again") \
	X(person, "until a person has begun the run again")

/* INFINITY: what is waited for never happens. */
struct goodput_costs {
#define GOODPUT_COST_MEMBER(name, doc) double name;
	GOODPUT_COSTS(GOODPUT_COST_MEMBER)
#undef GOODPUT_COST_MEMBER
};

struct goodput_cost_row {
	const char *name, *doc;
	size_t at; /* offset in the struct */
};

enum {
#define GOODPUT_COST_ENUM(name, doc) COST_##name,
	GOODPUT_COSTS(GOODPUT_COST_ENUM)
#undef GOODPUT_COST_ENUM
		GOODPUT_COST_COUNT
};

const struct goodput_cost_row *goodput_cost_row(int i); /* 0 to GOODPUT_COST_COUNT - 1 */
double *goodput_cost(struct goodput_costs *c, int i);

/* Those of muster. */
void goodput_costs_of(const struct deployment *d, struct goodput_costs *out);
/* word: "hang=120", seconds. ERR_USAGE. */
int goodput_costs_set(struct goodput_costs *c, const char *word, struct err *e);

#endif
