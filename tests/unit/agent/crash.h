/*
 * crash — runs processes, and at one of their system calls kills them, or lets the call fail.
 *
 * A first run with the plan CRASH_NOTHING counts the calls. A test then runs the same again, once for
 * each call, or for some of them. A call at which a process is killed is not done any more, so that
 * "before call 7" is also "after call 6".
 *
 * Processes are followed by ptrace(2), with all that they start. Where that is not possible (another
 * processor than x86-64, or a container that forbids it), crash_possible is false, and a test skips.
 */
#ifndef MUSTER_TESTS_UNIT_AGENT_CRASH_H
#define MUSTER_TESTS_UNIT_AGENT_CRASH_H

#include <stdbool.h>

enum crash_what {
	CRASH_NOTHING, /* only counts */
	CRASH_ALL,     /* all processes are killed */
	CRASH_ONE,     /* the process that makes the call is killed */
	CRASH_FAIL,    /* the call is not done and fails (close is done, and fails). EINTR: not
		     stat and access, which signals do not interrupt */
	CRASH_SHORT,   /* a read or a write moves half of its bytes */
};

/* Which calls count, and what happens at one of them. */
struct crash_plan {
	/* Those of a thread from the first one that names a path with this in it. NULL: those of a
	 * process from its crash_mark. */
	const char *path;
	/* The number of crash_mark; with a path: 0 for the first process that names it, and so on.
	 * -1: every one. */
	int who;
	/* Only calls on the files below this folder count. NULL: every system call counts. */
	const char *under;
	enum crash_what what;
	long at;   /* the call that is hit, from 1 */
	int error; /* of CRASH_FAIL */
};

struct crash_seen {
	long count; /* calls that counted */
	bool hit;
	int status;     /* of the first process, as waitpid(2) sets it */
	char call[512]; /* the call that was hit, or the last one: "pwrite64 /tmp/x" */
};

bool crash_possible(void);
/* Runs body in a process of its own and waits until it, and all that it has started, have ended. Its
 * exit status is what body returns. body may call exec. Returns -1 with errno set if it cannot be
 * followed. */
int crash_run(int (*body)(void *arg), void *arg, const struct crash_plan *plan,
	      struct crash_seen *seen);
/* Which of `count` calls a test tries: all of them with MUSTER_LARGE, otherwise about `some`, from a
 * random one on (SEED sets it, and it is printed). Sets plan->at to the first one, and returns the
 * distance of the others. */
long crash_choose(struct crash_plan *plan, long count, long some);
/* In a process that is followed: its calls count from here on under this number; -1: they do not. */
void crash_mark(int who);

#endif
