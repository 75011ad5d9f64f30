/*
 * drill — the faults that `muster drill` (launcher/drill) cannot cause from outside: the agent
 * causes one in itself, if AGENT_ENV_DRILL_FAULT asks this rank for it.
 *
 * The text is "KIND RANK STEP BYTES". The fault comes once: in the first generation, when STEP
 * steps are finished. Only poisoned data stays. Without AGENT_ENV_DRILL_MARK the text is ignored,
 * so that a variable that was left in a shell disturbs no run.
 *
 *     exit     the process ends with a status and reports nothing
 *     device   the agent reports that its device is lost
 *     nan      this rank's gradients become NaN
 *     nan-input     an activation of this rank becomes NaN in the first micro-batch, and again if the
 *                   step is computed again
 *     nan-once      the same, but not again
 *     nan-gradient  numbers of this rank's gradients become NaN before they are reduced, as nan-input
 *     nan-weight    a weight of this rank becomes NaN
 *     flip          a bit of a weight of this rank flips
 *     poison   STEP is a position in the order of the data: whenever its sample is in a batch, in any
 *              generation, this rank's gradients become NaN
 *     collectives  this rank calls a barrier of all ranks that the others do not call
 *     stuck    the training thread reads from a pipe into which nobody writes
 *     spin     the training thread computes for ever
 *     memory   the agent takes BYTES of memory, so that the kernel's OOM killer ends it before
 *
 * To add one: add its row to the table in drill.c, and its row in launcher/drill/injections.c.
 */
#ifndef MUSTER_AGENT_DRILL_H
#define MUSTER_AGENT_DRILL_H

#include "agent/engine/train/hooks.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct comm;

struct agent_drill {
	int (*cause)(const struct agent_drill *d, bool *poison, struct err *e); /* NULL: nothing */
	enum train_plant plant;
	int64_t step, bytes;
	bool poisons;       /* the sample at position `step` */
	struct comm *world; /* the caller sets it before the first step */
};

/* Reads the environment. ERR_USAGE: the text is wrong. */
int agent_drill_open(struct agent_drill *d, int rank, uint32_t generation, struct err *e);
/* For struct train_hooks; drill: a struct agent_drill. */
int agent_drill_step(void *drill, int64_t step, bool *poison, struct err *e);
/* Whether a rank of this job, maybe another one, spoils numbers or causes a fault. Then no rank
 * replays recorded passes, because all ranks must replay the same. */
bool agent_drill_armed(void);
enum train_plant agent_drill_plant(void *drill, int64_t step);
bool agent_drill_data(void *drill, int64_t first, int64_t end);

#endif
