/*
 * predecessors — the agents of earlier generations whose end the supervisor has not seen.
 *
 * An agent that is stopped, stuck in the kernel, or cut off from the network does not notice that
 * its generation is lost, and Slurm may lose sight of it. It could still hold the device, or write
 * into the run folder. So each new agent gets the list of those of its host, and ends them before
 * it joins (agent/predecessors.h).
 *
 * An agent is remembered from its hello until
 *   - the launch backend has seen its end: the local backend reaps every agent, Slurm's sees none;
 *   - or a later generation with agents on the same host was ready: these have made sure of it.
 * events.jsonl holds the same facts, so that a supervisor that starts later, perhaps on another
 * host, remembers the same agents.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_PREDECESSORS_H
#define MUSTER_LAUNCHER_SUPERVISE_PREDECESSORS_H

#include "base/err.h"
#include "base/messages.h"

#include <jansson.h>
#include <stdint.h>

struct predecessors;

/* Of all agents, and of those that one welcome lists: the last ones are kept. */
enum { PREDECESSORS_MAX = 1 << 16, PREDECESSORS_LISTED_MAX = 512 };

int supervise_predecessors_open(struct predecessors **out, struct err *e);
/* Takes NULL. */
void supervise_predecessors_close(struct predecessors *p);

/* Adds what the run folder knows of earlier generations. On failure, whatever could be read is
 * added. */
int supervise_predecessors_load(struct predecessors *p, const char *run, struct err *e);

/* An agent has connected. If its start time is unknown, it is not remembered. */
void supervise_predecessors_add(struct predecessors *p, uint32_t generation,
				const struct msg_hello *h);
/* An agent that is remembered continues in this generation, as this rank. */
void supervise_predecessors_keep(struct predecessors *p, uint32_t generation,
				 const struct msg_hello *as);
/* The launch backend has seen the end of the rank's agent, which ran on this host. */
void supervise_predecessors_ended(struct predecessors *p, uint32_t generation, int rank,
				  const char *node);
/* Every rank of the generation is ready: the earlier agents of its hosts are gone. */
void supervise_predecessors_ready(struct predecessors *p, uint32_t generation);

/* The last generation of which any agent is known; 0: none is. Its number must not be given again: the agents of
 * that generation would not count as earlier ones. */
uint32_t supervise_predecessors_newest(const struct predecessors *p);

/* A new list of struct msg_predecessor: the agents of generations before this one that may still
 * run on the host `node`. NULL: there are none, or there is no memory. */
json_t *supervise_predecessors_list(const struct predecessors *p, uint32_t generation,
				    const char *node);

#endif
