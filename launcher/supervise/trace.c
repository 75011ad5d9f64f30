/* trace — the flight recorders of a generation that gets nowhere, and what they come to. */
#include "launcher/supervise/state.h"

#include "launcher/child.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void supervise_trace_ask(struct supervisor *s)
{
	for (int r = 0; r < s->world; r++)
		s->ranks[r].dumped = false;
	supervisor_broadcast(s, MSG_DUMP, json_object());
}

bool supervise_trace_complete(const struct supervisor *s)
{
	for (int r = 0; r < s->world; r++)
		if (s->ranks[r].link && !s->ranks[r].dumped)
			return false;
	return true;
}

static const char *get_text(const json_t *o, const char *key)
{
	const char *text = json_string_value(json_object_get(o, key));
	return text ? text : "";
}

/* Why there is no verdict. What it quotes may be anything. */
static void report_failure(struct supervisor *s, const char *why)
{
	char text[PATH_MAX + 300];
	snprintf(text, sizeof text, "%s", why);
	for (char *c = text; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = *c == '\n' ? ' ' : '?';
	supervise_report_event(s, "verdict", json_pack("{s:s}", "error", text));
}

static void on_judged(void *arg, int status, const char *output)
{
	struct supervisor *s = arg;
	bool judged = WIFEXITED(status) && WEXITSTATUS(status) <= 1;
	json_t *o = judged ? json_loads(output, JSON_REJECT_DUPLICATES, NULL) : NULL;
	s->tracer = NULL;
	if (*get_text(o, "text"))
		supervise_report_verdict(s, o);
	else
		report_failure(s, *output ? output
					  : "the program that reads the flight recorders ended "
					    "without a word");
	json_decref(o);
	supervisor_handle(s, EV_VERDICT, NULL, NULL);
}

bool supervise_trace_judge(struct supervisor *s)
{
	char dir[PATH_MAX + 64];
	struct err e = ERR_INIT;
	snprintf(dir, sizeof dir, "%s/trace/gen-%u", rundir_path(s->o.run), s->generation);
	if (access(dir, R_OK))
		return false; /* they had no communicators yet */
	char *argv[] = { (char *)(uintptr_t)s->o.agent, (char[]){ "trace" }, (char[]){ "--json" },
			 dir, NULL };
	struct child_command c = { .argv = argv, .out = -1 };
	if (!launcher_child_watch(s->o.loop, &c, on_judged, s, &s->tracer, &e))
		return true;
	s->tracer = NULL;
	report_failure(s, e.text);
	return false;
}

void supervise_trace_stop(struct supervisor *s)
{
	char why[PATH_MAX + 100];
	if (!s->tracer)
		return;
	snprintf(why, sizeof why,
		 "the flight recorders were not read within %g s; muster trace %s reads them",
		 s->o.limits.trace, rundir_path(s->o.run));
	report_failure(s, why);
	launcher_child_signal(s->tracer, SIGKILL);
	launcher_child_forget(s->tracer);
	s->tracer = NULL;
}
