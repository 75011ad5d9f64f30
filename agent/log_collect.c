/* log_collect: collects the log of this agent, or that of a rank that does not run any more, whose agent may
 * have died while it collected it. */
#include "agent/log_move.h"

#include "base/file.h"
#include "base/segments.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

/* Whether an agent still holds the lock of log_parts.c. */
static bool is_written(const struct agent_log *l)
{
	char path[RUN_PATH];
	segments_path(path, l->folder, l->name, 0);
	int fd = file_open(path, O_RDONLY, FILE_OWN, NULL);
	bool written = fd >= 0 && flock(fd, LOCK_EX | LOCK_NB);
	if (fd >= 0)
		close(fd);
	return written;
}

void agent_log_recover(const struct agent_log *l)
{
	char path[RUN_PATH], next[RUN_PATH + 16];
	segments_path(path, l->shared, l->name, 0);
	snprintf(next, sizeof next, "%s.next", path);
	int in = is_written(l) ? -1 : file_open(next, O_RDONLY, FILE_OWN, NULL);
	if (in < 0)
		return;
	segments_path(path, l->folder, l->name, 0);
	int out = file_open(path, O_WRONLY | O_CREAT | O_APPEND, FILE_OWN, NULL);
	if (out >= 0 && !agent_log_copy(in, out, path, NULL, NULL))
		unlink(next);
	if (out >= 0)
		close(out);
	close(in);
}

int agent_log_collect(struct agent_log *l, const atomic_bool *stop, struct err *e)
{
	pthread_mutex_lock(&l->lock);
	int rc = *l->shared ? agent_log_move(l, stop, e) : 0;
	if (!rc && l->left)
		rc = err_set(e, ERR_IO, "%s: older lines stay on the node", l->name);
	pthread_mutex_unlock(&l->lock);
	return rc;
}

static int collect_dead(struct agent_log *l, const struct agent_log_place *at,
			const atomic_bool *stop, struct err *e)
{
	if (is_written(l))
		return err_set(e, ERR_PEER, "%s/%s: the agent of the rank still writes it",
			       l->folder, l->name);
	agent_log_recover(l);
	if (!agent_log_is_on_node(l))
		return agent_log_is_shared(at)
			       ? 0
			       : err_set(e, ERR_NOTFOUND, "%s/%s: there is no such log", l->folder,
					 l->name);
	return agent_log_move(l, stop, e);
}

int agent_log_collect_of(const struct agent_log_place *at, const atomic_bool *stop, struct err *e)
{
	struct agent_log *l = calloc(1, sizeof *l);
	if (!l)
		return err_set(e, ERR_NOMEM, "no memory to collect a log");
	agent_log_name(l->name, at);
	l->fd = -1;
	snprintf(l->folder, sizeof l->folder, "%s", at->local);
	run_path(l->shared, at->run, RUN_LOGS);
	int rc = collect_dead(l, at, stop, e);
	free(l);
	return rc;
}
