/*
 * agents — the processes of the agents: where they come from, and how they end.
 *
 * A launch starts the processes of one generation, of all its ranks or of those that are missing. An
 * agent may outlive its generation (regroup.h), so several launches may be alive, each with processes of
 * the current generation. A launch ends with its last process. EV_ALL_GONE means that none is left.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_AGENTS_H
#define MUSTER_LAUNCHER_SUPERVISE_AGENTS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct supervisor;
struct launched; /* a launch that is alive */

/* Which process an agent is. */
struct agent_process {
	struct launched *launched; /* NULL: nothing of it is left, or it is not known */
	int started_as;            /* the rank that it was started as */
	uint32_t generation;       /* in which it was started: its launch log has that number */
	int task;                  /* its number within the launch */
};

/* Starts the agents of the next generation: those of the ranks that no agent of the last generation
 * takes. On failure no other process than those is left. */
int supervise_agents_start(struct supervisor *s, struct err *e);
/* Kills every process; EV_ALL_GONE follows. node_lost: as in launch.h. */
void supervise_agents_kill(struct supervisor *s, bool node_lost);
/* Kills the process of one rank if the launch backend can. */
void supervise_agents_kill_rank(struct supervisor *s, int rank);
/* The generation in which the process of the rank was started; its launch log has that number. */
uint32_t supervise_launch_of(const struct supervisor *s, int rank);
/* Whether a launch that is alive has started processes on a node that is dead now. The plan may not use it
 * any more. */
bool supervise_agents_on_dead_node(const struct supervisor *s);
/* Whether a process may be left. */
bool supervise_agents_left(const struct supervisor *s);
/* Forgets the launches. None of them may report anything afterwards. */
void supervise_agents_close(struct supervisor *s);

#endif
