/*
 * terminal — prints the progress of a run for people.
 *
 * On a terminal the last line is live: it is rewritten in place, at most 10 times per second, and
 * events are printed above it. A pipe or a file gets plain lines: one per `every` steps, and the
 * events. Colour is used only on a terminal and without NO_COLOR. Control characters in texts from
 * agents are removed.
 *
 * Nothing here waits for the reader, except supervise_terminal_flush() and _close(): texts are queued, and
 * a thread writes them (writer.h). While the reader does not read for long, output of programs is refused
 * first, then the lines of steps; there is more room for the events. Once there is room again, a line says
 * how many lines of muster are left out. A live line that waits is replaced by the next one.
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
	double stall;  /* seconds; 0: TERMINAL_STALL_S */
};

/* At the end of a run muster waits for the reader: so many seconds after it last read something, and so
 * many in all. */
enum { TERMINAL_STALL_S = 10, TERMINAL_FLUSH_S = 60 };

/* Sets the options from the kind of fd and the environment. */
void supervise_terminal_detect(int fd, struct terminal_options *o);
/* Columns of the terminal; if fd is none: $COLUMNS, otherwise 80. */
int supervise_terminal_columns(int fd);
int supervise_terminal_open(const struct terminal_options *o, struct terminal **out, struct err *e);
/* Waits until everything is written. False: the reader does not read. */
bool supervise_terminal_flush(struct terminal *t);
/* Leaves the cursor at the start of an empty line, flushes, and drops what the reader does not read. */
void supervise_terminal_close(struct terminal *t);

enum terminal_tone { TONE_PLAIN, TONE_GOOD, TONE_WARN, TONE_BAD };

/* text: complete lines of muster itself. */
void supervise_terminal_text(struct terminal *t, const char *text);
/* Prints complete lines of a program. False: there is no room, and they are left out; the caller says so
 * later. */
bool supervise_terminal_output(struct terminal *t, const char *text);
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
