/*
 * stop_cause — why Slurm stops the job that this process runs in (launcher/stop_cause.h).
 *
 * What `scontrol show job` says when the signal arrives (tried with Slurm 22.05):
 *
 *     time limit     RUNNING; EndTime is at most --signal's time and Slurm's minute away
 *     preemption     RUNNING or SIGNALING; PreemptTime is set. Without a grace time, in a partition
 *                    that cancels: PREEMPTED
 *     requeue        COMPLETING; Restarts is higher than SLURM_RESTART_COUNT, also after a
 *                    preemption without grace
 *     scancel        COMPLETING; Restarts is the same
 *     a person       RUNNING, and none of these
 */
#ifndef MUSTER_LAUNCHER_SLURM_STOP_CAUSE_H
#define MUSTER_LAUNCHER_SLURM_STOP_CAUSE_H

#include "launcher/slurm/job_record.h"
#include "launcher/stop_cause.h"

/* Slurm checks time limits about once a minute, so its signal may come this much early or late. */
enum { SLURM_LIMIT_SLACK_S = 90 };

/* now: as time(NULL). restarts: of this start of the job (SLURM_RESTART_COUNT). signal_before: seconds
 * before the time limit at which Slurm sends its signal. */
enum stop_cause slurm_stop_cause_of(const struct job_record *r, time_t now, int restarts,
				    int64_t signal_before);

#endif
