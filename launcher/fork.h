/*
 * fork — fork() in a process whose signals a libuv loop handles.
 *
 * A handler that ran in the child would write into the pipe that it shares with the launcher: one
 * Ctrl-C would count twice, and a second Ctrl-C ends a run at once. So the child starts with every
 * signal blocked and resets its handlers once it has left the launcher's session or process group.
 * Both functions are async-signal-safe.
 */
#ifndef MUSTER_LAUNCHER_FORK_H
#define MUSTER_LAUNCHER_FORK_H

#include <sys/types.h>

/* Like fork(), but every signal is blocked in the child. */
pid_t launcher_fork_blocked(void);
/* In the child: replaces handlers by the default actions, drops the signals that came meanwhile,
 * and calls process_signals() (base/process.h). Then no signal is blocked, and only SIGHUP may be
 * ignored (under nohup). */
void launcher_fork_reset_signals(void);

#endif
