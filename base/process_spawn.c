#include "base/process_spawn.h"

#include <signal.h>
#include <stdint.h>
#include <unistd.h>

static int set_attributes(posix_spawnattr_t *a, bool own_session)
{
	sigset_t all, none;
	int flags = POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF |
		    (own_session ? POSIX_SPAWN_SETSID : 0);
	sigfillset(&all);
	sigemptyset(&none);
	return posix_spawnattr_setsigmask(a, &none) || posix_spawnattr_setsigdefault(a, &all) ||
	       posix_spawnattr_setflags(a, (short)flags);
}

int process_spawn_self(const char *const argv[], const posix_spawn_file_actions_t *files,
		       bool own_session, pid_t *pid)
{
	posix_spawnattr_t attributes;
	posix_spawnattr_init(&attributes);
	int rc = set_attributes(&attributes, own_session);
	if (!rc) /* it writes into none of the words */
		rc = posix_spawn(pid, "/proc/self/exe", files, &attributes,
				 (char *const *)(uintptr_t)argv, environ);
	posix_spawnattr_destroy(&attributes);
	return rc;
}
