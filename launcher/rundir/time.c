#include "launcher/rundir/time.h"

#include "base/run_paths.h"
#include "base/segments.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	LINE_MAX_BYTES = 8192,  /* a longer one is damaged */
	LAST_BYTES = 64 * 1024, /* the last line is among them */
	CHUNK = 64 * 1024
};

/* A part of a line is at most this many seconds: the sum of all of them, in microseconds, fits. */
static const double most_s = 4e11;

/* clang-format off */

static const struct fields_row *rows(void)
{
	typedef struct rundir_time fields_struct;
	static const struct fields_row table[] = { RUNDIR_TIME_FIELDS(FIELDS_ROW) FIELDS_END };
	return table;
}

static const struct fields_row *line_rows(void)
{
	typedef struct rundir_time_line fields_struct;
	static const struct fields_row table[] = { RUNDIR_TIME_LINE_FIELDS(FIELDS_ROW) FIELDS_END };
	return table;
}

/* clang-format on */

void rundir_time(struct rundir *r, uint32_t generation, const struct rundir_time *t)
{
	rundir_append(r, RUNDIR_TIME, generation, rows(), t);
}

void rundir_time_parts(const struct rundir_time_line *l, int64_t us[TIME_PART_COUNT])
{
#define GET_PART(with, ENUM, member, name, transfers, doc) \
	us[TIME_##ENUM] = llround(1e6 * l->member##_s);
	TIME_PARTS(GET_PART, )
#undef GET_PART
}

void rundir_time_set_parts(struct rundir_time *t, const int64_t us[TIME_PART_COUNT])
{
#define SET_PART(with, ENUM, member, name, transfers, doc) \
	t->member##_s = 1e-6 * (double)us[TIME_##ENUM];
	TIME_PARTS(SET_PART, )
#undef SET_PART
	t->total_s = 1e-6 * (double)time_parts_sum(us);
	t->goodput = time_parts_goodput(us);
}

static bool is_time(double seconds)
{
	return seconds >= 0 && seconds <= most_s;
}

bool rundir_time_read(const json_t *o, struct rundir_time_line *out)
{
	struct err e = ERR_INIT;
	bool good = json_is_object(o) && !fields_read(line_rows(), o, "time", out, &e) &&
		    is_time(out->wall_s) && is_time(out->total_s);
#define CHECK_PART(with, ENUM, member, name, transfers, doc) \
	good = good && is_time(out->member##_s);
	TIME_PARTS(CHECK_PART, )
#undef CHECK_PART
	return good;
}

json_t *rundir_time_json(const struct rundir_time *t, double time, double mono, uint32_t generation)
{
	json_t *o = json_pack("{s:f, s:f, s:I}", "time", time, "mono", mono, "generation",
			      (json_int_t)generation);
	if (!o || !fields_write(rows(), t, o, NULL))
		return o;
	json_decref(o);
	return NULL;
}

bool rundir_time_parse(const char *text, size_t len, struct rundir_time_line *out)
{
	json_t *o = len > LINE_MAX_BYTES ? NULL
					 : json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	bool good = rundir_time_read(o, out);
	json_decref(o);
	return good;
}

struct reading {
	void (*each)(void *arg, const char *text, size_t len);
	void *arg;
	char part[LINE_MAX_BYTES + 1]; /* the beginning of a line */
	size_t len;
	bool whole; /* `part` is from the beginning of the line on */
};

static void end_line(struct reading *r)
{
	if (r->whole)
		r->each(r->arg, r->part, r->len);
	r->len = 0;
	r->whole = true;
}

static void feed(struct reading *r, const char *data, size_t n)
{
	while (n) {
		const char *newline = memchr(data, '\n', n);
		size_t len = newline ? (size_t)(newline - data) : n;
		r->whole = r->whole && r->len + len <= LINE_MAX_BYTES;
		if (r->whole) {
			memcpy(r->part + r->len, data, len);
			r->len += len;
		}
		if (!newline)
			return;
		end_line(r);
		data += len + 1;
		n -= len + 1;
	}
}

/* The end of the file alone. */
static int read_end(const char *run, size_t most, struct reading *r, struct err *e)
{
	struct buf end = BUF_INIT;
	int rc = segments_read_end(run, RUN_TIME, most, &end, e);
	r->whole = end.len < most;
	if (!rc)
		feed(r, buf_str(&end), end.len);
	buf_fini(&end);
	return rc;
}

static int read_all(const char *run, struct reading *r, struct err *e)
{
	struct segments_reader from;
	ssize_t n = -1;
	char *chunk = malloc(CHUNK);
	if (!chunk)
		return err_set(e, ERR_NOMEM, "%s/" RUN_TIME ": no memory to read it", run);
	segments_reader_init(&from, run, RUN_TIME);
	while ((n = segments_read(&from, chunk, CHUNK, e)) > 0)
		feed(r, chunk, (size_t)n);
	segments_reader_fini(&from);
	free(chunk);
	return n ? -1 : 0;
}

int rundir_time_texts(const char *run, size_t most,
		      void (*each)(void *arg, const char *text, size_t len), void *arg,
		      struct err *e)
{
	struct reading r = { .each = each, .arg = arg, .whole = true };
	return most ? read_end(run, most, &r, e) : read_all(run, &r, e);
}

struct parsing {
	void (*each)(void *arg, const struct rundir_time_line *l);
	void *arg;
};

static void parse_line(void *arg, const char *text, size_t len)
{
	const struct parsing *p = arg;
	struct rundir_time_line l;
	if (rundir_time_parse(text, len, &l))
		p->each(p->arg, &l);
}

int rundir_time_each(const char *run, size_t most,
		     void (*each)(void *arg, const struct rundir_time_line *l), void *arg,
		     struct err *e)
{
	return rundir_time_texts(run, most, parse_line, &(struct parsing){ each, arg }, e);
}

struct last {
	struct rundir_time_line *line;
	bool found;
};

static void keep_last(void *arg, const struct rundir_time_line *l)
{
	struct last *last = arg;
	*last->line = *l;
	last->found = true;
}

int rundir_time_last(const char *run, struct rundir_time_line *out, struct err *e)
{
	struct last last = { .line = out };
	if (rundir_time_each(run, LAST_BYTES, keep_last, &last, e))
		return -1;
	return last.found ? 0
			  : err_set(e, ERR_NOTFOUND, "%s/" RUN_TIME ": no line of it can be read",
				    run);
}
