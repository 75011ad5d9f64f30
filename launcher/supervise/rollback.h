/*
 * rollback — decides what follows a step whose numbers are bad (agent/engine/train/bad_numbers.h).
 *
 *     [health] bad_numbers
 *     retry   nothing here: it is a loss like any other, and the next generation repeats the step
 *     skip    the samples of the step are recorded in the run's rollbacks (launcher/rundir/rollbacks.h),
 *             and the next generation continues from the last checkpoint without them. It does not
 *             count as a restart. With skip_before the checkpoints after the first skipped batch are
 *             not used (agent/engine/train/set_aside.h). After max_skips rollbacks of the run the
 *             next bad step ends it
 *     stop    the run ends
 *
 * A bad step updates nothing, and a checkpoint with a number that is not finite is never committed,
 * so the last checkpoint is good and from before the bad step. If the rollback cannot be recorded,
 * it does not take place: the loss counts as a restart, and the step is met again.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_ROLLBACK_H
#define MUSTER_LAUNCHER_SUPERVISE_ROLLBACK_H

#include "base/err.h"
#include "launcher/rundir/rollbacks.h"

#include <stdbool.h>

struct supervisor;
struct msg_bad_step;

struct rollback_state {
	json_t *list; /* the rollbacks of the run */
	bool bad;     /* this generation has met a bad step: */
	char what[32];
	double value, usual;
	int64_t step, first, count;
};

enum rollback_answer {
	ROLLBACK_NONE,  /* the loss is judged like any other */
	ROLLBACK_SKIPS, /* another generation follows, and it does not count as a restart */
	ROLLBACK_ENDS,  /* the run ends; s->reason says why */
};

/* Reads the rollbacks of the run's folder. */
int supervise_rollback_open(struct supervisor *s, struct err *e);
void supervise_rollback_close(struct supervisor *s);
/* A rank reports a bad step; the first report of a generation counts. */
void supervise_rollback_note(struct supervisor *s, const struct msg_bad_step *m);
/* The generation is lost, and s->cause says why. Records and prints what is done. */
enum rollback_answer supervise_rollback_decide(struct supervisor *s, int *status);

#endif
