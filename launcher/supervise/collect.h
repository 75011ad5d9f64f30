/*
 * collect — logs that stay on the nodes (log.local) until somebody wants them.
 *
 * The agent of a rank moves its log to the run folder when it is told to (agent/rank_log.h):
 *   - because a console asks for it, as muster logs RUN --rank R does. The console gets a second answer when all
 *     ranks that consoles have named meanwhile have answered;
 *   - because the rank was lost. Then an agent of its node does it once the next generation trains: the agents of a
 *     generation that is lost should leave it quickly. At its end the run reports each log
 *     that could not be collected, and its place. A rank that fails by an error of its own may collect its log by itself, and
 *     says so.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_COLLECT_H
#define MUSTER_LAUNCHER_SUPERVISE_COLLECT_H

#include "base/messages.h"

#include <stdbool.h>
#include <stdint.h>

enum { COLLECT_LOST = 32 };

struct supervisor;
struct console;

struct collect_state {
	/* what consoles ask for, in one generation */
	uint32_t generation;
	int awaited; /* answers of agents */
	int asked, failed;
	char why[1100]; /* of the first failure */
	/* lost ranks whose logs are still on their nodes; if there are more, the oldest is left out */
	struct collect_lost {
		char node[256];
		int rank;
	} lost[COLLECT_LOST];
	int n_lost;
};

/* A console asks for logs. */
void supervise_collect_ask(struct supervisor *s, struct console *k,
			   const struct msg_console_ask *m);
/* The answer of the agent `by`. */
void supervise_collect_note(struct supervisor *s, int by, const struct msg_collected *m);
/* A generation begins. */
void supervise_collect_begin(struct supervisor *s);
/* The rank is lost; -1: none in particular. */
void supervise_collect_lost(struct supervisor *s, int rank);
/* All ranks are ready: asks for the logs of ranks that were lost. */
void supervise_collect_ready(struct supervisor *s);
/* Ends what consoles wait for if its generation is over. */
void supervise_collect_check(struct supervisor *s);
/* The run ends: says where the logs of lost ranks are. */
void supervise_collect_end(struct supervisor *s);

#endif
