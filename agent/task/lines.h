/*
 * lines — what a program writes, as lines for a log.
 *
 *   - A line ends at a newline. An unfinished one is passed on after 0.2 s without more, such as
 *     "Loading the model ... "; what follows is a line of its own.
 *   - A carriage return begins the line again, as progress bars do: each state replaces the one
 *     before. At most one state per 0.5 s is passed on, and the last one.
 *   - A line longer than TASK_LINE is cut; a mark at its end gives the length of the rest.
 *   - Escape sequences of terminals are removed, other control characters become blanks, and bytes
 *     that are not UTF-8 become "?". Tabs stay.
 */
#ifndef MUSTER_AGENT_TASK_LINES_H
#define MUSTER_AGENT_TASK_LINES_H

#include <stddef.h>

enum { TASK_LINE = 16 << 10, TASK_LINE_MARKED = TASK_LINE + 64 };

struct task_lines;

/* pass: gets each line, without a newline and with a NUL behind it; at most TASK_LINE_MARKED bytes.
 * NULL: no memory. */
struct task_lines *task_lines_open(void (*pass)(void *arg, const char *text, size_t len),
				   void *arg);
/* An unfinished line is lost. Takes NULL. */
void task_lines_close(struct task_lines *l);

/* The times are those of clock_s(). */
void task_lines_feed(struct task_lines *l, const char *data, size_t n, double now);
/* When task_lines_flush() is to be called; INFINITY: it need not be. */
double task_lines_due(const struct task_lines *l);
void task_lines_flush(struct task_lines *l, double now);
/* Passes on what is unfinished. */
void task_lines_end(struct task_lines *l);
/* How long a line is that is cut to at most `most` bytes, before a character that is not whole. */
size_t task_lines_cut(const char *text, size_t len, size_t most);
/* Bytes are missing before those that come next: the rest of their line is skipped. */
void task_lines_gap(struct task_lines *l);

#endif
