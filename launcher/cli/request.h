/*
 * request — a command that asks the supervisor of a running run to do something: muster stop, checkpoint
 * and trace --next.
 *
 * A supervisor answers at once, and, if that answer says that more follows, again when it is done.
 */
#ifndef MUSTER_LAUNCHER_CLI_REQUEST_H
#define MUSTER_LAUNCHER_CLI_REQUEST_H

#include "base/run_paths.h"
#include "launcher/console/line.h"

struct command_request {
	const char *what; /* a word of launcher/supervise/console.h */
	int count;        /* its number; 0: it takes none */
	bool waits, as_json;
	char run[RUN_PATH];
	/* waits for what follows the first answer; the result is the exit status */
	int (*follow)(const struct command_request *r, struct console_line *line);
	/* prints the answer that tells of the end, if it is the first one (it has a step); NULL: none does
	 */
	int (*finish)(const struct command_request *r, const struct msg_console_answer *a);
	void *arg; /* of these functions */
};

/* Seconds for the connection and for the first answer. */
extern const double command_request_ask_s;

/* Asks, prints the answer, and waits if it should. If the supervisor cannot be asked, prints what the run
 * does instead. Returns the exit status. */
int command_request(const struct command_request *r);
/* For `follow`: waits for the next answer, however long; only a lost connection is an error. */
int command_request_await(struct console_line *line, json_t **body, struct msg_console_answer *a,
			  struct err *e);
/* Prints what has happened, as JSON or for people. state: of the run, or NULL; it is stolen. Returns the
 * exit status. */
int command_request_end(const struct command_request *r, int status, const char *text,
			json_t *state);
/* Prints an error before the supervisor was asked, also as JSON. Returns the exit status. */
int command_request_fail(const struct command_request *r, const struct err *e);
/* Prints a line for people on stderr: the result on stdout is for programs. */
void command_request_say(const char *text);

#endif
