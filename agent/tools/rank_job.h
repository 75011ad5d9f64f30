/*
 * rank_job — runs one function on every rank of a world, for the tools.
 *
 * tool_rank_job_fork forks one process per rank on this host. The ranks exchange addresses over a
 * board in shared memory, open the world, do the work and exit. The caller is not a rank: it waits,
 * ends all ranks if one fails, and returns the first failure. It installs no signal handler.
 * Whatever ends the caller also ends the ranks (PR_SET_PDEATHSIG), so Ctrl-C leaves no process
 * behind. Call it before any thread is started.
 *
 * tool_rank_job_join makes this process one rank of the job step that a launcher started (PMIx).
 * Each process of that job step calls it.
 */
#ifndef MUSTER_AGENT_TOOLS_RANK_JOB_H
#define MUSTER_AGENT_TOOLS_RANK_JOB_H

#include "libcomm/comm.h"

#include <stdbool.h>

enum { RANK_JOB_MAX = 256 }; /* ranks that tool_rank_job_fork forks */

struct rank_job {
	int ranks; /* only for tool_rank_job_fork */
	/* for each rank, the number of the host that it simulates; NULL: all are on one host */
	const int *hosts;
	struct comm_options comm; /* both functions set host and address_hint */
	int (*work)(struct comm *world, void *arg, struct err *e);
	void *arg;
};

int tool_rank_job_fork(const struct rank_job *job, struct err *e);

/* tool_rank_job_launched: whether a launcher offers PMIx to this process. tool_rank_job_prints:
 * whether it is the first rank of that job step, which prints for all, or there is no job step.
 * Call both before tool_rank_job_join, which removes the offer from the environment. */
bool tool_rank_job_launched(void);
bool tool_rank_job_prints(void);
int tool_rank_job_join(const struct rank_job *job, struct err *e);

#endif
