/*
 * process_spawn — starts this program again as another process, for a tool that must not share its
 * memory.
 *
 * The new process starts without a copy of this one's memory (posix_spawn(3)). Its signals have
 * their default actions, and none is blocked, although this process may block some.
 */
#ifndef MUSTER_BASE_PROCESS_SPAWN_H
#define MUSTER_BASE_PROCESS_SPAWN_H

#include <spawn.h>
#include <stdbool.h>
#include <sys/types.h>

/* argv: all words, the program's name first and NULL last; files: what is done to the descriptors;
 * both borrowed. own_session: it leads a session of its own. 0, or an errno. */
int process_spawn_self(const char *const argv[], const posix_spawn_file_actions_t *files,
		       bool own_session, pid_t *pid);

#endif
