#include "launcher/rundir/submissions.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/jsonl.h"
#include "base/run_paths.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { FILE_MAX = 16 << 20 };

typedef struct rundir_submission fields_struct;

static const struct fields_row rows[] = { RUNDIR_SUBMISSION_FIELDS(FIELDS_ROW) FIELDS_END };

int rundir_submissions_append(const char *run, const struct rundir_submission *s, struct err *e)
{
	char path[RUN_PATH];
	struct timespec now;
	struct rundir_submission line = *s;
	clock_gettime(CLOCK_REALTIME, &now);
	line.time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
	run_path(path, run, RUN_SUBMISSIONS);
	json_t *o = fields_json(rows, &line);
	int rc = jsonl_append(path, o, 0600, e);
	json_decref(o);
	return rc;
}

static int take_line(json_t *line, void *arg)
{
	struct rundir_submissions *out = arg;
	struct err why = ERR_INIT;
	if (fields_read(rows, line, "line", &out->of[out->n], &why))
		return 0;
	out->n++;
	return json_array_append(out->lines, line);
}

static size_t count_lines(const char *text, size_t len)
{
	size_t n = 1;
	for (size_t i = 0; i < len; i++)
		n += text[i] == '\n';
	return n;
}

int rundir_submissions_parse(const char *text, size_t len, struct rundir_submissions *out,
			     struct err *e)
{
	*out = (struct rundir_submissions){
		.of = calloc(count_lines(text, len), sizeof *out->of),
		.lines = json_array(),
	};
	int rc = out->of && out->lines ? jsonl_parse(text, len, take_line, out) : -1;
	if (rc) {
		rundir_submissions_free(out);
		return err_set(e, ERR_NOMEM, "no memory for the submissions of the run");
	}
	return 0;
}

int rundir_submissions_read(const char *run, struct rundir_submissions *out, struct err *e)
{
	char path[RUN_PATH];
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	run_path(path, run, RUN_SUBMISSIONS);
	int rc = file_slurp(path, FILE_MAX, &text, &why);
	if (rc && why.code != ERR_NOTFOUND) {
		buf_fini(&text);
		return err_set(e, why.code, "%s", why.text);
	}
	rc = rundir_submissions_parse(buf_str(&text), rc || buf_failed(&text) ? 0 : text.len, out,
				      e);
	buf_fini(&text);
	return rc;
}

void rundir_submissions_free(struct rundir_submissions *s)
{
	json_decref(s->lines);
	free(s->of);
	*s = (struct rundir_submissions){ .n = 0 };
}

int rundir_submissions_find(const struct rundir_submissions *s, const char *job)
{
	int at = s->n - 1;
	while (at >= 0 && strcmp(s->of[at].job, job))
		at--;
	return at;
}
