#include "launcher/drill/story.h"

#include "launcher/rundir/agents.h"
#include "launcher/rundir/events.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void drill_story_fini(struct drill_story *s)
{
	free(s->events);
	free(s->steps);
	free(s->agents);
	*s = (struct drill_story){ 0 };
}

/* Returns room for one more row, or NULL. The capacity is the next power of two. */
static void *add_row(struct drill_story *s, void *rows, int *n, size_t size)
{
	void **at = rows;
	if ((*n & (*n - 1)) == 0) {
		void *more = realloc(*at, (size_t)(*n ? 2 * *n : 1) * size);
		if (!more) {
			s->failed_memory = true;
			return NULL;
		}
		*at = more;
	}
	return (char *)*at + (size_t)(*n)++ * size;
}

static void say(struct drill_story *s, const char *text)
{
	if (!*s->said)
		snprintf(s->said, sizeof s->said, "%s", text);
}

static void tell_plan(struct drill_story *s, const json_t *o)
{
	struct rundir_plan p;
	struct err e = ERR_INIT;
	if (rundir_read_plan(o, &p, &e))
		return;
	s->last = (struct drill_layout){ p.world, p.tp, p.cp, p.ep, p.dp, p.pp };
	if (!s->first.world)
		s->first = s->last;
	s->relaid |= memcmp(&s->first, &s->last, sizeof s->first) != 0;
}

static void tell_start(struct drill_story *s, const json_t *o)
{
	(void)o;
	s->launches++;
}

static void note_agent(void *story, const struct rundir_joined *agent)
{
	struct drill_story *s = story;
	struct drill_agent *a;
	if (agent->pid > 1 && (a = add_row(s, &s->agents, &s->n_agents, sizeof *s->agents)))
		*a = (struct drill_agent){ agent->rank, s->generation, (pid_t)agent->pid };
}

static void tell_hello(struct drill_story *s, const json_t *o)
{
	rundir_agents_of(o, note_agent, s);
}

static void tell_ready(struct drill_story *s, const json_t *o)
{
	struct rundir_step at;
	struct err e = ERR_INIT;
	if (!rundir_read_step(o, &at, &e))
		s->ready_step = at.step;
}

static void tell_ckpt(struct drill_story *s, const json_t *o)
{
	struct rundir_ckpt c;
	struct err e = ERR_INIT;
	if (rundir_read_ckpt(o, &c, &e))
		return;
	s->checkpoints++;
	snprintf(s->ckpt_path, sizeof s->ckpt_path, "%s", c.path);
	s->ckpt_step = c.step;
	s->ckpt_seen = s->last_step;
}

static void tell_log(struct drill_story *s, const json_t *o)
{
	struct rundir_log l;
	struct err e = ERR_INIT;
	if (rundir_read_log(o, &l, &e))
		return;
	s->warnings++;
	if (s->launches == 1) /* a later warning is not about the fault */
		say(s, l.text);
}

/* Adds how the process of the lost rank ended, once. */
static void tell_end_of(struct drill_story *s, bool has_signal, int number, bool has_status,
			int status)
{
	size_t n = strlen(s->how);
	if (strcmp(s->how, "closed") && strcmp(s->how, "exited"))
		return;
	if (has_signal)
		snprintf(s->how + n, sizeof s->how - n, ", signal %d", number);
	else if (has_status)
		snprintf(s->how + n, sizeof s->how - n, ", exit %d", status);
}

static void tell_lost(struct drill_story *s, const json_t *o)
{
	struct rundir_rank_lost l;
	struct err e = ERR_INIT;
	if (s->lost || rundir_read_rank_lost(o, &l, &e))
		return;
	s->lost = true;
	s->lost_rank = l.has_rank ? l.rank : -1;
	snprintf(s->fault, sizeof s->fault, "%s", l.fault);
	snprintf(s->how, sizeof s->how, "%s", l.how);
	snprintf(s->said, sizeof s->said, "%s", l.text);
	tell_end_of(s, l.has_signal, l.signal, l.has_status, l.status);
}

/* What counts is known once the first generation that was lost is gone. */
static void tell_fault(struct drill_story *s, const json_t *o)
{
	struct rundir_fault f;
	struct err e = ERR_INIT;
	if (rundir_read_fault(o, &f, &e))
		return;
	size_t n = strlen(s->faults);
	snprintf(s->faults + n, sizeof s->faults - n, "%s%s", n ? "," : "", f.fault);
	if (!s->blamed) {
		s->blamed = true;
		snprintf(s->fault, sizeof s->fault, "%s", f.fault);
		tell_end_of(s, f.has_signal, f.signal, f.has_status, f.status);
	}
}

static void tell_hang(struct drill_story *s, const json_t *o)
{
	struct rundir_hang h;
	struct err e = ERR_INIT;
	if (*s->hung_kind || rundir_read_hang(o, &h, &e))
		return;
	s->hung_rank = h.rank;
	snprintf(s->hung_kind, sizeof s->hung_kind, "%.15s", h.kind);
	snprintf(s->hung_text, sizeof s->hung_text, "%.999s", h.text);
}

/* The connection of a rank usually closes before its end is known. A rank that failed or hung is
 * killed afterwards, which says nothing. */
static void tell_exit(struct drill_story *s, const json_t *o)
{
	struct rundir_exit x;
	struct err e = ERR_INIT;
	if (s->lost && !rundir_read_exit(o, &x, &e) && x.has_rank && x.rank == s->lost_rank)
		tell_end_of(s, x.has_signal, x.signal, x.has_status, x.status);
}

static void tell_stop(struct drill_story *s, const json_t *o)
{
	struct rundir_stop stop;
	struct err e = ERR_INIT;
	if (!rundir_read_stop(o, &stop, &e))
		say(s, stop.reason);
}

static void tell_end(struct drill_story *s, const json_t *o)
{
	struct rundir_end end;
	struct err e = ERR_INIT;
	if (!rundir_read_end(o, &end, &e))
		say(s, end.reason);
}

void drill_story_event(void *story, const struct rundir_line *l)
{
	static const struct {
		const char *name;
		void (*tell)(struct drill_story *s, const json_t *o);
	} tellers[] = {
		{ "plan", tell_plan },   { "generation-start", tell_start },
		{ "hello", tell_hello }, { "ready", tell_ready },
		{ "ckpt", tell_ckpt },   { "log", tell_log },
		{ "stop", tell_stop },   { "rank-lost", tell_lost },
		{ "fault", tell_fault }, { "exit", tell_exit },
		{ "failed", tell_end },  { "gave-up", tell_end },
		{ "hang", tell_hang },
	};
	struct drill_story *s = story;
	if (!l->has_event)
		return;
	s->generation = l->generation;
	enum drill_event_kind kind = drill_event_kind(l->event);
	struct drill_event *ev = kind ? add_row(s, &s->events, &s->n_events, sizeof *s->events)
				      : NULL;
	if (ev)
		*ev = (struct drill_event){ kind, l->mono, l->generation };
	for (size_t i = 0; i < sizeof tellers / sizeof *tellers; i++)
		if (!strcmp(tellers[i].name, l->event))
			tellers[i].tell(s, l->fields);
}

void drill_story_metrics(void *story, const struct rundir_line *l)
{
	struct drill_story *s = story;
	struct msg_metrics m;
	struct err e = ERR_INIT;
	struct drill_step *at;
	if (msg_metrics_read(l->fields, &m, &e) ||
	    !(at = add_row(s, &s->steps, &s->n_steps, sizeof *s->steps)))
		return;
	*at = (struct drill_step){ m.step, l->generation, m.loss, m.grad_norm, l->mono };
	s->last_step = m.step;
	s->peak_bytes = m.peak_bytes;
}

pid_t drill_story_agent(const struct drill_story *s, int rank)
{
	for (int i = s->n_agents - 1; i >= 0; i--)
		if (s->agents[i].rank == rank && s->agents[i].generation == s->generation)
			return s->agents[i].pid;
	return 0;
}

/* Whether a later line has the same step. */
static bool is_repeated(const struct drill_story *s, int i)
{
	for (int k = i + 1; k < s->n_steps; k++)
		if (s->steps[k].step == s->steps[i].step)
			return true;
	return false;
}

int64_t drill_story_redone(const struct drill_story *s)
{
	int64_t n = 0;
	for (int i = 0; i < s->n_steps; i++)
		n += is_repeated(s, i);
	return n;
}

static const struct drill_step *find_step(const struct drill_story *s, int64_t step)
{
	for (int i = s->n_steps - 1; i >= 0; i--)
		if (s->steps[i].step == step)
			return &s->steps[i];
	return NULL;
}

static bool is_close(double a, double b, double tolerance)
{
	if (isnan(a) || isnan(b))
		return isnan(a) && isnan(b);
	return a == b || fabs(a - b) <= tolerance * fmax(fabs(a), fabs(b));
}

int drill_story_compare(const struct drill_story *reference, const struct drill_story *s,
			double tolerance, struct err *e)
{
	/* A norm is a sum of squares, whose rounding differs more than that of a loss. */
	const double of_norm = 10 * tolerance;
	for (int i = 0; i < reference->n_steps; i++) {
		const struct drill_step *want = &reference->steps[i];
		const struct drill_step *have = find_step(s, want->step);
		if (!have)
			return err_set(e, ERR_CORRUPT, "step %lld is missing in metrics.jsonl",
				       (long long)want->step);
		if (!is_close(want->loss, have->loss, tolerance) ||
		    !is_close(want->norm, have->norm, of_norm))
			return err_set(e, ERR_CORRUPT,
				       "step %lld: loss %.17g and gradient norm %.17g instead of "
				       "%.17g and %.17g in the undisturbed run",
				       (long long)want->step, have->loss, have->norm, want->loss,
				       want->norm);
	}
	if (!reference->n_steps || s->last_step != reference->last_step)
		return err_set(e, ERR_CORRUPT, "the last step is %lld instead of %lld",
			       (long long)s->last_step, (long long)reference->last_step);
	return 0;
}
