/*
 * processes — the processes of a run on this host.
 *
 * Each run gets a mark of its own in the environment, which all processes that it starts inherit,
 * also through srun. So the drill signals no process of another run, and finds those that are left
 * after the end of a run.
 */
#ifndef MUSTER_LAUNCHER_DRILL_PROCESSES_H
#define MUSTER_LAUNCHER_DRILL_PROCESSES_H

#include "base/err.h"

#include <stdbool.h>
#include <sys/types.h>

enum { DRILL_MARK = 64 };

/* Chooses a new mark, and puts it into the environment of this process's children. */
void drill_mark_new(char mark[DRILL_MARK]);
/* Returns true if a process of this host has the mark. */
bool drill_mark_has(pid_t pid, const char *mark);
/* Lists up to `most` processes that have the mark. Returns their number. */
int drill_mark_list(const char *mark, pid_t *pids, int most);

/* Sends a signal to a process, if it still has the mark. ERR_NOTFOUND: it has not. */
int drill_process_signal(pid_t pid, const char *mark, int signal, struct err *e);
/* The child of `parent` that runs a program of this name, such as "srun"; 0: none does. */
pid_t drill_process_child(pid_t parent, const char *program);
/* The parent of a process, if it runs a program of this name; 0: it does not. */
pid_t drill_process_parent(pid_t pid, const char *program);

/* The number of names in /dev/shm that contain "muster" or "pmix" and that no process has mapped. Those
 * of other runs on this host are mapped. */
int drill_shm_names(void);

#endif
