/*
 * calls — what a thread does, as the kernel shows it in /proc/PID/task/TID: the system call that it
 * is in, and the file of that call.
 *
 * Sources: proc_pid_syscall(5), proc_pid_stat(5), proc_pid_wchan(5), proc_pid_fd(5).
 */
#ifndef MUSTER_AGENT_STACKS_CALLS_H
#define MUSTER_AGENT_STACKS_CALLS_H

#include <stdbool.h>
#include <stdint.h>

enum call_role {
	CALL_NONE,  /* the thread is in no system call, or it is not known */
	CALL_OTHER, /* any that is not named below */
	CALL_FILE,  /* its first argument is a descriptor, and it may block on that file */
	CALL_WAIT,  /* it waits for another thread, or for a message */
	CALL_SLEEP  /* it waits for a time */
};

struct call {
	enum call_role role;
	char name[24]; /* such as "read"; "system call 441" if it has no name here; "": none */
	int fd;        /* of CALL_FILE; -1: none */
};

/* Reads the text of /proc/PID/task/TID/syscall. "running", a text that is malformed, or a thread
 * that is blocked outside a system call: CALL_NONE. */
void stacks_call_parse(const char *text, struct call *out);

/* Whether a descriptor's link (/proc/PID/fd/N) is a connection or an event, on which a thread waits
 * for others, and not a file. */
bool stacks_link_waits(const char *link);

#endif
