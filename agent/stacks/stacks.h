/*
 * stacks — finds out what a process that makes no progress does: the state of each of its threads
 * as the kernel shows it, and their stacks as gdb or eu-stack print them, if one of the two is
 * installed. The process is an agent, or any other program. If that is a Python interpreter and
 * py-spy is installed, py-spy finds the functions of Python; gdb and eu-stack run only if it finds
 * none.
 *
 * It works from outside, so that a process that is stopped, or whose threads are all stuck, can be
 * examined too. The caller must have the right to trace the process: it must have the same user,
 * and on a system with Yama (ptrace_scope = 1) the process must have named the caller by
 * PR_SET_PTRACER. A process may name an ancestor of the caller instead, which keeps it over
 * execve(2), but not in the processes that it forks. Without it, states and wait channels are still
 * known, but system calls, their files and stacks are not.
 *
 * The text of the report, RUN/trace/gen-N/stacks-RANK.txt: one line with the finding; for each
 * thread a line with its id, name, state, CPU time, wait channel and system call, and below it the
 * stack in the kernel if the system shows it; then what the debugger printed, or why it printed
 * nothing.
 */
#ifndef MUSTER_AGENT_STACKS_STACKS_H
#define MUSTER_AGENT_STACKS_STACKS_H

#include "base/buf.h"
#include "base/err.h"
#include "base/process_id.h"

#include <stdbool.h>

/* What holds the process, by its main thread, which is its first one. In an agent that is the
 * training thread: if it waits for others, another thread that is stuck in a file, or computes,
 * counts. In another program such threads mean nothing, because programs have threads that always
 * read from pipes, or spin. A thread that is stuck in the kernel counts in each. id, word, doc */
#define STUCK_KINDS(X) \
	X(STUCK_UNKNOWN, "unknown", "it cannot be told") \
	X(STUCK_GONE, "gone", "the process has ended") \
	X(STUCK_STOPPED, "stopped", "a signal, a debugger or its cgroup has stopped it") \
	X(STUCK_KERNEL, "kernel", "a thread is stuck in the kernel: state D") \
	X(STUCK_CALL, "call", "a thread is in a system call, mostly on a file") \
	X(STUCK_COMPUTING, "computing", "its main thread computes") \
	X(STUCK_SLEEPING, "sleeping", \
	  "its main thread, of a program that is no agent, sleeps for a time") \
	X(STUCK_WAITING, "waiting", "its main thread waits for another thread or rank; it may spin")

enum stuck_kind {
#define STUCK_ENUM(id, word, doc) id,
	STUCK_KINDS(STUCK_ENUM)
#undef STUCK_ENUM
};

enum { STUCK_TEXT = 400 };

struct stuck {
	enum stuck_kind kind;
	char text[STUCK_TEXT]; /* a clause such as "its process is stopped by a signal" */
};

const char *stacks_kind_word(enum stuck_kind kind);

/* Examines the process for at most `seconds`. A debugger may take long, so `known` is called at
 * once with what the kernel shows, and again (last) when all is known; report: all lines so far. It
 * fails with no error: a process that is gone, or cannot be examined, is a finding. */
void stacks_take(const struct process_id *who, double seconds,
		 void (*known)(void *arg, const struct stuck *found, struct buf *report, bool last),
		 void *arg);

#endif
