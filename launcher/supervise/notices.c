#include "launcher/supervise/notices.h"

#include "base/human.h"
#include "launcher/notify/notify.h"
#include "launcher/supervise/supervisor.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void supervise_notices_open(struct supervisor *s)
{
	const struct job *job = s->o.job;
	const struct notify_options o = {
		.url = job->notify.url,
		.url_file = job->notify.url_file,
		.secret_file = job->notify.secret_file,
		.ca_file = job->notify.ca_file,
		.command = job->notify.command,
		.slack = job->notify.preset == PRESET_SLACK,
	};
	struct err e = ERR_INIT;
	if (notify_open(&o, &s->notices.notify, &e))
		supervise_terminal_event(s->o.term, TONE_WARN, "notify", "nobody is notified: %s",
					 e.text);
}

void supervise_notices_tick(struct supervisor *s)
{
	char why[NOTIFY_WHY];
	if (s->notices.notify && notify_trouble(s->notices.notify, why))
		supervise_terminal_event(s->o.term, TONE_WARN, "notify", "%s", why);
}

void supervise_notices_close(struct supervisor *s)
{
	struct notify_result r;
	if (!s->notices.notify)
		return;
	supervise_notices_tick(s);
	notify_close(s->notices.notify, NOTICES_LAST_S, &r);
	s->notices.notify = NULL;
	if (r.lost)
		supervise_terminal_event(s->o.term, TONE_WARN, "notify",
					 "%lld notification%s not delivered: %s", (long long)r.lost,
					 r.lost == 1 ? " was" : "s were", r.why);
}

/* Fills what every notification has, and sends it if the job asks for its kind. */
static void send_notice(struct supervisor *s, enum job_notice what, struct notify_message *m)
{
	char host[HOST_NAME_MAX + 1] = "";
	const char *id = getenv("SLURM_JOB_ID");
	if (!s->notices.notify || !job_notice_wanted(s->o.job->notify.on, what))
		return;
	gethostname(host, sizeof host - 1);
	m->event = job_notice_word(what);
	m->run = s->o.job->job.name;
	m->folder = rundir_path(s->o.run);
	m->host = host;
	m->has_job = id && *id;
	m->job = id;
	m->generation = s->generation;
	m->restarts = s->restart.restarts;
	m->has_step = s->step >= 0;
	m->step = s->step;
	m->steps = job_steps(s->o.job);
	m->has_loss = s->step >= 0;
	m->loss = s->last_loss;
	notify_send(s->notices.notify, m);
}

void supervise_notice_ready(struct supervisor *s)
{
	char text[900], from[64] = "the first step";
	if (s->resumed > 0)
		snprintf(from, sizeof from, "step %lld", (long long)s->resumed);
	if (s->first)
		snprintf(text, sizeof text, "%d rank%s train from %s on", s->world,
			 human_s(s->world), from);
	else
		snprintf(text, sizeof text, "%d rank%s train again from %s on%s%s", s->world,
			 human_s(s->world), from, *s->notices.loss ? "; before that: " : "",
			 s->notices.loss);
	*s->notices.loss = '\0';
	send_notice(s, s->first ? JOB_NOTICE_STARTED : JOB_NOTICE_RESTARTED,
		    &(struct notify_message){ .text = text });
}

void supervise_notice_loss(struct supervisor *s, const char *who, const char *why)
{
	bool stalled = s->cause.how == LOST_HUNG || s->cause.how == LOST_SILENT,
	     diverged = s->cause.code == ERR_NUMERIC;
	struct notify_message m = { .text = s->notices.loss,
				    .has_remedy = *s->fault->remedy,
				    .remedy = s->fault->remedy };
	snprintf(s->notices.loss, sizeof s->notices.loss, "%s: %s", who, why);
	if (stalled)
		send_notice(s, JOB_NOTICE_STALLED, &m);
	else if (diverged)
		send_notice(s, JOB_NOTICE_DIVERGED, &m);
}

void supervise_notice_warning(struct supervisor *s, enum warning_id id)
{
	const struct warning *w = &s->warn.rules.list[id];
	const struct warning_rule *r = supervise_warning_rule(id);
	struct notify_message m = { .text = w->text,
				    .has_warning = true,
				    .warning = r->id,
				    .has_holds = true,
				    .holds = w->holds,
				    .has_remedy = w->holds,
				    .remedy = r->remedy };
	send_notice(s, r->slow ? JOB_NOTICE_SLOW : JOB_NOTICE_WARNING, &m);
}

void supervise_notice_end(struct supervisor *s)
{
	bool failed = s->status != STATUS_DONE && s->status != STATUS_STOPPED;
	char text[1200], wall[32];
	struct notify_message m = { .text = text };
	supervise_terminal_duration(supervise_now(s) - s->opened, wall, sizeof wall);
	if (s->status == STATUS_DONE && s->program.ranks)
		snprintf(text, sizeof text, "all tasks have ended with status 0, after %s", wall);
	else if (s->status == STATUS_DONE)
		snprintf(text, sizeof text, "all %lld steps are done, after %s",
			 (long long)s->o.job->job.steps, wall);
	else
		snprintf(text, sizeof text, "after %s: %s", wall, s->reason);
	m.has_remedy = failed && s->fault && *s->fault->remedy;
	m.remedy = m.has_remedy ? s->fault->remedy : NULL;
	send_notice(s,
		    s->status == STATUS_DONE ? JOB_NOTICE_DONE
		    : failed                 ? JOB_NOTICE_FAILED
					     : JOB_NOTICE_STOPPED,
		    &m);
}
