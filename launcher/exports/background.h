/*
 * background — writes bytes in a thread of its own, so that a slow or full disk never holds up the
 * supervisor's loop.
 *
 * The loop hands bytes over and goes on. The thread passes them to a function that writes them. One
 * owner uses it from one thread.
 */
#ifndef MUSTER_LAUNCHER_EXPORTS_BACKGROUND_H
#define MUSTER_LAUNCHER_EXPORTS_BACKGROUND_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

struct exports_background;

struct exports_background_options {
	/* In the thread. -1: these bytes are lost. */
	int (*write)(void *arg, const char *data, size_t n, struct err *e);
	/* Closes what `write` uses: in the thread, when it ends. */
	void (*close)(void *arg);
	void *arg;
	/* Every put counts, in order, as long as at most this many bytes wait. 0: only the last put
	 * counts, and one that was not written yet is replaced. */
	size_t queue;
};

/* Takes over `arg`, also if it fails. */
int exports_background_open(const struct exports_background_options *o,
			    struct exports_background **out, struct err *e);
/* Never waits. The bytes are lost when the queue is full or memory is short. */
void exports_background_put(struct exports_background *b, const char *data, size_t n);
/* True: something was lost; e: why, the first time. Asks once. */
bool exports_background_trouble(struct exports_background *b, struct err *e);
/* Waits until what was put is written, at most `seconds`. A thread that is still in a call of the
 * system after that is left to itself: the process is about to end. */
void exports_background_close(struct exports_background *b, double seconds);

#endif
