/*
 * thread — threads that leave the signals of the process to the others.
 *
 * A process handles its signals in the thread that waits for them: the event loop, or the main
 * thread. Every other thread blocks them all.
 */
#ifndef MUSTER_BASE_THREAD_H
#define MUSTER_BASE_THREAD_H

#include <pthread.h>
#include <signal.h>

enum { THREAD_NAME = 16 }; /* the kernel keeps no more, with the 0 at the end */

/* Starts a thread that blocks all signals. ps -L and debuggers show its name, cut to THREAD_NAME.
 * Returns 0, or the error of pthread_create. The caller joins or detaches the thread. */
int thread_start(pthread_t *thread, const char *name, void *(*work)(void *), void *arg);

/* Around a call of a library that starts threads itself: they block all signals. */
void thread_block_signals(sigset_t *before);
void thread_restore_signals(const sigset_t *before);

#endif
