/* queue_target — the jobs of Slurm's queue that a word of `muster queue` names. */
#ifndef MUSTER_LAUNCHER_CLI_QUEUE_TARGET_H
#define MUSTER_LAUNCHER_CLI_QUEUE_TARGET_H

#include "launcher/slurm/controller.h"

#include <stdbool.h>

struct queue_target {
	char (*ids)[LAUNCH_JOB_ID]; /* in the order of their submission */
	int n;
	bool is_run; /* otherwise one id was given */
	struct slurm_controller *controller;
};

/*
 * word: the id of a job, a run folder, the name of a run in runs/, or a job file. Of a run these are
 * the jobs that were submitted for it (launcher/rundir/submissions.h), and Slurm is reached in the
 * way of its last submission. words: section.key=value, which change that. Close the target with
 * command_queue_target_close().
 */
int command_queue_target_open(const char *word, const char *const *words, int n_words,
			      struct queue_target *out, struct err *e);
void command_queue_target_close(struct queue_target *t);

#endif
