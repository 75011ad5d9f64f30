/*
 * console_trace — records the next steps of a run because a console asks for it (muster trace --next).
 *
 * All ranks are told, agree on the steps between two of them (agent/engine/train/step_trace.h), and
 * answer once their files are written. Then the console gets its second answer. One request at a time:
 * another one is refused until all ranks have answered, also if its console has left.
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_CONSOLE_TRACE_H
#define MUSTER_LAUNCHER_SUPERVISE_CONSOLE_TRACE_H

#include "base/messages.h"

#include <stdbool.h>
#include <stdint.h>

struct supervisor;
struct console;

struct console_trace {
	bool open;
	int number; /* of the last request */
	uint32_t generation;
	int steps, answers;
	int64_t first, last;      /* as the first rank that has them reports */
	char who[128], why[1100]; /* why: of the first rank that has no file; "": none */
};

/* A console asks for it. */
void supervise_console_trace_ask(struct supervisor *s, struct console *k,
				 const struct msg_console_ask *m);
/* A rank has answered. */
void supervise_console_trace_note(struct supervisor *s, int rank, const struct msg_traced *m);
/* Ends a request whose generation is over. */
void supervise_console_trace_check(struct supervisor *s);

#endif
