/*
 * process_stat — what the kernel tells of a process in /proc/PID/stat and /proc/PID/status.
 *
 * A program chooses its own name, and so a part of these texts.
 *
 * Sources: proc_pid_stat(5), proc_pid_status(5).
 */
#ifndef MUSTER_BASE_PROCESS_STAT_H
#define MUSTER_BASE_PROCESS_STAT_H

#include <stdint.h>
#include <sys/types.h>

enum { PROCESS_NAME = 64 };

struct process_stat {
	/* of its program, cut off by the kernel after 15 bytes; control characters are spaces */
	char name[PROCESS_NAME];
	char state; /* such as 'R', 'S', 'D', 'T' or 'Z' */
	pid_t parent;
	double cpu_s;    /* of its threads, those that have ended too */
	double reaped_s; /* of its children that it has waited for, and theirs */
	int64_t start;   /* clock ticks from the boot to its start */
	double rss;      /* bytes */
};

/* Reads the text of /proc/PID/stat, or of /proc/PID/task/TID/stat. -1: it is malformed. */
int process_stat_parse(const char *text, struct process_stat *out);
/* -1: there is no such process, or it cannot be seen. */
int process_stat_read(int pid, struct process_stat *out);
/* Reads the effective user id from the text of /proc/PID/status. -1: it has none. */
int process_owner_parse(const char *text, uid_t *out);
/* -1: there is no such process, or it cannot be seen. */
int process_owner_read(int pid, uid_t *out);

/* Reads the beginning of a file of /proc, as a text. -1: it is empty or cannot be read; `out` is ""
 * then. */
int process_text_read(const char *path, char *out, size_t size);

#endif
