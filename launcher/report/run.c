#include "launcher/report/run.h"

#include "base/file.h"
#include "launcher/console/look.h"
#include "launcher/report/page.h"
#include "launcher/report/sample.h"

#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

enum { PLAN_MAX = 256 << 20, JOB_MAX = 1 << 20, RECENT = 100 };

const char *report_state_word(const struct report_run *r)
{
	if (r->state == RUNDIR_STATE_GAVE_UP)
		return "gave up";
	return r->state < RUNDIR_STATE_COUNT ? rundir_state_word(r->state) : "not started";
}

static void note(struct report_run *r, const char *text)
{
	buf_puts(&r->notes, "<p class=\"note\">");
	report_text(&r->notes, text);
	buf_puts(&r->notes, "</p>\n");
}

const double *report_column(const struct report_run *r, enum rundir_column column)
{
	return r->history.steps.of[column];
}

double report_last(const struct report_run *r, enum rundir_column column)
{
	size_t n = r->history.steps.n;
	return n ? r->history.steps.of[column][n - 1] : NAN;
}

bool report_has_program(const struct report_run *r)
{
	return r->keys && job_has_program(r->keys);
}

bool report_is_opaque(const struct report_run *r)
{
	return report_has_program(r) && !r->history.steps.n;
}

const struct rundir_generation *report_last_generation(const struct report_run *r)
{
	const struct rundir_history *h = &r->history;
	return h->n_generations ? &h->generations[h->n_generations - 1] : NULL;
}

/* Whether a muster holds the lock of the folder. */
static bool is_locked(const char *path)
{
	char lock[RUN_PATH];
	run_path(lock, path, RUN_LOCK);
	int fd = file_open(lock, O_RDONLY, FILE_OWN, NULL);
	if (fd < 0)
		return false;
	bool held = flock(fd, LOCK_SH | LOCK_NB) != 0;
	close(fd);
	return held;
}

/* What a run does that has not written its end. Without state.json, which older versions of muster
 * did not write, only the lock is left. */
static enum rundir_state_id look_at_run(struct report_run *r)
{
	struct look *l = calloc(1, sizeof *l);
	struct err why = ERR_INIT;
	enum rundir_state_id id = RUNDIR_STATE_LOST;
	if (l && !console_look(r->path, LOOK_QUICK, l, &why)) {
		id = l->id;
		if (*l->note)
			note(r, l->note);
		console_look_fini(l);
	} else if (is_locked(r->path)) {
		id = r->history.steps.n ? RUNDIR_STATE_TRAINING : RUNDIR_STATE_STARTING;
	} else if (!r->history.n_generations && !r->history.steps.n) {
		id = RUNDIR_STATE_COUNT;
	}
	free(l);
	return id;
}

static enum rundir_state_id find_state(struct report_run *r)
{
	return r->history.ended ? rundir_state_find(r->history.ended) : look_at_run(r);
}

/* --- Files --------------------------------------------------------------------------- */

static void read_plan(struct report_run *r)
{
	char path[RUN_PATH], text[512];
	struct buf file = BUF_INIT;
	struct err why = ERR_INIT;
	const struct rundir_generation *g = report_last_generation(r);
	if (!g || !g->world) /* a program of the user's own has no plan */
		return;
	run_path_plan(path, r->path, (uint32_t)g->number);
	if (!file_slurp_own(path, PLAN_MAX, &file, &why))
		r->plan = json_loadb(file.data ? file.data : "", file.len, 0, NULL);
	if (!r->plan) {
		snprintf(text, sizeof text,
			 "The plan of generation %lld is missing or damaged, so the rank map and "
			 "the predicted memory are left out.",
			 (long long)g->number);
		note(r, text);
	}
	buf_fini(&file);
}

static void read_job(struct report_run *r)
{
	char path[RUN_PATH];
	struct err why = ERR_INIT;
	run_path(path, r->path, RUN_JOB);
	if (file_slurp_own(path, JOB_MAX, &r->job, &why)) {
		note(r, "The run folder has no job.ini that can be read, so the job and the "
			"simulated schedule are left out.");
		return;
	}
	r->keys = calloc(1, sizeof *r->keys);
	if (r->keys && job_load(path, NULL, 0, r->keys, &why)) {
		free(r->keys);
		r->keys = NULL;
		note(r, "The job.ini of the run is not one that this muster can run, so the "
			"simulated schedule is left out.");
	}
}

static void read_time(struct report_run *r)
{
	struct rundir_goodput *g = &r->time.generations;
	struct err why = ERR_INIT;
	if (rundir_goodput_read(r->path, NULL, g, &why)) {
		note(r, why.text);
		return;
	}
	r->time.sum = rundir_goodput_total_s(&g->all);
	r->time.known = r->time.sum > 0;
	if (!r->time.known)
		return;
	for (int i = 0; i < TIME_PART_COUNT; i++)
		r->time.parts[i] = (double)g->all.us[i] * 1e-6;
	r->time.wall_s = (double)g->all.wall * 1e-6;
	r->time.goodput = rundir_goodput_share(&g->all);
	r->time.devices = g->all.devices < INT32_MAX ? (int)g->all.devices : INT32_MAX;
}

/* --- What follows from them ------------------------------------------------------------- */

static double *new_column(size_t n)
{
	return calloc(n ? n : 1, sizeof(double));
}

/* The first step of a generation warms up caches: its time is drawn, but not counted. */
static void derive_speed(struct report_run *r)
{
	const struct rundir_columns *c = &r->history.steps;
	size_t n = c->n;
	double *counted = new_column(n);
	r->tokens_s = new_column(n);
	r->planned_s = new_column(n);
	r->restarts = new_column(r->history.n_generations + 1);
	if (!counted || !r->tokens_s || !r->planned_s || !r->restarts) {
		free(counted);
		r->history.steps.n = 0;
		return;
	}
	for (size_t i = 0; i < n; i++) {
		double step = c->of[COLUMN_STEP_S][i], plan = c->of[COLUMN_PREDICTED_S][i];
		bool first = !i || c->of[COLUMN_GENERATION][i] != c->of[COLUMN_GENERATION][i - 1];
		r->tokens_s[i] = step > 0 ? c->of[COLUMN_TOKENS][i] / step : NAN;
		r->planned_s[i] = plan > 0 ? c->of[COLUMN_TOKENS][i] / plan : NAN;
		counted[i] = first ? NAN : step;
		if (first && i && r->n_restarts < r->history.n_generations)
			r->restarts[r->n_restarts++] = c->of[COLUMN_STEP][i];
	}
	r->step_s = report_recent(counted, n, RECENT);
	r->predicted_s = n ? c->of[COLUMN_PREDICTED_S][n - 1] : NAN;
	r->predicted_s = r->predicted_s > 0 ? r->predicted_s : NAN;
	free(counted);
}

static void set_name(struct report_run *r)
{
	size_t n = strlen(r->path);
	while (n > 1 && r->path[n - 1] == '/')
		r->path[--n] = '\0';
	const char *slash = strrchr(r->path, '/');
	snprintf(r->name, sizeof r->name, "%s", slash && slash[1] ? slash + 1 : r->path);
}

static void note_damage(struct report_run *r)
{
	char text[200], count[REPORT_WORD];
	if (!r->history.damaged)
		return;
	snprintf(text, sizeof text,
		 "Lines of the run's files that are damaged, and are left out: %s.",
		 report_count(r->history.damaged, count));
	note(r, text);
}

int report_run_read(const char *folder, int number, struct report_run *out, struct err *e)
{
	*out = (struct report_run){ .number = number, .step_s = NAN, .predicted_s = NAN };
	out->time.goodput = out->time.wall_s = NAN;
	snprintf(out->id, sizeof out->id, "r%d", number + 1);
	if (snprintf(out->path, PATH_MAX, "%s", folder) >= PATH_MAX)
		return err_set(e, ERR_USAGE, "%.80s…: the name of the run folder is too long",
			       folder);
	set_name(out);
	if (rundir_history_read(out->path, &out->history, e))
		return -1;
	out->state = find_state(out);
	read_plan(out);
	read_job(out);
	read_time(out);
	derive_speed(out);
	note_damage(out);
	return 0;
}

void report_run_fini(struct report_run *r)
{
	rundir_history_fini(&r->history);
	rundir_goodput_fini(&r->time.generations);
	json_decref(r->plan);
	buf_fini(&r->job);
	buf_fini(&r->notes);
	free(r->keys);
	free(r->tokens_s);
	free(r->planned_s);
	free(r->restarts);
	*r = (struct report_run){ 0 };
}
