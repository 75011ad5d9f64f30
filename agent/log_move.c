/* log_move: moves a log from the folder of its node to the run folder.
 *
 * Each file becomes a part there, also the last one; then a new file begins. So nothing that is written
 * meanwhile comes before what is older, and a reader that sees the new file sees all parts. A file gets its name
 * once it is complete. */
#include "agent/log_move.h"

#include "base/file.h"
#include "base/log.h"
#include "base/segments.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { BLOCK = 1 << 18 };

struct move {
	struct agent_log *log;
	const atomic_bool *stop;
	struct segments parts;     /* in the folder of the node */
	uint32_t next;             /* the number of the next part in the run folder */
	char part[RUN_PATH + 16];  /* the file that becomes it */
	char fresh[RUN_PATH + 16]; /* the file that becomes the one that is written */
};

int agent_log_copy(int in, int out, const char *what, const atomic_bool *stop, struct err *e)
{
	char *block = malloc(BLOCK);
	ssize_t n = -1;
	int rc = 0;
	if (!block)
		return err_set(e, ERR_NOMEM, "%s: no memory to write it", what);
	while (!rc && ((n = read(in, block, BLOCK)) > 0 || (n < 0 && errno == EINTR))) {
		if (stop && atomic_load(stop))
			rc = err_set(e, ERR_ABORTED, "%s: the agent ends", what);
		else if (n > 0 && file_write_full(out, block, (size_t)n))
			rc = err_errno(e, file_error_code(errno), "%s: cannot write", what);
	}
	if (!rc && n < 0)
		rc = err_errno(e, ERR_IO, "%s: cannot read what it is made of", what);
	free(block);
	return rc;
}

static int open_copies(const struct move *m, uint32_t number, int *in, int *out, struct err *e)
{
	char path[RUN_PATH];
	segments_path(path, m->log->folder, m->log->name, number);
	*in = file_open(path, O_RDONLY, FILE_OWN, e);
	if (*in < 0)
		return -1;
	*out = file_open(m->part, O_WRONLY | O_CREAT | O_TRUNC, FILE_OWN, e);
	if (*out >= 0)
		return 0;
	close(*in);
	return -1;
}

static void remove_old(const struct move *m, uint32_t number)
{
	char path[RUN_PATH];
	segments_path(path, m->log->folder, m->log->name, number);
	unlink(path);
}

static int rename_to(const char *from, const struct move *m, uint32_t number, struct err *e)
{
	char path[RUN_PATH];
	segments_path(path, m->log->shared, m->log->name, number);
	return rename(from, path) ? err_errno(e, file_error_code(errno), "%s: cannot make it", path)
				  : 0;
}

static int copy_part(struct move *m, uint32_t number, struct err *e)
{
	int in, out;
	if (open_copies(m, number, &in, &out, e))
		return -1;
	int rc = agent_log_copy(in, out, m->part, m->stop, e);
	close(in);
	if (close(out) && !rc)
		rc = err_errno(e, file_error_code(errno), "%s: cannot write", m->part);
	if (rc || rename_to(m->part, m, m->next, e))
		return -1;
	m->next++;
	remove_old(m, number);
	return 0;
}

/* Makes the log go on in a new file, which gets its name later (end_move). */
static int open_fresh(const struct move *m, struct err *e)
{
	const struct agent_log *l = m->log;
	int fd = file_open(m->fresh, O_WRONLY | O_CREAT | O_EXCL | O_APPEND, FILE_OWN, e);
	if (fd < 0)
		return -1;
	int rc = l->fd >= 0 && log_replace(fd, 0)
			 ? err_errno(e, ERR_NOMEM, "%s: no descriptor", m->fresh)
			 : 0;
	close(fd);
	if (rc)
		unlink(m->fresh);
	return rc;
}

/* Completes the part with the lines that were written after the first copy, and makes the log go on
 * in the run folder. If the part cannot be completed, the old file stays. Closes `out`. */
static int end_move(struct move *m, int in, int out, struct err *e)
{
	struct agent_log *l = m->log;
	int rc = agent_log_copy(in, out, m->part, NULL, e);
	if (close(out) && !rc)
		rc = err_errno(e, file_error_code(errno), "%s: cannot write", m->part);
	if (!rc)
		rc = rename_to(m->part, m, m->next, e);
	if (!rc)
		remove_old(m, 0);
	if (rename_to(m->fresh, m, 0, rc ? NULL : e))
		rc = -1;
	l->left = rc != 0;
	memcpy(l->folder, l->shared, sizeof l->folder);
	*l->shared = '\0';
	return rc;
}

/* The lock of log_parts.c is on the file until it has moved. */
static int move_current(struct move *m, struct err *e)
{
	int in, out;
	if (open_copies(m, 0, &in, &out, e))
		return -1;
	flock(in, LOCK_SH | LOCK_NB);
	int rc = agent_log_copy(in, out, m->part, m->stop, e) || open_fresh(m, e) ? -1 : 0;
	if (rc)
		close(out);
	else
		rc = end_move(m, in, out, e);
	close(in);
	return rc;
}

/* The file that is written becomes the next part, if one of an earlier generation is there. */
static int begin(struct move *m, struct err *e)
{
	struct agent_log *l = m->log;
	char path[RUN_PATH];
	segments_path(path, l->shared, l->name, 0);
	m->next = agent_log_last_part(l->shared, l->name) + 1;
	if (m->parts.n &&
	    m->parts.numbers[0] > m->next) /* so a reader finds the part that it reads */
		m->next = m->parts.numbers[0];
	if (!file_exists(path))
		return 0;
	return rename_to(path, m, m->next++, e);
}

static int copy_parts(struct move *m, struct err *e)
{
	int rc = 0;
	for (int i = 0; i < m->parts.n && !rc; i++)
		rc = copy_part(m, m->parts.numbers[i], e);
	return rc;
}

static int move_all(struct move *m, struct err *e)
{
	struct agent_log *l = m->log;
	if (segments_list(l->folder, l->name, &m->parts, e))
		return -1;
	int rc = begin(m, e) || copy_parts(m, e) || move_current(m, e) ? -1 : 0;
	segments_free(&m->parts);
	if (rc)
		unlink(m->part);
	return rc;
}

bool agent_log_is_on_node(const struct agent_log *l)
{
	char path[RUN_PATH];
	segments_path(path, l->folder, l->name, 0);
	return file_exists(path);
}

/* Somebody has removed the log while it was written: what follows is in the run folder. */
static int go_on_there(struct move *m, struct err *e)
{
	struct agent_log *l = m->log;
	if (open_fresh(m, e) || rename_to(m->fresh, m, 0, e))
		return -1;
	err_set(e, ERR_NOTFOUND, "%s/%s: the log was removed; from now on it is in the run folder",
		l->folder, l->name);
	memcpy(l->folder, l->shared, sizeof l->folder);
	*l->shared = '\0';
	return -1;
}

int agent_log_move(struct agent_log *l, const atomic_bool *stop, struct err *e)
{
	char path[RUN_PATH];
	struct move *m = calloc(1, sizeof *m); /* too large for a small stack */
	if (!m)
		return err_set(e, ERR_NOMEM, "%s: no memory to collect it", l->name);
	m->log = l;
	m->stop = stop;
	segments_path(path, l->shared, l->name, 0);
	snprintf(m->part, sizeof m->part, "%s.part", path);
	snprintf(m->fresh, sizeof m->fresh, "%s.next", path);
	int rc = agent_log_is_on_node(l) ? move_all(m, e) : go_on_there(m, e);
	free(m);
	return rc;
}
