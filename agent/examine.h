/*
 * examine — the agent's answer to the message examine: it has `muster-agent stacks` examine a
 * process of its host, which is itself or an agent that does not answer.
 *
 * That is a process of its own, because a debugger stops all threads of what it examines, the
 * control thread included, and because whoever ends a debugger that takes too long must not be
 * stopped by it. It is started without a copy of the agent's memory (posix_spawn), and dies with
 * the agent. While it examines its own agent, Yama lets it and its debugger trace this one
 * (PR_SET_PTRACER).
 *
 * Only the control thread calls this.
 */
#ifndef MUSTER_AGENT_EXAMINE_H
#define MUSTER_AGENT_EXAMINE_H

#include "base/err.h"
#include "base/messages.h"

#include <poll.h>
#include <sys/types.h>

enum { EXAMINE_MAX = 8, EXAMINE_OUTPUT = 4096 };

struct examination {
	pid_t pid; /* of the tool; 0: this one is free */
	int fd;    /* its output */
	int rank;  /* that it examines */
	double until;
	char output[EXAMINE_OUTPUT];
	size_t len;
};

struct examinations {
	struct examination list[EXAMINE_MAX];
};

/* Starts one. ERR_PROTO: the message is malformed. Every other failure is an answer, which
 * agent_examine_next() returns. */
int agent_examine_start(struct examinations *x, const json_t *body, struct err *e);
/* Adds what poll() must wait for; returns how many. */
int agent_examine_poll(const struct examinations *x, struct pollfd out[EXAMINE_MAX]);
/* Reads what there is. The body of the next answer, a new reference; NULL: there is none now. */
json_t *agent_examine_next(struct examinations *x);
/* Ends all of them. */
void agent_examine_end(struct examinations *x);

#endif
