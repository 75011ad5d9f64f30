#include "launcher/rundir/follow.h"

#include "base/file.h"
#include "base/run_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int read_line(const json_t *o, struct rundir_line *l)
{
	typedef struct rundir_line fields_struct;
	static const struct fields_row rows[] = { RUNDIR_LINE_FIELDS(FIELDS_ROW) FIELDS_END };
	struct err why = ERR_INIT;
	int rc = fields_read(rows, o, "line", l, &why);
	l->fields = o;
	return rc;
}

static void parse_line(struct rundir_lines *l, const char *text, size_t n,
		       void (*line)(void *arg, const struct rundir_line *l), void *arg)
{
	struct rundir_line parsed;
	if (!n)
		return; /* a blank line ends a line that was cut */
	json_t *o = n > RUNDIR_LINE_MAX ? NULL : json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(o) && !read_line(o, &parsed))
		line(arg, &parsed);
	else
		l->damaged++;
	json_decref(o);
}

/* Keeps the beginning of a line whose end has not come yet. */
static void keep_part(struct rundir_lines *l, const char *data, size_t n)
{
	if (l->skipping)
		return;
	if (l->part.len + n <= RUNDIR_LINE_MAX)
		buf_add(&l->part, data, n);
	if (l->part.len + n > RUNDIR_LINE_MAX || buf_failed(&l->part)) {
		buf_fini(&l->part);
		l->part = (struct buf)BUF_INIT;
		l->skipping = true;
		l->damaged++;
	}
}

void rundir_lines_feed(struct rundir_lines *l, const char *data, size_t n,
		       void (*line)(void *arg, const struct rundir_line *l), void *arg)
{
	for (const char *end; n && (end = memchr(data, '\n', n));) {
		size_t len = (size_t)(end - data);
		if (l->part.len || l->skipping) {
			keep_part(l, data, len);
			if (!l->skipping)
				parse_line(l, l->part.data, l->part.len, line, arg);
			buf_clear(&l->part);
			l->skipping = false;
		} else {
			parse_line(l, data, len, line, arg);
		}
		n -= len + 1;
		data = end + 1;
	}
	if (n)
		keep_part(l, data, n);
}

void rundir_lines_fini(struct rundir_lines *l)
{
	buf_fini(&l->part);
}

struct followed {
	char path[RUN_PATH];
	int fd; /* -1: the file does not exist yet */
	off_t at;
	struct rundir_lines lines;
};

struct rundir_follower {
	struct followed events, metrics;
	struct rundir_reader reader;
};

static void follow_file(struct followed *f, const char *run, const char *name)
{
	run_path(f->path, run, name);
	f->fd = -1;
}

int rundir_follow_open(const char *run, const struct rundir_reader *reader,
		       struct rundir_follower **out, struct err *e)
{
	struct rundir_follower *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(e, ERR_NOMEM, "%s: no memory to follow the run", run);
	f->reader = *reader;
	follow_file(&f->events, run, RUN_EVENTS);
	follow_file(&f->metrics, run, RUN_METRICS);
	*out = f;
	return 0;
}

static int read_more(struct followed *f, void (*line)(void *arg, const struct rundir_line *l),
		     void *arg, struct err *e)
{
	char data[8192];
	struct err why = ERR_INIT;
	if (f->fd < 0 && (f->fd = file_open(f->path, O_RDONLY, FILE_OWN, &why)) < 0)
		return why.code == ERR_NOTFOUND ? 0 : err_set(e, why.code, "%s", why.text);
	for (;;) {
		ssize_t n = pread(f->fd, data, sizeof data, f->at);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return err_errno(e, ERR_IO, "%s: cannot read", f->path);
		if (!n)
			return 0;
		f->at += n;
		rundir_lines_feed(&f->lines, data, (size_t)n, line, arg);
	}
}

int rundir_follow_read(struct rundir_follower *f, struct err *e)
{
	return read_more(&f->events, f->reader.event, f->reader.arg, e) ||
			       read_more(&f->metrics, f->reader.metrics, f->reader.arg, e)
		       ? -1
		       : 0;
}

int64_t rundir_follow_damaged(const struct rundir_follower *f)
{
	return f->events.lines.damaged + f->metrics.lines.damaged;
}

void rundir_follow_close(struct rundir_follower *f)
{
	if (!f)
		return;
	struct followed *files[] = { &f->events, &f->metrics };
	for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
		if (files[i]->fd >= 0)
			close(files[i]->fd);
		rundir_lines_fini(&files[i]->lines);
	}
	free(f);
}
