/*
 * queue_jobs — a job of Slurm's queue, as people ask for it and change it.
 *
 * The same for both ways to reach Slurm: its commands (launcher/slurm/queue.h) and its REST interface
 * (launcher/slurm/rest/rest.h).
 */
#ifndef MUSTER_LAUNCHER_SLURM_QUEUE_JOBS_H
#define MUSTER_LAUNCHER_SLURM_QUEUE_JOBS_H

#include "launcher/launch.h" /* LAUNCH_JOB_ID */

#include <stdint.h>
#include <time.h>

struct queue_job {
	char id[LAUNCH_JOB_ID];
	char name[256], user[64], partition[256];
	char state[32];   /* "PENDING", "RUNNING", …: Slurm's word */
	char reason[128]; /* why it waits or has ended; "": none */
	char nodes[1024]; /* such as n[1-4]; "": none yet */
	char comment[512];
	int64_t n_nodes;  /* 0: unknown */
	int64_t limit;    /* minutes; 0: no limit, or unknown */
	int64_t restarts; /* how often it was requeued */
	time_t submitted; /* 0: unknown, as in the next two */
	time_t starts;    /* or is expected to */
	time_t ends;
};

/* A text that is NULL, or a number that is 0, leaves the value as it is. */
struct queue_change {
	int64_t limit; /* minutes */
	const char *comment, *partition, *qos, *dependency, *name;
	int64_t nice; /* QUEUE_NICE_NONE: as it is */
};

#define QUEUE_NICE_NONE INT64_MIN

#endif
