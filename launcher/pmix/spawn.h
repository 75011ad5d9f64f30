/*
 * spawn — one agent process: started so that it cannot outlive the launcher.
 *
 * The child leads a session of its own (a Ctrl-C at the terminal reaches the
 * launcher alone), dies with the launcher's main thread (PR_SET_PDEATHSIG),
 * inherits no descriptor but 0 (/dev/null), 1 and 2 (the log), and runs on the
 * cpus it was given. Its environment is the launcher's without another
 * launch's PMIX_*, PMI_* and MUSTER_* words.
 */
#ifndef MUSTER_LAUNCHER_PMIX_SPAWN_H
#define MUSTER_LAUNCHER_PMIX_SPAWN_H

#include "base/err.h"

#include <sys/types.h>

struct spawn {
	const char *path;      /* the program; its only argument is argv[0] */
	const char *cpus;      /* as of base/pin.h; "" leaves the process unbound */
	char *const *pmix_env; /* NULL-terminated "NAME=value" */
	char *const *own_env;  /* the same; these win over everything */
	char *const *soft_env; /* the same; the launcher's own environment wins */
	int log_fd;
};

/* *pid and *pidfd (close-on-exec, readable once the process has ended) are the caller's. */
int local_spawn_start(const struct spawn *s, pid_t *pid, int *pidfd, struct err *e);
/* SIGKILLs the process and whatever it started in its group. Only before local_spawn_reap has
 * returned 1. */
void local_spawn_kill(pid_t pid);
/* 1 and *status (as of waitpid) when the process has ended, which also ends its group; 0 when it
 * still runs. Status 255 of a process that is gone and that somebody else has waited for. */
int local_spawn_reap(pid_t pid, int *status);

#endif
