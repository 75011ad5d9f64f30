#include "agent/tools/trace_steps.h"

#include "agent/tools/step_clocks.h"
#include "base/file.h"
#include "launcher/rundir/traces.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct work {
	const struct trace_picture *p;
	struct trace_picture_result *out;
	char dir[RUN_PATH];
	int *ranks, n, room; /* that have files and are chosen, ascending */
	struct step_clocks *clocks;
	int fd; /* of the temporary file */
};

/* --- The files --- */

static int find_folder(struct work *w, struct err *e)
{
	const char *from = w->p->from;
	if (rundir_trace_has(from, run_steps_rank)) {
		snprintf(w->dir, sizeof w->dir, "%s", from);
		return 0;
	}
	if (rundir_last_trace(from, run_steps_rank, w->dir))
		return 0;
	return err_set(
		e, ERR_NOTFOUND,
		"%s: neither the folder nor its trace/gen-N holds files steps-RANK.json: no "
		"steps were recorded; run the job with trace.steps=FIRST-LAST, and wait until "
		"these steps are done, or ask a running run with --next N",
		from);
}

static int by_rank(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

static int add_rank(struct work *w, long rank, struct err *e)
{
	if (w->p->ranks->n && !ranges_count(w->p->ranks, rank, rank + 1))
		return 0;
	if (w->n == w->room) {
		int room = w->room ? 2 * w->room : 64;
		int *ranks = realloc(w->ranks, (size_t)room * sizeof *ranks);
		if (!ranks)
			return err_set(e, ERR_NOMEM, "%s: no memory for %d ranks", w->dir, room);
		w->ranks = ranks;
		w->room = room;
	}
	w->ranks[w->n++] = (int)rank;
	return 0;
}

static int list_ranks(struct work *w, struct err *e)
{
	int rc = 0;
	DIR *d = opendir(w->dir);
	if (!d)
		return err_errno(e, ERR_IO, "%s: cannot read the folder", w->dir);
	for (struct dirent *at; !rc && (at = readdir(d));)
		if (run_steps_rank(at->d_name) >= 0)
			rc = add_rank(w, run_steps_rank(at->d_name), e);
	closedir(d);
	if (rc)
		return -1;
	if (!w->n)
		return err_set(e, ERR_NOTFOUND, "%s: none of the chosen ranks has a file there",
			       w->dir);
	qsort(w->ranks, (size_t)w->n, sizeof *w->ranks, by_rank);
	return 0;
}

static int each_file(struct work *w,
		     int (*use)(struct work *, const struct step_file *, struct err *),
		     struct err *e)
{
	int rc = 0;
	for (int i = 0; i < w->n && !rc; i++) {
		char path[RUN_PATH];
		struct step_file f;
		run_path_steps(path, w->dir, w->ranks[i]);
		if (tool_step_file_read(path, &f, e))
			return -1;
		rc = f.rank == w->ranks[i]
			     ? use(w, &f, e)
			     : err_set(e, ERR_CORRUPT, "%s: the file is of rank %d", path, f.rank);
		tool_step_file_free(&f);
	}
	return rc;
}

/* --- The picture --- */

static int note_file(struct work *w, const struct step_file *f, struct err *e)
{
	if (tool_step_clocks_add(&w->clocks, f, e))
		return -1;
	if (f->last < w->p->steps.first || f->first > w->p->steps.last) {
		w->out->others++;
		return 0;
	}
	int64_t first = f->first > w->p->steps.first ? f->first : w->p->steps.first;
	int64_t last = f->last < w->p->steps.last ? f->last : w->p->steps.last;
	w->out->first = w->out->ranks && w->out->first < first ? w->out->first : first;
	w->out->last = w->out->last > last ? w->out->last : last;
	w->out->ranks++;
	w->out->lost += f->lost;
	return 0;
}

static int write_text(struct work *w, struct buf *text, struct err *e)
{
	int rc = 0;
	if (buf_failed(text))
		rc = err_set(e, ERR_NOMEM, "%s: no memory for the picture; choose fewer steps",
			     w->p->to);
	else if (file_write_full(w->fd, text->data, text->len))
		rc = err_errno(e, file_error_code(errno), "%s: cannot write the picture", w->p->to);
	buf_fini(text);
	return rc;
}

static int write_file(struct work *w, const struct step_file *f, struct err *e)
{
	struct buf text = BUF_INIT;
	double ahead = tool_step_clocks_offset(w->clocks, f);
	w->out->most_ahead_us = fmax(w->out->most_ahead_us, fabs(ahead));
	tool_trace_events(&text, f, &w->p->steps, ahead, tool_step_clocks_origin(w->clocks),
			  &w->out->events);
	return write_text(w, &text, e);
}

static int write_picture(struct work *w, struct err *e)
{
	struct buf text = BUF_INIT;
	buf_puts(&text, "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n");
	if (write_text(w, &text, e) || each_file(w, write_file, e))
		return -1;
	buf_puts(&text, "\n]}\n");
	return write_text(w, &text, e);
}

/* The file is complete or unchanged. */
static int replace_file(struct work *w, struct err *e)
{
	char temporary[RUN_PATH];
	snprintf(temporary, sizeof temporary, "%s.%d.tmp", w->p->to, (int)getpid());
	w->fd = file_open(temporary, O_WRONLY | O_CREAT | O_EXCL, FILE_REGULAR, e);
	if (w->fd < 0)
		return -1;
	int rc = write_picture(w, e);
	close(w->fd);
	if (!rc && rename(temporary, w->p->to))
		rc = err_errno(e, file_error_code(errno), "%s: cannot replace the file", w->p->to);
	if (rc)
		unlink(temporary);
	return rc;
}

int tool_trace_steps(const struct trace_picture *p, struct trace_picture_result *out, struct err *e)
{
	struct work w = { .p = p, .out = out };
	*out = (struct trace_picture_result){ 0 };
	int rc = find_folder(&w, e) || list_ranks(&w, e) || each_file(&w, note_file, e) ? -1 : 0;
	if (!rc && !out->ranks)
		rc = err_set(e, ERR_NOTFOUND, "%s: the chosen steps were not recorded", w.dir);
	out->read = !rc;
	if (!rc)
		rc = replace_file(&w, e);
	tool_step_clocks_free(w.clocks);
	free(w.ranks);
	return rc;
}
