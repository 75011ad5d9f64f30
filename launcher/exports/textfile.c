/* textfile: the numbers of a run in a file for node_exporter's collector of textfiles ([metrics]
 * textfile).
 *
 * The file is replaced at once, so that the collector reads a whole one. It is not synced: after a
 * crash of the host the run is gone as well. The collector runs as another user, so everybody may
 * read the file; nothing secret is in it. It stays after the run, with the state that it ended in. */
#include "base/file.h"
#include "launcher/exports/background.h"
#include "launcher/exports/export_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define END_S 5.0

struct target {
	char path[PATH_MAX];
	char next[PATH_MAX + 32]; /* renamed to `path`; the collector skips its name */
};

static int write_file(const char *path, const char *data, size_t n, struct err *e)
{
	unlink(path); /* of a process that was killed */
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return err_errno(e, file_error_code(errno), "%s: cannot create", path);
	int rc = 0;
	if (file_write_full(fd, data, n) || fchmod(fd, 0644))
		rc = err_errno(e, file_error_code(errno), "%s: cannot write", path);
	if (file_close(fd) && !rc)
		rc = err_errno(e, file_error_code(errno), "%s: cannot close", path);
	return rc;
}

static int replace(void *arg, const char *data, size_t n, struct err *e)
{
	struct target *t = arg;
	int rc = write_file(t->next, data, n, e);
	if (!rc && rename(t->next, t->path))
		rc = err_errno(e, file_error_code(errno), "%s: cannot replace", t->path);
	if (!rc)
		return 0;
	unlink(t->next);
	const struct err why = *e;
	return err_set(e, why.code, "%.800s; metrics.textfile needs a folder that you may write to",
		       why.text);
}

static bool is_wanted(const struct job *job)
{
	return *job->metrics.textfile;
}

static int textfile_open(const struct exports_options *o, void **x, struct err *e)
{
	struct target *t = calloc(1, sizeof *t);
	struct exports_background *b;
	if (!t)
		return err_set(e, ERR_NOMEM, "no memory for the textfile");
	snprintf(t->path, sizeof t->path, "%s", o->job->metrics.textfile);
	snprintf(t->next, sizeof t->next, "%s.%ld.tmp", t->path, (long)getpid());
	if (exports_background_open(&(struct exports_background_options){ .write = replace,
									  .close = free,
									  .arg = t },
				    &b, e))
		return -1;
	*x = b;
	return 0;
}

static bool textfile_text(void *x, const struct buf *prometheus, const struct buf *open_metrics)
{
	(void)open_metrics;
	exports_background_put(x, prometheus->data, prometheus->len);
	return true;
}

static bool textfile_trouble(void *x, struct err *e)
{
	return exports_background_trouble(x, e);
}

static void textfile_close(void *x, enum rundir_state_id state)
{
	(void)state;
	exports_background_close(x, END_S);
}

const struct export_ops exports_textfile = {
	.key = "metrics.textfile",
	.is_wanted = is_wanted,
	.open = textfile_open,
	.close = textfile_close,
	.trouble = textfile_trouble,
	.text = textfile_text,
	.text_s = 5,
};
