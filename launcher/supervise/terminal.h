/*
 * terminal — what a person sees of a run.
 *
 * On a terminal the last line lives: it is rewritten in place, at most ten
 * times a second, and events are printed above it. Into a pipe or a file go
 * plain lines: one every `every` steps, and the events. Colour only on a
 * terminal and without NO_COLOR. What comes from agents is shown without its
 * control characters.
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
	int64_t steps; /* in the whole run */
};

/* What fd is and what the environment wants. */
void supervise_terminal_detect(int fd, struct terminal_options *o);
/* Columns of the terminal; $COLUMNS where fd is none, else 80. */
int supervise_terminal_columns(int fd);
int supervise_terminal_open(const struct terminal_options *o, struct terminal **out, struct err *e);
/* Leaves the cursor on a line of its own. */
void supervise_terminal_close(struct terminal *t);

enum terminal_tone { TONE_PLAIN, TONE_GOOD, TONE_WARN, TONE_BAD };

void supervise_terminal_text(struct terminal *t, const char *text);
/* `word` says what it is about ("lost", "checkpoint"). */
void supervise_terminal_event(struct terminal *t, enum terminal_tone tone, const char *word,
			      const char *fmt, ...) __attribute__((format(printf, 4, 5)));

struct terminal_step {
	int64_t step;
	double loss, grad_norm, lr, tokens_s, step_s;
	double cross_entropy; /* the loss without what routers add; 0 or NAN: they add nothing */
	double loss_scale;    /* fp16; 0: another precision */
	bool skipped;         /* its gradients overflowed: nothing was updated */
	double left_s;        /* until the run is done, as far as one can tell; negative: unknown */
};
void supervise_terminal_step(struct terminal *t, const struct terminal_step *s, double now);
/* A line about what is waited for ("starting 8 agents"); lives only on a terminal. "" takes the
 * live line away. */
void supervise_terminal_waiting(struct terminal *t, const char *text);

/* 4.2 s, 1:20, 2:03:04 */
const char *supervise_terminal_span(double seconds, char *out, size_t size);

#endif
