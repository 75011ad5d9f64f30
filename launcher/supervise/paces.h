/*
 * paces — the figures of a window by which ranks are compared: the pace and the reference of each
 * (stragglers.h says what they are).
 *
 * Only the files of this room include it.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_PACES_H
#define MUSTER_LAUNCHER_SUPERVISE_PACES_H

struct supervisor;

/* Sets pace, delay, alone and reference of all ranks for a window of so many seconds. */
void supervise_paces_compute(struct supervisor *s, double window);

#endif
