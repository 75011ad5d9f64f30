/*
 * crew — the ranks of a world, for the tools.
 *
 * tool_crew_run forks one process a rank on this host; they meet over a board in memory that they
 * share, open the world, do the work and leave. The caller is no rank: it waits, ends all ranks
 * when one fails, and returns the first failure. It installs no signal handler: whatever ends the
 * caller ends the ranks too (PR_SET_PDEATHSIG), so Ctrl-C leaves nothing behind. Call it before any
 * thread is started.
 *
 * tool_crew_join makes this process one rank of the step that a launcher started (PMIx): each of
 * that step's processes calls it.
 */
#ifndef MUSTER_AGENT_TOOLS_CREW_H
#define MUSTER_AGENT_TOOLS_CREW_H

#include "libcomm/comm.h"

#include <stdbool.h>

enum { CREW_MOST = 256 }; /* ranks that tool_crew_run forks */

struct crew {
	int ranks; /* tool_crew_run's */
	/* of each rank the number of the host that it pretends to be on; NULL: all on this one */
	const int *hosts;
	struct comm_options comm; /* host and address_hint are set by the crew */
	int (*work)(struct comm *world, void *arg, struct err *e);
	void *arg;
};

int tool_crew_run(const struct crew *crew, struct err *e);

/* Whether a launcher offers PMIx to this process; and whether it is that step's first rank, which
 * speaks for all. Before tool_crew_join, which takes the offer out of the environment. */
bool tool_crew_invited(void);
bool tool_crew_speaks(void);
int tool_crew_join(const struct crew *crew, struct err *e);

#endif
