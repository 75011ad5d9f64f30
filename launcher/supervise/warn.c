#include "launcher/supervise/warn.h"

#include "base/clock.h"
#include "base/human.h"
#include "launcher/supervise/supervisor.h"
#include "plan/search/fit.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

void supervise_warn_open(struct supervisor *s)
{
	const struct job *job = s->o.job;
	const struct warning_limits limits = { .z = job->warn.z,
					       .data = job->warn.data,
					       .predicted = job->warn.predicted,
					       .warmup = job->optimizer.warmup };
	supervise_warnings_init(&s->warn.rules, &limits);
}

static void report(struct supervisor *s, enum warning_id id, bool printed)
{
	const struct warning *w = &s->warn.rules.list[id];
	const struct warning_rule *r = supervise_warning_rule(id);
	rundir_event_warning(s->o.run, s->generation,
			     &(struct rundir_warning){ .id = r->id,
						       .holds = w->holds,
						       .step = s->step,
						       .text = w->text,
						       .remedy = r->remedy });
	if (!printed && w->holds)
		supervise_terminal_event(s->o.term, TONE_WARN, "warning", "%s; %s", w->text,
					 r->remedy);
	else if (!printed)
		supervise_terminal_event(s->o.term, TONE_GOOD, "warning", "%s", w->text);
	supervise_notice_warning(s, id);
}

static void report_all(struct supervisor *s, struct warning_news n, bool printed)
{
	for (int i = 0; i < WARNING_COUNT; i++)
		if ((n.begun | n.ended) & 1u << i)
			report(s, (enum warning_id)i, printed);
}

void supervise_warn_hold(struct supervisor *s, enum warning_id id, bool holds, const char *text,
			 bool printed)
{
	report_all(s, supervise_warnings_hold(&s->warn.rules, id, holds, text, clock_wall_s()),
		   printed);
}

void supervise_warn_reset(struct supervisor *s)
{
	static const char next[] = "the next generation starts, and its ranks are judged anew";
	supervise_warn_hold(s, WARNING_MEMORY, false, next, true);
	supervise_warn_hold(s, WARNING_LAGGING, false, next, true);
	s->warn.shares_cores = supervise_shares_cores(s);
	s->warn.coreless = s->d->job.job.device == DEVICE_CPU ? NAN : 0;
	s->warn.data = s->warn.looked = 0;
	s->warn.quiet = 0;
}

void supervise_warn_step(struct supervisor *s, int rank, const struct msg_metrics *m, bool first)
{
	bool timed = !first && m->step_s > 0;
	bool judged = timed && !s->warn.shares_cores;
	double data = timed ? m->data_s / m->step_s : NAN;
	bool other = timed && s->warn.data > data; /* another rank waits longer */
	const struct warning_sample x = {
		.step = m->step,
		.loss = m->loss,
		.norm = m->has_skipped && m->skipped ? NAN : m->grad_norm,
		.data = other ? s->warn.data : data,
		.data_rank = other ? s->warn.data_rank : rank,
		.step_s = judged ? (m->step_s - m->checkpoint_s) * (1 - s->warn.coreless) : NAN,
		.predicted_s = s->d->plan.time.total,
	};
	report_all(s, supervise_warnings_step(&s->warn.rules, &x, clock_wall_s()), false);
}

void supervise_warn_memory(struct supervisor *s, int rank, double bytes)
{
	const struct plan_rank *r = &s->d->plan.ranks[rank];
	double share = s->o.job->warn.memory,
	       most = search_fit_beside(search_fit_limit(topo_cluster_kind(&s->d->cluster, r->node),
							 r->node_ranks),
					s->d->plan.library);
	char text[WARNING_TEXT], used[HUMAN], all[HUMAN];
	if (!(share > 0) || !(most > 0) || !(bytes > share * most) ||
	    s->warn.rules.list[WARNING_MEMORY].holds)
		return;
	snprintf(text, sizeof text, "rank %d on %.64s has used %s of its %s of memory", rank,
		 supervise_node(s, rank), human_bytes(bytes, used), human_bytes(most, all));
	supervise_warn_hold(s, WARNING_MEMORY, true, text, false);
}

/* How many times as long as its peers the rank took for a step of the window, without the time in
 * which it had no core; 0: no longer than is permitted, or it has no peers. */
static double slowness(const struct supervisor *s, const struct pace *p, double window)
{
	double steps = (double)(p->now.done - p->begin.done), mine = p->pace - p->delay / steps;
	bool slow = mine > s->o.job->warn.slow * p->reference &&
		    (mine - p->reference) * steps > WARN_SLOW_SHARE * window;
	return slow && !p->alone && p->reference > 0 ? mine / p->reference : 0;
}

/* Counts the windows of each rank. Returns the slowest rank of those that are slow for long enough,
 * or that are stragglers; -1: there is none. */
static int find_slow_rank(struct supervisor *s, double window, double *factor)
{
	int slowest = -1;
	*factor = 0;
	for (int r = 0; r < s->world; r++) {
		struct pace *p = &s->stragglers.ranks[r];
		double x = s->warn.shares_cores ? 0 : slowness(s, p, window);
		p->above = x > 0 ? p->above + 1 : 0;
		p->above_steps = x > 0 ? p->above_steps + p->now.done - p->begin.done : 0;
		if (p->straggler && p->slow && p->reference > 0)
			x = fmax(x, p->pace / p->reference);
		else if (p->above < STRAGGLER_WINDOWS || p->above_steps < WARN_SLOW_STEPS)
			continue;
		if (x > *factor) {
			*factor = x;
			slowest = r;
		}
	}
	return slowest;
}

void supervise_warn_ranks(struct supervisor *s, double window)
{
	double factor;
	char text[WARNING_TEXT];
	if (!(s->o.job->warn.slow > 0))
		return;
	int r = find_slow_rank(s, window, &factor);
	s->warn.quiet = r < 0 ? s->warn.quiet + 1 : 0;
	if (r < 0 && s->warn.quiet >= STRAGGLER_WINDOWS)
		supervise_warn_hold(s, WARNING_LAGGING, false, NULL, false);
	if (r < 0)
		return;
	snprintf(text, sizeof text,
		 "rank %d on %.64s takes %.2f times as long per step as its peers", r,
		 supervise_node(s, r), factor);
	supervise_warn_hold(s, WARNING_LAGGING, true, text, s->stragglers.ranks[r].straggler);
}

/* On a host with more busy processes than cores a step takes long without a fault of the run. Returns
 * the longest time without a core since the last look. */
static double look_at_delay(struct supervisor *s)
{
	double most = 0;
	for (int r = 0; r < s->world; r++) {
		struct pace *p = &s->stragglers.ranks[r];
		most = fmax(most, p->now.delay - p->waited);
		p->waited = p->now.delay;
	}
	return most;
}

/* Takes a report of the rank, if there is a new one. */
static void take_data(const struct supervisor *s, int rank)
{
	struct pace *p = &s->stragglers.ranks[rank];
	const int64_t *us = supervise_times_of(s, rank)->us;
	int64_t data = us[TIME_DATA - TIME_STEP], steps = 0;
	for (int i = 0; i < STEP_PART_COUNT; i++)
		steps += us[i];
	if (steps <= p->step_us)
		return;
	p->data = (double)(data - p->data_us) / (double)(steps - p->step_us);
	p->starved = p->data > s->o.job->warn.data ? p->starved + 1 : 0;
	p->data_us = data;
	p->step_us = steps;
}

/* The rank that sends metrics sees a rank that waits for samples as communication. So each rank's own
 * reports count, too. */
static void look_at_data(struct supervisor *s)
{
	struct warn_state *w = &s->warn;
	w->data = 0;
	for (int r = 0; r < s->world && s->o.job->warn.data > 0; r++) {
		const struct pace *p = &s->stragglers.ranks[r];
		take_data(s, r);
		if (p->starved >= WARN_STARVED && p->data > w->data) {
			w->data = p->data;
			w->data_rank = r;
		}
	}
}

void supervise_warn_tick(struct supervisor *s)
{
	struct warn_state *w = &s->warn;
	double now = supervise_now(s), since = now - w->looked;
	if (s->state != SUP_TRAINING || !s->stragglers.ranks || s->stragglers.world != s->world ||
	    (w->looked > 0 && since < WARN_LOOK_S))
		return;
	double delay = look_at_delay(s);
	if (w->looked > 0 && s->d->job.job.device == DEVICE_CPU)
		w->coreless = fmin(delay / since, 1);
	w->looked = now;
	look_at_data(s);
	for (int r = 0; r < s->world; r++)
		supervise_warn_memory(s, r, (double)supervise_times_of(s, r)->peak_bytes);
}
