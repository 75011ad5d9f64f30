/*
 * crew — the ranks of a world, for the tools.
 *
 * tool_crew_run forks one process per rank on this host. The ranks exchange addresses over a board
 * in shared memory, open the world, do the work and exit. The caller is not a rank: it waits, ends
 * all ranks if one fails, and returns the first failure. It installs no signal handler. Whatever
 * ends the caller also ends the ranks (PR_SET_PDEATHSIG), so Ctrl-C leaves no process behind. Call
 * it before any thread is started.
 *
 * tool_crew_join makes this process one rank of the job step that a launcher started (PMIx). Each
 * process of that job step calls it.
 */
#ifndef MUSTER_AGENT_TOOLS_CREW_H
#define MUSTER_AGENT_TOOLS_CREW_H

#include "libcomm/comm.h"

#include <stdbool.h>

enum { CREW_MOST = 256 }; /* ranks that tool_crew_run forks */

struct crew {
	int ranks; /* only for tool_crew_run */
	/* for each rank, the number of the host that it simulates; NULL: all are on one host */
	const int *hosts;
	struct comm_options comm; /* host and address_hint are set by the crew */
	int (*work)(struct comm *world, void *arg, struct err *e);
	void *arg;
};

int tool_crew_run(const struct crew *crew, struct err *e);

/* tool_crew_invited: whether a launcher offers PMIx to this process. tool_crew_speaks: whether it
 * is the first rank of that job step, which prints for all, or there is no job step. Call both
 * before tool_crew_join, which removes the offer from the environment. */
bool tool_crew_invited(void);
bool tool_crew_speaks(void);
int tool_crew_join(const struct crew *crew, struct err *e);

#endif
