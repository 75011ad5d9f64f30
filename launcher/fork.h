/*
 * fork — forking from a process whose signals a libuv loop handles.
 *
 * A handler that runs in the child writes into the pipe that it shares with
 * the launcher: one Ctrl-C would be heard twice, and a second one ends a run at
 * once. So the child begins deaf, and hears again once it has left the
 * launcher's session or process group, with default actions. Async-signal-safe.
 */
#ifndef MUSTER_LAUNCHER_FORK_H
#define MUSTER_LAUNCHER_FORK_H

#include <sys/types.h>

/* As fork(); every signal is blocked in the child. */
pid_t launcher_fork_blocked(void);
/* In the child: handlers become default actions and what came in between is forgotten; then as
 * process_signals (base/process.h), so that nothing is ignored but SIGHUP under nohup, and nothing
 * is blocked. */
void launcher_fork_reset_signals(void);

#endif
