#include "launcher/exports/from_run.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/messages.h"
#include "launcher/exports/hparams.h"
#include "launcher/exports/series.h"
#include "launcher/exports/tensorboard.h"
#include "launcher/exports/tfevents.h"
#include "plan/spec/job/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { FLUSH = 1 << 20, TEXT_MAX = 16 << 20 };

struct board {
	int fd;
	const char *path;
	struct buf records;
	double began, ended; /* times of the first and the last line */
	uint32_t generation; /* the last one */
	enum exports_tf_status status;
	bool failed;
	struct err why;
};

static void flush(struct board *b)
{
	if (!b->failed && buf_failed(&b->records))
		b->failed = err_set(&b->why, ERR_NOMEM, "%s: no memory to write it", b->path);
	else if (!b->failed && file_write_full(b->fd, b->records.data, b->records.len))
		b->failed = err_errno(&b->why, file_error_code(errno), "%s: cannot write", b->path);
	buf_clear(&b->records);
}

static void note_line(struct board *b, const struct rundir_line *l)
{
	if (!(b->began > 0))
		b->began = l->time;
	if (l->time > b->ended)
		b->ended = l->time;
	if (l->generation > b->generation)
		b->generation = (uint32_t)l->generation;
	if (b->records.len >= FLUSH)
		flush(b);
}

static double number(const struct rundir_line *l, const char *name)
{
	return json_number_value(json_object_get(l->fields, name));
}

static enum exports_tf_status status_of(const char *event, enum exports_tf_status now)
{
	static const struct {
		const char *event;
		enum exports_tf_status status;
	} ends[] = { { "generation-start", TF_UNKNOWN },
		     { "done", TF_SUCCESS },
		     { "failed", TF_FAILURE },
		     { "gave-up", TF_FAILURE } };
	for (size_t i = 0; i < sizeof ends / sizeof *ends; i++)
		if (!strcmp(event, ends[i].event))
			return ends[i].status;
	return now;
}

static void put_event(void *arg, const struct rundir_line *l, int64_t step)
{
	struct board *b = arg;
	note_line(b, l);
	if (!l->has_event)
		return;
	b->status = status_of(l->event, b->status);
	if (!strcmp(l->event, "eval") && step >= 0)
		exports_tb_eval(&b->records, l->time, step, number(l, "loss"));
	else if (!strcmp(l->event, "ckpt") && step >= 0)
		exports_tb_checkpoint(&b->records, l->time, step, number(l, "seconds"),
				      number(l, "stall_s"));
}

static void put_step(void *arg, const struct rundir_line *l, int64_t step)
{
	struct board *b = arg;
	struct msg_metrics m;
	(void)step;
	note_line(b, l);
	/* A line of an older muster may lack fields. */
	(void)msg_metrics_read(l->fields, &m, NULL);
	exports_tb_step(&b->records, l->time, &m, number(l, "predicted_s"));
}

/* Puts a file of the run as text, if it can be read. */
static void put_file(struct board *b, const char *tag, const char *path)
{
	struct buf text = BUF_INIT;
	struct err ignored = ERR_INIT;
	if (!file_slurp_own(path, TEXT_MAX, &text, &ignored))
		exports_tf_text(&b->records, b->began, 0, tag, buf_str(&text));
	buf_fini(&text);
}

static void put_job(struct board *b, const char *run)
{
	static struct job job; /* too large for a small stack */
	char path[RUN_PATH];
	struct err ignored = ERR_INIT;
	run_path(path, run, RUN_JOB);
	if (!job_load(path, NULL, 0, &job, &ignored)) {
		exports_hparams_start(&b->records, b->began, &job);
		exports_hparams_end(&b->records, b->ended, b->status);
	}
	put_file(b, "job", path);
	run_path_plan(path, run, b->generation);
	put_file(b, "plan", path);
}

int exports_tb_from_run(const char *run, const char *folder, char path[RUN_PATH], int64_t *damaged,
			bool *unwritable, struct err *e)
{
	struct board b = { .path = path, .records = BUF_INIT };
	const struct exports_series_reader reader = { put_event, put_step, &b };
	*unwritable = true;
	if (file_make_dirs(folder, e) || exports_tb_create(folder, path, &b.fd, e))
		return -1;
	exports_tf_version(&b.records, clock_wall_s());
	int rc = exports_series_read(run, &reader, damaged, e);
	put_job(&b, run);
	flush(&b);
	if (file_close(b.fd) && !b.failed)
		b.failed = err_errno(&b.why, ERR_IO, "%s: cannot close", path);
	buf_fini(&b.records);
	*unwritable = !rc && b.failed;
	if (*unwritable)
		rc = err_set(e, b.why.code, "%s", b.why.text);
	if (rc)
		unlink(path);
	return rc;
}
