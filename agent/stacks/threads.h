/* threads — the threads of a process, as /proc shows them. Only the files of this folder include
 * it. */
#ifndef MUSTER_AGENT_STACKS_THREADS_H
#define MUSTER_AGENT_STACKS_THREADS_H

#include "agent/stacks/calls.h"

#include <stdint.h>

enum { THREADS_MAX = 256, THREAD_NAME = 24, THREAD_WORD = 64, THREAD_LINK = 256 };

struct thread {
	int tid;
	char name[THREAD_NAME], state;
	char wchan[THREAD_WORD]; /* the function of the kernel in which it sleeps; "": unknown */
	struct call call;
	char link[THREAD_LINK]; /* what the descriptor of the call is; "": none */
	int64_t ran_ns;         /* of CPU time */
	double share;           /* of a core, between two reads; -1: unknown */
};

struct threads {
	struct thread list[THREADS_MAX];
	int n, more; /* more: threads that did not fit */
};

/* The main thread is the first one. 0 threads: the process is gone, or hidden. */
void stacks_threads_read(int pid, struct threads *out);
/* Sets the share of each thread from a second read `seconds` later. */
void stacks_threads_compare(const struct threads *before, struct threads *now, double seconds);
/* The only child of a process whose main thread waits for it, such as a shell; 0: there is none. */
int stacks_child_of(int pid);
/* The process that traces this one; 0: none. */
int stacks_tracer_of(int pid);
/* The beginning of a file under /proc/PID/, as a text, with no newline at its end; "" if it cannot
 * be read. */
void stacks_proc_text(int pid, int tid, const char *file, char *out, int size);

#endif
