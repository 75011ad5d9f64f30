/*
 * regroup — a loss in which the other agents live on.
 *
 * The agents that can be trusted abort what they wait for, leave the generation and become idle. Each of
 * them keeps its process, with its device context, libraries and page cache, and takes the rank of the
 * next generation that the plan has on its node and device, whatever layout that has. Only the missing
 * agents are started. The ranks then meet through the supervisor (rendezvous.h).
 *
 * Not trusted are: the rank that the loss is about, whether it died, hangs or has failed; each rank that
 * has failed by an error of its own; and each that does not become idle within [restart]
 * regroup_timeout. Such a process is killed by the backend, or, if it cannot be reached, by the new
 * agents of its node before they join (predecessors.h).
 *
 * All agents are started again (a cold restart) if
 *   - [restart] warm is no, or no rank in particular is lost;
 *   - the generation uses PMIx and has not trained yet: a rank that waits for PMIx cannot be called back;
 *   - REGROUP_FUTILE such restarts in a row made no progress.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_REGROUP_H
#define MUSTER_LAUNCHER_SUPERVISE_REGROUP_H

#include <stdbool.h>

enum { REGROUP_FUTILE = 2 };

struct supervisor;
struct launched;
struct kept_agent;

struct regroup_state {
	struct kept_agent *kept; /* those that are idle, between two generations */
	int n;
	int awaited;  /* a rank that may not be idle yet */
	int futile;   /* restarts of this kind in a row without progress */
	bool overdue; /* agents that were not idle in time were given up */
	/* After a loss by wrong numbers, until a generation trains: the agents forget what they have
	 * in memory when they load their state, and not all of them may have come so far. */
	bool distrust;
};

/* Room for so many agents. NULL: no memory. */
struct kept_agent *supervise_regroup_room(int most);
/* After a loss: begins to regroup. False: all processes must be ended. */
bool supervise_regroup_start(struct supervisor *s);
/* The agent of the rank cannot live on: ends it. */
void supervise_regroup_exclude(struct supervisor *s, int rank);
/* A rank has answered. False: it was not asked. */
bool supervise_regroup_note_idle(struct supervisor *s, int rank);
/* Whether all that live on are idle, and the ends of the others are known as far as they can be. */
bool supervise_regroup_ready(struct supervisor *s);
/* Handles the answers that wait in the sockets: this process may be behind. True: the agents have
 * regrouped, and what follows has begun. */
bool supervise_regroup_read_out(struct supervisor *s);
/* The time is over: gives up those that are not idle. False: nothing can be kept. */
bool supervise_regroup_give_up(struct supervisor *s);
/* Keeps the idle agents for the next generation. */
void supervise_regroup_keep(struct supervisor *s);
/* Gives the kept agents their places in the generation that starts, and ends those that it does not
 * need. */
void supervise_regroup_place(struct supervisor *s);
/* A process ended, or its launch: it may be that of a kept agent. */
void supervise_regroup_note_exit(struct supervisor *s, const struct launched *l, int started_as);
void supervise_regroup_note_end(struct supervisor *s, const struct launched *l);
/* The connection of the kept agent `i` has closed. */
void supervise_regroup_note_closed(struct supervisor *s, int i);

#endif
