/* submit_jobs — queues the jobs of a submission, and records them in the run folder. */
#ifndef MUSTER_LAUNCHER_CLI_SUBMIT_JOBS_H
#define MUSTER_LAUNCHER_CLI_SUBMIT_JOBS_H

#include "base/err.h"
#include "launcher/slurm/controller.h"

#include <stdbool.h>
#include <stdint.h>

enum { SUBMIT_CHAIN_MAX = 1000 };

struct submit_jobs {
	struct slurm_controller *controller;
	const char *script;     /* text of the batch script */
	const char *run_dir;    /* exists */
	const char *dependency; /* of the first job; "": none */
	uint32_t number;        /* of the submission */
	int n;                  /* jobs */
	bool chained;           /* each starts when all earlier jobs of its name have ended */
};

/* Sets the number of jobs from the value of --chain, which may be NULL. chain: [slurm] chain. Refuses a
 * dependency that cannot be combined with a chain. */
int command_submit_chain(const char *words, bool chain, const char *dependency, int *n,
			 struct err *e);

/* Queues the jobs and prints the id of each on a line of stdout. first: the id of the first one.
 * *queued: how many are queued; they stay in the queue if a later one is refused. */
int command_submit_jobs(const struct submit_jobs *s, char first[LAUNCH_JOB_ID], int *queued,
			struct err *e);

#endif
