/* clock: the time of a simulated run, and the faults that come in it. */
#include "launcher/goodput/run_inner.h"

#include <math.h>

double goodput_end(const struct run *r)
{
	return r->s->seconds > 0 ? r->s->seconds : INFINITY;
}

bool goodput_is_over(const struct run *r)
{
	return r->out->endless || r->now >= goodput_end(r) ||
	       (r->s->seconds <= 0 && r->step >= r->s->steps);
}

/* --- Faults --------------------------------------------------------------------------------- */

const struct goodput_fault *goodput_next_fault(const struct run *r)
{
	return &r->s->faults->of[r->next.kind];
}

static int draw_kind(struct run *r, double rate)
{
	const struct goodput_faults *f = r->s->faults;
	double at = random_unit(&r->dice) * rate;
	int kind = 0;
	while (kind < f->n - 1 && at >= f->of[kind].rate)
		at -= f->of[kind++].rate;
	return kind;
}

/* The next fault of a node that works. Those of nodes that do not are left out here, so that the others come
 * at the same times. */
static void draw_fault(struct run *r)
{
	double rate = goodput_faults_rate(r->s->faults);
	do {
		if (!(rate > 0) || r->out->drawn == GOODPUT_FAULTS_MOST) {
			r->out->endless = rate > 0;
			r->next.at = INFINITY;
			return;
		}
		r->out->drawn++;
		r->next.at += random_wait(&r->dice, 1 / (rate * r->s->nodes));
		r->next.kind = draw_kind(r, rate);
		r->next.node = random_below(&r->dice, r->s->nodes);
	} while (r->next.node >= goodput_nodes_used(r));
}

void goodput_take_fault(struct run *r, bool counts)
{
	if (counts) {
		goodput_history_mark(r->history, r->now, r->next.kind);
		r->out->faults[r->next.kind]++;
		r->out->all_faults++;
	}
	draw_fault(r);
}

/* These end a recovery, which then begins again. */
static bool interrupts(enum goodput_shows s)
{
	return s == SHOWS_CLOSED || s == SHOWS_SILENT || s == SHOWS_HANG;
}

/* --- Time that is not trained --------------------------------------------------------------- */

static double add(struct run *r, enum goodput_part part, double seconds)
{
	goodput_history_add(r->history, part, r->now, seconds, seconds);
	r->out->parts[part] += seconds;
	r->now += seconds;
	return seconds;
}

void goodput_pass(struct run *r, enum goodput_part part, double seconds)
{
	double some = fmin(seconds, goodput_end(r) - r->now);
	if (isinf(some)) {
		r->out->endless = true;
		return;
	}
	add(r, part, fmax(0, some));
	while (r->next.at < r->now && !r->out->endless)
		goodput_take_fault(r, false);
}

bool goodput_spend(struct run *r, enum goodput_part part, double seconds)
{
	for (;;) {
		double until = fmin(r->next.at, goodput_end(r));
		if (isinf(seconds) && isinf(until)) {
			r->out->endless = true;
			return true;
		}
		seconds -= add(r, part, fmax(0, fmin(seconds, until - r->now)));
		if (seconds <= 0 || r->now >= goodput_end(r))
			return true;
		if (interrupts(goodput_next_fault(r)->shows))
			return false;
		goodput_take_fault(r, true);
	}
}
