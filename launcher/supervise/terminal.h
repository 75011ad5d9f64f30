/*
 * terminal — prints the progress of a run for people.
 *
 * On a terminal the last line is live: it is rewritten in place, at most 10 times per second, and
 * events are printed above it. A pipe or a file gets plain lines: one per `every` steps, and the
 * events. Colour is used only on a terminal and without NO_COLOR. Control characters in texts from
 * agents are removed.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_TERMINAL_H
#define MUSTER_LAUNCHER_SUPERVISE_TERMINAL_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct terminal;

struct terminal_options {
	int fd;
	bool live, colour, unicode;
	int width;     /* columns; 0: ask the terminal each time */
	int64_t every; /* steps between plain lines */
	int64_t steps; /* in the whole run; 0: unknown */
};

/* Sets the options from the kind of fd and the environment. */
void supervise_terminal_detect(int fd, struct terminal_options *o);
/* Columns of the terminal; if fd is none: $COLUMNS, otherwise 80. */
int supervise_terminal_columns(int fd);
int supervise_terminal_open(const struct terminal_options *o, struct terminal **out, struct err *e);
/* Leaves the cursor at the start of an empty line. */
void supervise_terminal_close(struct terminal *t);

enum terminal_tone { TONE_PLAIN, TONE_GOOD, TONE_WARN, TONE_BAD };

void supervise_terminal_text(struct terminal *t, const char *text);
/* Prints an event; `word` names its kind ("lost", "checkpoint"). */
void supervise_terminal_event(struct terminal *t, enum terminal_tone tone, const char *word,
			      const char *fmt, ...) __attribute__((format(printf, 4, 5)));

struct terminal_step {
	int64_t step;
	double loss, grad_norm, lr, tokens_s, step_s;
	double cross_entropy; /* the loss without the routers' losses; 0 or NAN: there are none */
	double loss_scale;    /* fp16; 0: another precision */
	bool skipped;         /* the gradients overflowed, and nothing was updated */
	bool partial;         /* numbers that are NAN are left out, and no tokens are no speed */
	double left_s;        /* estimated seconds until the run is done; negative: unknown */
};
void supervise_terminal_step(struct terminal *t, const struct terminal_step *s, double now);
/* Shows what muster waits for ("starting 8 agents") in the live line of a terminal. "" removes the
 * line. */
void supervise_terminal_waiting(struct terminal *t, const char *text);

/* Formats a duration: 4.2 s, 1:20, 2:03:04. */
const char *supervise_terminal_duration(double seconds, char *out, size_t size);

#endif
