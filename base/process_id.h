/*
 * process_id — names one process for ever: a pid alone does not, because the kernel uses it again.
 *
 * Two processes of one boot and one PID namespace that have the same pid and the same start time
 * are the same process. Processes of another boot no longer exist. A pid of another PID namespace
 * means another process here.
 *
 * Sources: proc_pid_stat(5), proc_pid_status(5), pid_namespaces(7), random(4).
 */
#ifndef MUSTER_BASE_PROCESS_ID_H
#define MUSTER_BASE_PROCESS_ID_H

#include <stdint.h>
#include <sys/types.h>

enum { PROCESS_BOOT = 40, PROCESS_NAME = 64 };

struct process_id {
	int pid;
	int64_t start;           /* clock ticks from the boot to its start; 0: unknown */
	int64_t pid_space;       /* inode of its PID namespace; 0: unknown */
	char boot[PROCESS_BOOT]; /* random id of the boot; "": unknown */
};

/* The id of this process. Members are unknown where there is no /proc. */
void process_id_self(struct process_id *out);

struct process_stat {
	char name[PROCESS_NAME]; /* of its program, cut off by the kernel after 15 bytes */
	char state;              /* such as 'R', 'S', 'D', 'T' or 'Z' */
	int64_t start;           /* as in struct process_id */
};

/* Reads the text of /proc/PID/stat. -1: it is malformed. */
int process_stat_parse(const char *text, struct process_stat *out);
/* -1: there is no such process, or it cannot be seen. */
int process_stat_read(int pid, struct process_stat *out);
/* Reads the effective user id from the text of /proc/PID/status. -1: it has none. */
int process_owner_parse(const char *text, uid_t *out);
/* -1: there is no such process, or it cannot be seen. */
int process_owner_read(int pid, uid_t *out);

#endif
