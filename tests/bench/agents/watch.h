/* watch — a process that is measured from outside, and the events that it writes. */
#ifndef MUSTER_TESTS_BENCH_AGENTS_WATCH_H
#define MUSTER_TESTS_BENCH_AGENTS_WATCH_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

struct watch {
	pid_t pid;
	bool ended; /* it was reaped */
	char events[512];
	int fd; /* of events.jsonl; -1: not open yet */
	struct buf text;
	size_t taken;
	char line[1024]; /* the event that was waited for last, or its beginning */
};

/* Waits for the next event of this name after the last one that was waited for. *at: its time, by
 * clock_s(). False: the process ended, or it took more than `patience` seconds. */
bool watch_await(struct watch *w, const char *event, double patience, double *at);
/* A number of that event; 0: it has none of this name. */
double watch_number(const struct watch *w, const char *name);
/* Waits for the end of the process. *at: when it was seen. False: it was not there in time, or its
 * status is not `status`. */
bool watch_await_end(struct watch *w, int status, double patience, double *at);
void watch_close(struct watch *w);

/* CPU seconds of all threads of a process so far. */
double watch_cpu(pid_t pid);
/* A line of /proc/PID/status in bytes, such as "VmHWM". */
double watch_memory(pid_t pid, const char *name);
int watch_descriptors(pid_t pid);

#endif
