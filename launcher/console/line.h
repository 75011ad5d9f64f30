/*
 * line — a console's connection to the supervisor of a run: asks, and waits for the answer.
 *
 * The file `control` of the run folder (launcher/rundir/control.h) has the address and the secret.
 * The supervisor's side is launcher/supervise/console.h.
 *
 * Every call has a time limit, because a supervisor may be stopped (SIGSTOP), or its host be
 * unreachable. One thread at a time uses a line.
 */
#ifndef MUSTER_LAUNCHER_CONSOLE_LINE_H
#define MUSTER_LAUNCHER_CONSOLE_LINE_H

#include "base/err.h"
#include "base/messages.h"

struct console_line;

/* run: the run folder. ERR_NOTFOUND: the run has no supervisor that listens. ERR_NET: nobody listens
 * at its address (any more), or the host cannot be reached. ERR_TIMEOUT: it did not answer within
 * `seconds`. ERR_AUTH: another process answered, or the file is not private. */
int console_line_open(const char *run, double seconds, struct console_line **out, struct err *e);
/* Takes NULL. */
void console_line_close(struct console_line *l);

/* Sends the question, and waits for the answer. *body is a new reference, from which *out borrows.
 * ERR_NET: the supervisor has closed the connection. ERR_TIMEOUT. */
int console_line_ask(struct console_line *l, const struct msg_console_ask *ask, double seconds,
		     json_t **body, struct msg_console_answer *out, struct err *e);
/* Waits for a further answer. */
int console_line_await(struct console_line *l, double seconds, json_t **body,
		       struct msg_console_answer *out, struct err *e);

#endif
