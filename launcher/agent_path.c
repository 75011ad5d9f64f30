#include "launcher/agent_path.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int launcher_self_path(char *path, size_t size, struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", path, size - 1);
	path[n > 0 ? n : 0] = '\0';
	return n > 0 && (size_t)n < size - 1
		       ? 0
		       : err_set(e, ERR_NOTFOUND,
				 "cannot read the path of this program from /proc/self/exe");
}

int launcher_agent_path(char *path, size_t size, struct err *e)
{
	static const char *const places[] = { "muster-agent", "../libexec/muster/muster-agent" };
	const char *named = getenv("MUSTER_AGENT");
	char self[PATH_MAX];
	if (named && *named) {
		if (access(named, X_OK))
			return err_errno(e, ERR_NOTFOUND,
					 "%s: the agent that MUSTER_AGENT names cannot be executed",
					 named);
		snprintf(path, size, "%s", named);
		return 0;
	}
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = '\0';
	char *slash = strrchr(self, '/');
	if (!slash)
		return err_set(e, ERR_NOTFOUND,
			       "cannot read the path of this program from /proc/self/exe; set "
			       "MUSTER_AGENT to the "
			       "path of muster-agent");
	*slash = '\0';
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		char at[PATH_MAX + 64], whole[PATH_MAX];
		snprintf(at, sizeof at, "%s/%s", self, places[i]);
		if (!access(at, X_OK) && realpath(at, whole)) {
			snprintf(path, size, "%s", whole);
			return 0;
		}
	}
	return err_set(e, ERR_NOTFOUND,
		       "muster-agent is neither in %s nor in %s/../libexec/muster; build it with "
		       "make, or set "
		       "MUSTER_AGENT to its path",
		       self, self);
}

int launcher_cuda_library(char *path, size_t size, struct err *e)
{
	char named[PATH_MAX], agent[PATH_MAX];
	if (launcher_agent_path(named, sizeof named, e))
		return -1;
	if (!realpath(named, agent))
		return err_errno(e, ERR_NOTFOUND, "%.600s", named);
	*strrchr(agent, '/') = '\0';
	int n = snprintf(path, size, "%s/libmuster-cuda.so", agent);
	if (n < 0 || (size_t)n >= size || access(path, F_OK))
		return err_set(e, ERR_NOTFOUND, "it is not in the folder of muster-agent, %.600s",
			       agent);
	return 0;
}
