/*
 * frame — where a thread is in its program, as a text, and which of several ranks is elsewhere.
 *
 * The finding of an examination (agent/stacks/stacks.h) is a clause such as
 *
 *     its main thread waits in the system call futex, in all_reduce (torch/distributed/
 *     distributed_c10d.py:4181), called by train_step (train.py:42)
 *
 * on one line. What follows the last ", in " is the frame: the innermost function that is known,
 * "NAME (FILE:LINE)" of Python or "NAME() of LIBRARY", and the function of the program that called
 * it if that is another one.
 */
#ifndef MUSTER_BASE_FRAME_H
#define MUSTER_BASE_FRAME_H

#include <stdbool.h>

/* The frame in a clause, a part of it; NULL: it has none. */
const char *frame_of(const char *clause);

/* Whether a frame is in a library's function that waits for other ranks or for a device. */
bool frame_waits(const char *frame);

/* Of ranks that make no progress together, by their clauses (NULL: unknown), the first one that is
 * elsewhere than the majority: its index. If some ranks wait for others, a rank that does not is
 * the one that they wait for, also if there are several. Otherwise ranks are compared by their
 * functions, then by lines and callers. -1: no rank stands out. */
int frame_odd(const char *const *clauses, int n);

#endif
