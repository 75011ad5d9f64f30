#include "launcher/rundir/follow.h"

#include "base/run_paths.h"
#include "base/segments.h"
#include "launcher/rundir/output.h"

#include <stdlib.h>

static int read_line(const json_t *o, struct rundir_line *l)
{
	typedef struct rundir_line fields_struct;
	static const struct fields_row rows[] = { RUNDIR_LINE_FIELDS(FIELDS_ROW) FIELDS_END };
	struct err why = ERR_INIT;
	int rc = fields_read(rows, o, "line", l, &why);
	l->fields = o;
	return rc;
}

struct feeding {
	struct rundir_lines *lines;
	void (*line)(void *arg, const struct rundir_line *l);
	void *arg;
};

static void parse_line(void *arg, const char *text, size_t n)
{
	struct feeding *f = arg;
	struct rundir_line parsed;
	struct rundir_head head;
	json_t *o;
	if (!n)
		return; /* a blank line ends a line that was cut */
	if (rundir_head_read(text, n, &head, &o)) {
		if (head.version > RUNDIR_VERSION)
			f->lines->newer = head.version;
		json_decref(o);
		return;
	}
	o = json_loadb(text, n, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(o) && !read_line(o, &parsed))
		f->line(f->arg, &parsed);
	else
		f->lines->damaged++;
	json_decref(o);
}

void rundir_lines_feed(struct rundir_lines *l, const char *data, size_t n,
		       void (*line)(void *arg, const struct rundir_line *l), void *arg)
{
	struct feeding f = { l, line, arg };
	l->damaged -= l->split.too_long;
	rundir_split_feed(&l->split, data, n, parse_line, &f);
	l->damaged += l->split.too_long;
}

void rundir_lines_fini(struct rundir_lines *l)
{
	rundir_split_fini(&l->split);
}

struct followed {
	struct segments_reader reader;
	struct rundir_lines lines;
};

struct rundir_follower {
	struct followed events, metrics;
	struct rundir_reader reader;
};

int rundir_follow_open(const char *run, const struct rundir_reader *reader,
		       struct rundir_follower **out, struct err *e)
{
	struct rundir_follower *f = calloc(1, sizeof *f);
	if (!f)
		return err_set(e, ERR_NOMEM, "%s: no memory to follow the run", run);
	f->reader = *reader;
	segments_reader_init(&f->events.reader, run, RUN_EVENTS);
	segments_reader_init(&f->metrics.reader, run, RUN_METRICS);
	*out = f;
	return 0;
}

static int read_more(struct followed *f, void (*line)(void *arg, const struct rundir_line *l),
		     void *arg, struct err *e)
{
	char data[8192];
	ssize_t n;
	while ((n = segments_read(&f->reader, data, sizeof data, e)) > 0) {
		rundir_lines_feed(&f->lines, data, (size_t)n, line, arg);
		if (f->lines.newer)
			return rundir_head_check(&(struct rundir_head){ .format = f->reader.name,
									.version = f->lines.newer },
						 f->reader.folder, e);
	}
	return n < 0 ? -1 : 0;
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
		segments_reader_fini(&files[i]->reader);
		rundir_lines_fini(&files[i]->lines);
	}
	free(f);
}
