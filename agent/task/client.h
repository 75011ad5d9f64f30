/*
 * client — the agent's end of the client channel: a socket over which the task's program says what it
 * does, and is told when to stop. agent/client/muster_client.h describes the protocol.
 *
 * A program need not use the channel, may close it, and may send anything: none of this is an error of
 * the run. The agent never waits for the program. All calls come from one thread.
 *
 * The program's end stays open in the task's processes. The caller passes its number to the task as
 * TASK_CLIENT_ENV, and closes its own copy once the task is started.
 */
#ifndef MUSTER_AGENT_TASK_CLIENT_H
#define MUSTER_AGENT_TASK_CLIENT_H

#include "agent/task/packet.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define TASK_CLIENT_ENV "MUSTER_CLIENT_FD"

/* What one call reads, so that a flood does not starve the caller. */
enum { TASK_CLIENT_READS = 256, TASK_CLIENT_LAST = 64 * TASK_CLIENT_READS };

struct task_client;

/* A handler must not close the client. What it gets is valid until it returns. NULL: the packet is
 * ignored. */
struct task_client_handlers {
	/* The program uses the channel. It comes once for each process that does: a script may run
	 * several programs, one after the other. */
	void (*hello)(void *arg, const struct task_hello *m);
	void (*step)(void *arg, const struct task_step *m);
	void (*checkpoint)(void *arg, const struct task_checkpoint *m);
};

/* Opens a channel. `handlers` must exist until task_client_close. *program is the program's end, for
 * task_process_start(); the caller closes it. ERR_NOMEM. */
int task_client_open(const struct task_client_handlers *handlers, void *arg,
		     struct task_client **out, int *program, struct err *e);
void task_client_close(struct task_client *c); /* takes NULL */

/* For poll(2): the agent's end, or -1 once the program has closed its own; and the events to wait
 * for. At any of them, or at POLLHUP or POLLERR, the caller calls task_client_serve. */
int task_client_fd(const struct task_client *c);
short task_client_events(const struct task_client *c);

/* Sends a queued stop, and calls the handlers for the packets that are there, at most
 * TASK_CLIENT_READS of them; poll tells of the others. ERR_PROTO: a packet was malformed. The text
 * is a warning; it comes only for the first such packet, and the channel goes on. */
int task_client_serve(struct task_client *c, struct err *e);

/* Reads all that is there, because the program has ended and the caller does not call again. It stops
 * after TASK_CLIENT_LAST packets, because a process that outlives the program may go on sending. */
int task_client_serve_all(struct task_client *c, struct err *e);

/* Asks the program to stop after the step at_step, or at once if it is 0. The reason is for people. A
 * stop that the socket has no room for is queued; a later one replaces it. Does nothing once the
 * program has closed its end. ERR_NOMEM. */
int task_client_stop(struct task_client *c, const char *reason, int64_t at_step, struct err *e);

#endif
