/* verdict: asks the agents for their flight recorders and has muster-agent trace read them. */
#include "base/human.h"
#include "base/run_paths.h"
#include "launcher/child.h"
#include "launcher/supervise/supervisor.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* A rank that blames a peer is rarely the cause itself. The loss of the rank that is the cause
 * follows within moments. */
bool supervise_blames_another(const struct lost_rank *l)
{
	return l->how == LOST_FAILED && (l->code == ERR_PEER || l->code == ERR_ABORTED ||
					 l->code == ERR_NET || l->code == ERR_TIMEOUT);
}

/* Flight recorders explain why ranks wait, but rarely why one died. A generation whose agents have
 * not connected has none. */
bool supervise_verdict_needed(const struct supervisor *s)
{
	const struct lost_rank *l = &s->cause;
	return s->state != SUP_STARTING &&
	       (l->how == LOST_HUNG || l->how == LOST_SILENT ||
		(l->how == LOST_FAILED && (supervise_blames_another(l) || l->code == ERR_PROTO)));
}

void supervise_verdict_request(struct supervisor *s)
{
	for (int r = 0; r < s->world; r++)
		s->ranks[r].dumped = false;
	supervise_broadcast(s, MSG_DUMP, msg_dump_json(NULL));
}

/* Asked after each answer, so it begins with the rank that it found the last time. */
bool supervise_verdict_ready(struct supervisor *s)
{
	for (int i = 0; i < s->world; i++) {
		int rank = (s->dump_awaited + i) % s->world;
		if (s->ranks[rank].connection && !s->ranks[rank].dumped) {
			s->dump_awaited = rank;
			return false;
		}
	}
	return true;
}

/* Reports why there is no verdict. `why` may quote any bytes. */
static void report_no_verdict(struct supervisor *s, const char *why)
{
	char text[RUN_PATH + 300];
	snprintf(text, sizeof text, "%s", why);
	human_plain(text);
	rundir_event_no_verdict(s->o.run, s->generation,
				&(struct rundir_no_verdict){ .error = text });
}

static void on_judged(void *arg, int status, const char *output)
{
	struct supervisor *s = arg;
	struct rundir_verdict verdict;
	struct err e = ERR_INIT;
	bool judged = WIFEXITED(status) && WEXITSTATUS(status) <= 1;
	json_t *o = judged ? json_loads(output, JSON_REJECT_DUPLICATES, NULL) : NULL;
	s->verdict_reader = NULL;
	if (o && !rundir_verdict_read(o, &verdict, &e)) {
		supervise_report_verdict(s, &verdict);
		supervise_stacks_note_verdict(s, &verdict);
	} else
		report_no_verdict(s, o ? e.text
				     : *output
					     ? output
					     : "the program that reads the flight recorders ended "
					       "without output");
	json_decref(o);
	supervise_handle(s, EV_VERDICT, NULL, NULL);
}

bool supervise_verdict_read(struct supervisor *s)
{
	char dir[RUN_PATH];
	struct err e = ERR_INIT;
	run_path_trace(dir, rundir_path(s->o.run), s->generation);
	if (access(dir, R_OK))
		return false; /* the agents had no communicators yet */
	char *argv[] = { (char *)(uintptr_t)s->o.agent, (char[]){ "trace" }, (char[]){ "--json" },
			 dir, NULL };
	struct child_command c = { .argv = argv, .out = -1 };
	if (!launcher_child_watch(s->o.loop, &c, on_judged, s, &s->verdict_reader, &e))
		return true;
	s->verdict_reader = NULL;
	report_no_verdict(s, e.text);
	return false;
}

void supervise_verdict_stop(struct supervisor *s)
{
	char why[RUN_PATH + 100];
	if (!s->verdict_reader)
		return;
	snprintf(why, sizeof why,
		 "reading the flight recorders took longer than %g s; run muster trace %s to read "
		 "them",
		 s->o.limits.trace, rundir_path(s->o.run));
	report_no_verdict(s, why);
	launcher_child_signal(s->verdict_reader, SIGKILL);
	launcher_child_forget(s->verdict_reader);
	s->verdict_reader = NULL;
}
