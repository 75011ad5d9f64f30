/*
 * launch_log — what Slurm's programs say in logs/launch-<generation>.log about the end of a job step
 * and of its tasks. The supervisor knows the task of each rank (agents.h).
 *
 * Only lines of srun and slurmstepd count. An agent can print anything, so the text is not trusted:
 * it changes only what muster says and whether it tries again.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_LAUNCH_LOG_H
#define MUSTER_LAUNCHER_SUPERVISE_LAUNCH_LOG_H

#include "launcher/supervise/faults.h"

struct launch_log {
	enum slurm_word said;
	int signal, status; /* how the task ended; 0: unknown */
	bool out_of_memory; /* the OOM killer ended a process of the step */
};

/* task: -1: any task; then the first one that ended badly counts. */
void supervise_launch_log_read(const char *text, int task, struct launch_log *out);

#endif
