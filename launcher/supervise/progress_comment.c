#include "launcher/supervise/progress_comment.h"

#include "launcher/child.h"
#include "launcher/supervise/supervisor.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static void format_time(time_t at, char out[32])
{
	struct tm local;
	if (!localtime_r(&at, &local) || !strftime(out, 32, "%Y-%m-%dT%H:%M:%S", &local))
		*out = '\0';
}

/* When so many more steps after the checkpoint will be done: " next=TIME"; "" if that is not known. */
static void format_after(const struct supervisor *s, const char *name, int64_t steps, char out[48])
{
	char at[32] = "";
	if (steps > 0 && s->step_s > 0 && isfinite(s->step_s))
		format_time(s->comment.saved + (time_t)ceil((double)steps * s->step_s), at);
	snprintf(out, 48, "%s%s%s", *at ? " " : "", *at ? name : "", at);
}

static void write_text(struct supervisor *s, char out[COMMENT_TEXT])
{
	const struct progress_comment *c = &s->comment;
	char saved[32], next[48], eta[48], all[24] = "";
	int64_t planned = job_steps(&s->d->job); /* 0: of a program, which saves when it likes */
	int64_t every = s->o.job->checkpoint.every, left = planned - c->step;
	int64_t steps = every > 0 && every - c->step % every < left ? every - c->step % every
								    : left;
	format_time(c->saved, saved);
	format_after(s, "next=", steps, next);
	format_after(s, "eta=", left, eta);
	if (planned)
		snprintf(all, sizeof all, "/%lld", (long long)planned);
	snprintf(out, COMMENT_TEXT,
		 "muster step=%lld%s saved=%s%s stop_s=%.0f nodes=%d%s goodput=%.2f",
		 (long long)c->step, all, saved, next, ceil(supervise_stop_seconds(s)),
		 s->d->cluster.n_nodes, eta, time_parts_goodput(supervise_times_parts(s)));
}

static void warn_once(struct supervisor *s, const struct err *e)
{
	if (!s->comment.warned)
		supervise_terminal_event(s->o.term, TONE_WARN, "comment",
					 "the job's comment cannot be set: %s", e->text);
	s->comment.warned = true;
}

static void on_set(void *arg, int status, const char *output)
{
	struct supervisor *s = arg;
	struct err e = ERR_INIT;
	s->comment.child = NULL;
	if (launcher_child_result("scontrol", status, output, &e))
		warn_once(s, &e);
}

void supervise_comment_note_ckpt(struct supervisor *s, int64_t step)
{
	s->comment.due = true;
	s->comment.step = step;
	s->comment.saved = time(NULL);
}

void supervise_comment_tick(struct supervisor *s)
{
	struct progress_comment *c = &s->comment;
	double now = supervise_now(s);
	char text[COMMENT_TEXT];
	struct err e = ERR_INIT;
	if (!c->due || c->child || (c->set > 0 && now - c->set < COMMENT_S))
		return;
	c->due = false;
	if (!s->o.job->slurm.progress_comment || *s->o.job->slurm.comment || !s->o.ops->comment ||
	    !s->o.ops->own_job || !s->o.ops->own_job())
		return;
	c->set = now;
	write_text(s, text);
	if (!s->o.ops->comment(s->o.loop, text, on_set, s, &c->child, &e))
		return;
	c->child = NULL;
	warn_once(s, &e);
}

void supervise_comment_close(struct supervisor *s)
{
	struct child *c = s->comment.child;
	s->comment.child = NULL;
	if (!c)
		return;
	launcher_child_signal(c, SIGKILL);
	launcher_child_forget(c);
}
