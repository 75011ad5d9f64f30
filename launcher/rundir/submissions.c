#include "launcher/rundir/submissions.h"

#include "base/buf.h"
#include "base/file.h"
#include "base/run_paths.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { FILE_MAX = 16 << 20 };

typedef struct rundir_submission fields_struct;

static const struct fields_row rows[] = { RUNDIR_SUBMISSION_FIELDS(FIELDS_ROW) FIELDS_END };

/* Whether the last line of the file is incomplete. */
static bool is_torn(int fd)
{
	struct stat st;
	char last = '\n';
	return !fstat(fd, &st) && st.st_size > 0 && pread(fd, &last, 1, st.st_size - 1) == 1 &&
	       last != '\n';
}

static int append_text(const char *path, const char *text, struct err *e)
{
	struct buf line = BUF_INIT;
	int fd = file_open(path, O_RDWR | O_CREAT | O_APPEND, FILE_OWN, e);
	if (fd < 0)
		return -1;
	/* Without locks on this file system, an append that is small enough is whole as a rule. */
	flock(fd, LOCK_EX);
	buf_printf(&line, "%s%s\n", is_torn(fd) ? "\n" : "", text);
	int rc = 0;
	if (buf_failed(&line))
		rc = err_set(e, ERR_NOMEM, "%s: no memory to write it", path);
	else if (file_write_full(fd, line.data, line.len) || fsync(fd))
		rc = err_errno(e, ERR_IO, "%s: cannot write", path);
	buf_fini(&line);
	close(fd);
	return rc;
}

int rundir_submissions_append(const char *run, const struct rundir_submission *s, struct err *e)
{
	char path[RUN_PATH];
	struct timespec now;
	struct rundir_submission line = *s;
	clock_gettime(CLOCK_REALTIME, &now);
	line.time = (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
	run_path(path, run, RUN_SUBMISSIONS);
	json_t *o = fields_json(rows, &line);
	char *text = o ? json_dumps(o, JSON_COMPACT | JSON_PRESERVE_ORDER) : NULL;
	int rc = text ? append_text(path, text, e)
		      : err_set(e, ERR_NOMEM, "%s: no memory to write it", path);
	free(text);
	json_decref(o);
	return rc;
}

/* Damaged lines are skipped. */
static int parse_line(const char *text, size_t len, struct rundir_submissions *out)
{
	struct err why = ERR_INIT;
	json_t *o = json_loadb(text, len, JSON_REJECT_DUPLICATES, NULL);
	if (json_is_object(o) && !fields_read(rows, o, "line", &out->of[out->n], &why)) {
		if (json_array_append(out->lines, o)) {
			json_decref(o);
			return -1;
		}
		out->n++;
	}
	json_decref(o);
	return 0;
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
	int rc = out->of && out->lines ? 0 : -1;
	while (!rc && len > 0) {
		const char *end = memchr(text, '\n', len);
		size_t n = end ? (size_t)(end - text) : len;
		rc = parse_line(text, n, out);
		n += end != NULL;
		text += n;
		len -= n;
	}
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
