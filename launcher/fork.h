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
pid_t fork_deaf(void);
/* In the child: handlers become default actions, what came in between is forgotten, nothing is blocked any more.
 * Ignored signals stay ignored (nohup), but for SIGPIPE, which only the launcher ignores. */
void fork_hear(void);

#endif
