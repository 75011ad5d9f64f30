/*
 * spawn — starts one agent process, which cannot outlive the launcher.
 *
 * The child leads a session of its own, so that a Ctrl-C at the terminal reaches only the launcher.
 * It dies with the launcher's main thread (PR_SET_PDEATHSIG), inherits no descriptors but 0
 * (/dev/null), 1 and 2 (the log), and runs on the given CPUs. Its environment is the launcher's
 * without the PMIX_*, PMI_* and MUSTER_* variables of another launch.
 */
#ifndef MUSTER_LAUNCHER_PMIX_SPAWN_H
#define MUSTER_LAUNCHER_PMIX_SPAWN_H

#include "base/err.h"

#include <sys/types.h>

struct spawn {
	const char *path;      /* the program; its only argument is argv[0] */
	const char *cpus;      /* as in base/pin.h; "": the process is not bound */
	char *const *pmix_env; /* NULL-terminated "NAME=value" */
	char *const *own_env;  /* like pmix_env; overrides all others */
	char *const *soft_env; /* like pmix_env; the launcher's environment overrides it */
	int log_fd;
};

/* *pid and *pidfd (close-on-exec, readable once the process has ended) are the caller's. */
int local_spawn_start(const struct spawn *s, pid_t *pid, int *pidfd, struct err *e);
/* Sends SIGKILL to the process and its group. Call only before local_spawn_reap() has returned
 * 1. */
void local_spawn_kill(pid_t pid);
/* 1: the process has ended, and its group is killed; *status as of waitpid, or 255 if another
 * waiter has taken the status. 0: it still runs. */
int local_spawn_reap(pid_t pid, int *status);

#endif
