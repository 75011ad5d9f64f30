#include "launcher/supervise/console_trace.h"

#include "base/human.h"
#include "base/run_paths.h"
#include "launcher/supervise/supervisor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Answers whoever asked, if that console is still there. */
static void end_trace(struct supervisor *s, const struct msg_console_answer *a)
{
	s->console.trace.open = false;
	supervise_console_tell_all(s, CONSOLE_AWAITS_TRACE, a);
}

/* Why the run cannot record steps now; false: it can. */
static bool find_obstacle(const struct supervisor *s, const struct msg_console_ask *m, char *out,
			  size_t size)
{
	const struct console_trace *t = &s->console.trace;
	if (!m->has_count || m->count < 1 || m->count > TRACE_STEPS_MOST)
		snprintf(out, size, "a run records 1 to %d steps on request", TRACE_STEPS_MOST);
	else if (s->program.ranks)
		snprintf(
			out, size,
			"muster cannot record the steps of a program (job.program); use a profiler "
			"of its framework");
	else if (s->d->job.parallel.sync == SYNC_SERVER)
		snprintf(out, size,
			 "with parallel.sync = server the ranks do not meet after each step; start "
			 "the run with trace.steps=FIRST-LAST");
	else if (s->state != SUP_TRAINING)
		snprintf(out, size, "the run does not train now (%s); ask again when it does",
			 rundir_state_word(s->view.id));
	else if (t->open)
		snprintf(out, size,
			 "%d step%s being recorded already, because %s asked for it; ask again "
			 "when they are written",
			 t->steps, t->steps == 1 ? " is" : "s are", t->who);
	else
		return false;
	return true;
}

void supervise_console_trace_ask(struct supervisor *s, struct console *k,
				 const struct msg_console_ask *m)
{
	struct console_trace *t = &s->console.trace;
	char text[400];
	if (find_obstacle(s, m, text, sizeof text)) {
		supervise_console_answer(k, &(struct msg_console_answer){ .text = text });
		return;
	}
	*t = (struct console_trace){ .open = true,
				     .number = t->number + 1,
				     .generation = s->generation,
				     .steps = m->count };
	snprintf(t->who, sizeof t->who, "%s", k->who);
	k->awaits = CONSOLE_AWAITS_TRACE;
	snprintf(text, sizeof text, "the next %d step%s recorded", t->steps,
		 t->steps == 1 ? " is" : "s are");
	rundir_event_trace_asked(s->o.run, s->generation, &(struct rundir_why){ .why = t->who });
	supervise_console_answer(
		k, &(struct msg_console_answer){ .ok = true, .text = text, .more = true });
	supervise_broadcast(
		s, MSG_TRACE,
		msg_trace_json(&(struct msg_trace){ .number = t->number, .steps = t->steps }));
}

/* All ranks have answered. */
static void report_end(struct supervisor *s)
{
	const struct console_trace *t = &s->console.trace;
	char text[1200], folder[RUN_PATH];
	int64_t steps = t->last - t->first + 1;
	if (t->why[0]) {
		snprintf(text, sizeof text, "the steps are not recorded: %s", t->why);
		end_trace(s, &(struct msg_console_answer){ .text = text });
		return;
	}
	run_path_trace(folder, rundir_path(s->o.run), t->generation);
	snprintf(text, sizeof text, "%ssteps %" PRId64 " to %" PRId64 " are recorded",
		 steps < t->steps ? "the run ends; " : "", t->first, t->last);
	end_trace(s, &(struct msg_console_answer){ .ok = true,
						   .text = text,
						   .has_step = true,
						   .step = t->first,
						   .has_last = true,
						   .last = t->last,
						   .has_path = true,
						   .path = folder });
}

static void note_steps(struct console_trace *t, int rank, const struct msg_traced *m)
{
	if (m->has_error) {
		if (!t->why[0])
			snprintf(t->why, sizeof t->why, "rank %d: %.1000s", rank, m->error);
		return;
	}
	if (!t->first) {
		t->first = m->first;
		t->last = m->last;
	}
	if (m->first != t->first || m->last != t->last)
		snprintf(t->why, sizeof t->why,
			 "rank %d recorded the steps %" PRId64 " to %" PRId64
			 ", and another rank %" PRId64 " to %" PRId64,
			 rank, m->first, m->last, t->first, t->last);
}

void supervise_console_trace_note(struct supervisor *s, int rank, const struct msg_traced *m)
{
	struct console_trace *t = &s->console.trace;
	struct rank_state *k = &s->ranks[rank];
	if (!t->open || m->number != t->number || t->generation != s->generation ||
	    k->traced == t->number)
		return;
	k->traced = t->number;
	note_steps(t, rank, m);
	if (++t->answers == s->world)
		report_end(s);
}

void supervise_console_trace_check(struct supervisor *s)
{
	const struct console_trace *t = &s->console.trace;
	bool trains = s->state == SUP_TRAINING || s->state == SUP_STOPPING ||
		      s->state == SUP_EXITING;
	if (t->open && !(trains && t->generation == s->generation))
		end_trace(s,
			  &(struct msg_console_answer){
				  .text = "the generation ended before all ranks had written the "
					  "steps; ask again when the run trains" });
}
