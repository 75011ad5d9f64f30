/*
 * program — one generation of an agent that runs a program of the user (job.program): from the welcome to
 * the end of the task.
 *
 * The agent starts one task with the environment that programs expect (agent/task/environment.h), writes
 * its output to the rank's log, and tells the supervisor what it does: through the client channel if the
 * program uses it, otherwise by whether it uses its CPUs or prints anything. The agent itself is no
 * client of PMIx; the variables of its PMIx server go to the task.
 *
 *     program.c         setup, and what the end of the task means
 *     program_loop.c    the event loop: the task, requests to stop, activity
 *     program_client.c  what the program reports through the client channel
 *     program_place.c   the task's environment
 *     program_dump.c    the dump of PyTorch's flight recorder
 */
#ifndef MUSTER_AGENT_PROGRAM_H
#define MUSTER_AGENT_PROGRAM_H

#include "agent/generation.h"
#include "agent/rank_log.h"
#include "base/err.h"

#include <jansson.h>

/* How the task ended if it failed, for the message failed. */
struct program_failure {
	bool ended;           /* it ended; otherwise it was not started, or muster ended it */
	int status;           /* as waitpid() sets it */
	json_t *last_lines;   /* of its output; owned by the caller; NULL: none */
	struct rank_log *log; /* still open, if anything failed; owned by the caller; NULL: none */
};

/* Runs the task until it has ended and nothing of it is left. 0: it exited with status 0, or ended after
 * a request to stop. ERR_TASK, or ERR_PEER if its last error blames another rank: it failed. ERR_NUMERIC:
 * it reported a loss that is NaN or infinite. ERR_ABORTED: the supervisor has ended the generation. */
int agent_program_run(const struct generation_start *start, struct program_failure *failure,
		      struct err *e);

#endif
