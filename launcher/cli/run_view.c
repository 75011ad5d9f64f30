#include "launcher/cli/run_view.h"

#include "base/clock.h"
#include "base/human.h"
#include "launcher/cli/run_time.h"
#include "launcher/rundir/likely.h"
#include "launcher/status.h"
#include "launcher/supervise/terminal.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

int command_run_exit(const struct look *l)
{
	switch (l->id) {
	case RUNDIR_STATE_FAILED:
		return l->state.has_status && l->state.status == STATUS_CANNOT_START
			       ? STATUS_CANNOT_START
			       : STATUS_FAILED;
	case RUNDIR_STATE_GAVE_UP:
		return STATUS_GAVE_UP;
	case RUNDIR_STATE_STOPPED:
		return STATUS_STOPPED;
	case RUNDIR_STATE_LOST:
		return STATUS_LOST;
	default:
		return STATUS_DONE;
	}
}

const char *command_run_age(double seconds, char out[RUN_VIEW_AGE])
{
	static const struct {
		double below, unit;
		const char *name;
	} units[] = { { 120, 1, "s" }, { 7200, 60, "min" }, { 172800, 3600, "h" } };
	size_t i = 0, n = sizeof units / sizeof *units;
	seconds = fmin(fmax(seconds, 0), 1e10);
	while (i < n && seconds >= units[i].below)
		i++;
	if (i < n)
		snprintf(out, RUN_VIEW_AGE, "%.0f %s", floor(seconds / units[i].unit),
			 units[i].name);
	else
		snprintf(out, RUN_VIEW_AGE, "%.0f d", floor(seconds / 86400));
	return out;
}

/* --- JSON ------------------------------------------------------------------------------ */

static json_t *time_json(time_t t)
{
	return t > 0 ? json_integer((json_int_t)t) : json_null();
}

static json_t *text_json(const char *text)
{
	json_t *j = json_string(text);
	return j ? j : json_null(); /* it is not UTF-8 */
}

static json_t *job_json(const struct queue_job *j)
{
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o}", "job", text_json(j->id), "state",
			 text_json(j->state), "reason", text_json(j->reason), "nodes",
			 text_json(j->nodes), "starts", time_json(j->starts), "ends",
			 time_json(j->ends));
}

json_t *command_run_json(const struct look *l)
{
	json_t *o = l->object ? json_copy(l->object) : json_object();
	if (!o)
		return NULL;
	json_object_set_new(o, "run", text_json(l->run));
	json_object_set_new(o, "state", json_string(rundir_state_word(l->id)));
	json_object_set_new(o, "live", json_boolean(l->live));
	json_object_set_new(o, "age_s", l->object ? json_real(l->age) : json_null());
	json_object_set_new(o, "note", text_json(l->note));
	json_object_set_new(o, "queue", l->has_job ? job_json(&l->job) : json_null());
	return o;
}

/* --- text ------------------------------------------------------------------------------ */

/* Prints "  WORD  TEXT"; the text may have come from a file. */
static void line(FILE *out, const char *word, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

static void line(FILE *out, const char *word, const char *fmt, ...)
{
	struct buf text = BUF_INIT;
	va_list ap;
	va_start(ap, fmt);
	buf_vprintf(&text, fmt, ap);
	va_end(ap);
	char *plain = buf_take(&text);
	if (plain)
		human_plain(plain);
	fprintf(out, "  %-11s %s\n", word, plain ? plain : "(no memory)");
	free(plain);
}

static const char *duration(double seconds, char out[32])
{
	return supervise_terminal_duration(seconds, out, 32);
}

static const char *when(double t, char out[32])
{
	struct tm tm;
	time_t at = (time_t)fmin(fmax(t, 0), 1e11);
	strcpy(out, "-");
	if (localtime_r(&at, &tm))
		strftime(out, 32, "%Y-%m-%d %H:%M:%S", &tm);
	return out;
}

static void print_head(const struct look *l, FILE *out)
{
	const struct rundir_state *s = &l->state;
	char since[32], name[256];
	const char *slash = strrchr(l->run, '/');
	snprintf(name, sizeof name, "%.250s", l->object ? s->name : slash ? slash + 1 : l->run);
	human_plain(name);
	fprintf(out, "%s: %s", name, rundir_state_word(l->id));
	if (l->object && rundir_state_find(s->state) == l->id)
		fprintf(out, " since %s", when(s->since, since));
	else if (l->object)
		fprintf(out, ", was %s until %s", s->state, when(s->time, since));
	if (l->object && s->generation)
		fprintf(out, "; generation %lld, %lld restart%s", (long long)s->generation,
			(long long)s->restarts, human_s(s->restarts));
	fputc('\n', out);
}

static void print_progress(const struct look *l, FILE *out)
{
	const struct rundir_state *s = &l->state;
	bool goes_on = s->has_eta_s && rundir_state_active(l->id);
	char left[32], speed[HUMAN], took[HUMAN], plan[HUMAN], likely[RUNDIR_LIKELY];
	double share = s->has_step && s->steps ? 100 * (double)s->step / (double)s->steps : 0;
	rundir_likely_print(s->step_s, s->has_least_s ? s->least_s : 0,
			    s->has_most_s ? s->most_s : 0, likely);
	if (!s->steps) /* of a program */
		line(out, "progress", s->has_step ? "step %lld" : "no step is reported",
		     (long long)s->step);
	else if (s->has_step)
		line(out, "progress", "step %lld of %lld (%.1f %%)%s%s", (long long)s->step,
		     (long long)s->steps, share, goes_on ? ", left: " : "",
		     goes_on ? duration(s->eta_s, left) : "");
	else
		line(out, "progress", "no step of %lld is done", (long long)s->steps);
	if (s->has_loss && !(s->has_grad_norm && s->has_lr))
		line(out, "loss", "%.4f", s->loss);
	else if (s->has_loss)
		line(out, "loss", "%.4f; gradient norm %.3g, learning rate %.2e", s->loss,
		     s->grad_norm, s->lr);
	if (s->has_eval_loss)
		line(out, "held out", "%.4f after step %lld", s->eval_loss,
		     (long long)s->eval_step);
	if (s->has_step_s && !s->steps)
		line(out, "speed", "%s per step", human_seconds(s->step_s, took));
	else if (s->has_step_s && s->predicted_s > 0)
		line(out, "speed", "%s tokens/s, %s per step: %.2f times the predicted %s%s%s",
		     human_count(s->has_tokens_s ? s->tokens_s : 0, "", speed),
		     human_seconds(s->step_s, took), s->step_s / s->predicted_s,
		     human_seconds(s->predicted_s, plan), *likely ? ", " : "", likely);
}

static void print_time(const struct look *l, FILE *out)
{
	const struct rundir_state *s = &l->state;
	struct rundir_goodput time;
	if (l->object && !s->steps && !s->has_step) /* a program that reports no steps */
		return;
	command_run_time_read(l, &time);
	if (time.n)
		command_run_time_print(l->run, &time, out);
	else if (s->has_goodput)
		line(out, "goodput", "%.1f %%", 100 * s->goodput);
	rundir_goodput_fini(&time);
}

/* Nothing is known of how long a program's own checkpoint took. */
static void print_checkpoint(const struct rundir_state_ckpt *c, FILE *out)
{
	char age[RUN_VIEW_AGE], size[HUMAN], took[HUMAN], cost[2 * HUMAN + 8] = "";
	if (c->bytes > 0)
		snprintf(cost, sizeof cost, ", %s in %s", human_bytes((double)c->bytes, size),
			 human_seconds(c->seconds, took));
	line(out, "checkpoint", "step %lld, %s ago%s: %s", (long long)c->step,
	     command_run_age(clock_wall_s() - c->time, age), cost, c->path);
}

static void print_checkpoints(const struct look *l, FILE *out)
{
	const struct rundir_state *s = &l->state;
	struct rundir_state_ckpt c;
	struct rundir_state_next n;
	char left[32];
	if (s->has_checkpoint && !rundir_state_ckpt_read(s->checkpoint, &c, NULL))
		print_checkpoint(&c, out);
	if (s->has_next_checkpoint && rundir_state_active(l->id) &&
	    !rundir_state_next_read(s->next_checkpoint, &n, NULL))
		line(out, "next", "step %lld%s%s", (long long)n.step, n.has_eta_s ? ", in " : "",
		     n.has_eta_s ? duration(n.eta_s, left) : "");
}

static void print_place(const struct look *l, FILE *out)
{
	const struct rundir_state *s = &l->state;
	double left = s->ends - clock_wall_s();
	char text[32], end[32];
	line(out, "ranks", "%d on %d node%s: %s", s->world, s->nodes, human_s(s->nodes), s->layout);
	line(out, "supervisor", "process %d on %s%s%s", s->pid, s->host,
	     s->has_job ? ", Slurm job " : "", s->has_job ? s->job : "");
	if (s->has_ends && rundir_state_active(l->id))
		line(out, "time limit", "%s, in %s", when(s->ends, end), duration(left, text));
}

static void print_lists(const struct rundir_state *s, FILE *out)
{
	for (size_t i = 0; i < json_array_size(s->stand_out); i++) {
		struct rundir_state_spot spot;
		if (rundir_state_spot_read(json_array_get(s->stand_out, i), &spot, NULL))
			continue;
		if (spot.has_rank)
			line(out, "stands out", "rank %d on %s: %s", spot.rank, spot.node,
			     spot.what);
		else
			line(out, "stands out", "node %s: %s", spot.node, spot.what);
	}
	for (size_t i = 0; i < json_array_size(s->warnings); i++) {
		struct rundir_state_warning w;
		if (!rundir_state_warning_read(json_array_get(s->warnings, i), &w, NULL))
			line(out, "warning", "%s%s%s", w.text, w.has_remedy ? "; " : "",
			     w.has_remedy ? w.remedy : "");
	}
}

static void print_job(const struct look *l, FILE *out)
{
	const struct queue_job *j = &l->job;
	char start[32];
	if (!l->has_job)
		return;
	bool waits = console_queue_waits(j);
	line(out, "Slurm", "job %s: %s%s%s%s%s", j->id, j->state, *j->reason ? ", " : "", j->reason,
	     waits && j->starts ? "; expected to start " : "",
	     waits && j->starts ? when((double)j->starts, start) : "");
}

/* The command that goes on with a run. Paths of its job may be relative to the folder in which it was
 * started. */
static void print_continue(const struct look *l, FILE *out)
{
	char here[PATH_MAX], run[PATH_MAX], file[RUN_PATH];
	struct buf command = BUF_INIT;
	bool moved = l->object && getcwd(here, sizeof here) && strcmp(here, l->state.folder) != 0;
	if (!realpath(l->run, run))
		return;
	if (moved) {
		buf_puts(&command, "cd ");
		human_shell_word(l->state.folder, &command);
		buf_puts(&command, " && ");
	}
	buf_puts(&command, l->object && l->state.has_job ? "muster submit " : "muster run ");
	run_path(file, run, RUN_JOB);
	human_shell_word(file, &command);
	line(out, "continue", "%s", buf_str(&command));
	buf_fini(&command);
}

static void print_cancel(const struct look *l, FILE *out)
{
	struct buf run = BUF_INIT;
	human_shell_word(l->run, &run);
	line(out, "cancel", "muster queue cancel %s", buf_str(&run));
	buf_fini(&run);
}

/* What to do about a run that does not go on. */
static void print_remedy(const struct look *l, FILE *out)
{
	switch (l->id) {
	case RUNDIR_STATE_STOPPED:
	case RUNDIR_STATE_LOST:
	case RUNDIR_STATE_GAVE_UP:
	case RUNDIR_STATE_FAILED:
		print_continue(l, out);
		break;
	case RUNDIR_STATE_QUEUED:
		print_cancel(l, out);
		break;
	default:
		break;
	}
}

void command_run_print(const struct look *l, FILE *out)
{
	char age[RUN_VIEW_AGE];
	print_head(l, out);
	if (l->object && l->state.has_reason)
		line(out, "reason", "%s", l->state.reason);
	if (*l->note)
		line(out, "note", "%s", l->note);
	print_job(l, out);
	if (l->object) {
		print_progress(l, out);
		print_time(l, out);
		print_checkpoints(l, out);
		print_place(l, out);
		print_lists(&l->state, out);
	}
	line(out, "folder", "%s", l->run);
	if (l->object && !l->live && rundir_state_active(rundir_state_find(l->state.state)))
		line(out, "as of", "%s ago", command_run_age(l->age, age));
	print_remedy(l, out);
}
