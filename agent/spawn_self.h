/*
 * spawn_self — starts this program again as one of its own tools (agent/tools/), as a new process.
 *
 * The process starts without a copy of the agent's memory (posix_spawn(3)). Its signals have their
 * default actions, and none is blocked, although the agent blocks some.
 */
#ifndef MUSTER_AGENT_SPAWN_SELF_H
#define MUSTER_AGENT_SPAWN_SELF_H

#include <spawn.h>
#include <stdbool.h>
#include <sys/types.h>

/* tool: its name; word: its only argument, or NULL. files: what is done to the descriptors; borrowed.
 * own_session: it leads a session of its own. 0, or an errno. */
int agent_spawn_self(const char *tool, const char *word, const posix_spawn_file_actions_t *files,
		     bool own_session, pid_t *pid);

#endif
