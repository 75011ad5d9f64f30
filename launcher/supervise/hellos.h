/*
 * hellos — the event hello: which agents have connected, a line for each node.
 *
 * With a line for each agent, events.jsonl would grow by some MiB with each start of thousands of ranks.
 * Therefore an agent that has connected waits for the others of its node, for HELLOS_WAIT_S at most, and then
 * all that wait have one line. A supervisor that takes over after this one finds in these lines which agents may
 * still run (predecessors.h), so an agent gets its welcome after its line only: one that the file does not know
 * has done nothing. A generation starts no later for that, because it waits for all of its agents anyway.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_HELLOS_H
#define MUSTER_LAUNCHER_SUPERVISE_HELLOS_H

#include <stdbool.h>

#define HELLOS_WAIT_S 0.25

struct supervisor;
struct rank_state;

struct hellos_state {
	int waiting;  /* agents */
	double since; /* when the first of them has connected */
};

/* The agent of this rank has connected: it is recorded and welcomed, unless it must wait for others of its node. A
 * welcome that cannot be sent ends the generation: EV_LOST. */
void supervise_hellos_add(struct supervisor *s, int rank);
/* No agent must wait any longer: something else happens in this generation. */
void supervise_hellos_end(struct supervisor *s);
void supervise_hellos_tick(struct supervisor *s);
/* When the next one has waited for long enough; INFINITY: none waits. */
double supervise_hellos_due(const struct supervisor *s);

/* An agent that is to be recorded. */
struct hello_agent {
	int rank;
	const struct rank_state *state; /* host and id */
};
/* Writes the lines of these agents, which it sorts by node. kept: they continue from the last generation. */
void supervise_hellos_write(struct supervisor *s, struct hello_agent *list, int n, bool kept);

#endif
