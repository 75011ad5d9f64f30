/*
 * process_id — names one process for ever: a pid alone does not, because the kernel uses it again.
 *
 * Two processes of one boot and one PID namespace that have the same pid and the same start time
 * are the same process. Processes of another boot no longer exist. A pid of another PID namespace
 * means another process here.
 *
 * Sources: proc_pid_stat(5), pid_namespaces(7), random(4).
 */
#ifndef MUSTER_BASE_PROCESS_ID_H
#define MUSTER_BASE_PROCESS_ID_H

#include <stdint.h>

enum { PROCESS_BOOT = 40 };

struct process_id {
	int pid;
	int64_t start;           /* clock ticks from the boot to its start; 0: unknown */
	int64_t pid_space;       /* inode of its PID namespace; 0: unknown */
	char boot[PROCESS_BOOT]; /* random id of the boot; "": unknown */
};

/* The id of this process. Members are unknown where there is no /proc. */
void process_id_self(struct process_id *out);

#endif
