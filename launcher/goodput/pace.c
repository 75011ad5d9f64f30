/* pace: the training of a simulated run between two faults, at a constant pace. */
#include "launcher/goodput/run_inner.h"

#include <math.h>

struct pace {
	double step;   /* seconds of one, with the ranks that there are */
	double slow;   /* in addition, because all wait for a slow node */
	double saving; /* in addition, on average, for snapshots */
	double all;
};

/* Seconds for each step of what comes every so many steps, and takes so long. */
static double spread(int64_t every, double seconds)
{
	return every > 0 ? fmax(0, seconds) / (double)every : 0;
}

/* A checkpoint waits for the one before it. */
static double saving(const struct goodput_setup *s, double step)
{
	const struct goodput_costs *c = &s->costs;
	const struct goodput_rules *r = &s->rules;
	return spread(r->every, fmax(c->snapshot, c->write - (double)r->every * step)) +
	       spread(r->copy_every, c->snapshot);
}

static struct pace pace_of(const struct run *r)
{
	struct pace p = { .step = r->s->costs.step * goodput_fewer(r, 0) };
	double slowdown = 1;
	for (int i = 0; i < r->n_slow; i++)
		slowdown = fmax(slowdown, r->slow[i].slowdown);
	p.slow = p.step * (slowdown - 1);
	p.saving = saving(r->s, p.step + p.slow);
	p.all = p.step + p.slow + p.saving;
	return p;
}

/* The last multiple of `every` among the n steps from r->step on; 0: there is none. */
static int64_t last_of(const struct run *r, int64_t every, int64_t n)
{
	int64_t last = every > 0 ? (r->step + n) / every * every : 0;
	return last > r->step ? last : 0;
}

/* The same among those that were finished `ago` seconds before the end of the n steps, in `lasts` seconds. */
static int64_t last_before(const struct run *r, const struct pace *p, int64_t every, double lasts,
			   double ago)
{
	return lasts > ago ? last_of(r, every, (int64_t)((lasts - ago) / p->all)) : 0;
}

/* The checkpoints and copies of n steps, which end after `lasts` seconds. */
static void note_saved(struct run *r, const struct pace *p, int64_t n, double lasts)
{
	const struct goodput_costs *c = &r->s->costs;
	const struct goodput_rules *rules = &r->s->rules;
	int64_t begun = last_of(r, rules->every, n),
		done = last_before(r, p, rules->every, lasts, c->write),
		copied = last_before(r, p, rules->copy_every, lasts, c->copy);
	if (r->saving.step && r->saving.at <= r->now + lasts) {
		r->saved = r->saving.step;
		r->saving.step = 0;
	}
	r->saved = done ? done : r->saved;
	if (begun > r->saved) {
		r->saving.step = begun;
		r->saving.at = r->now + (double)(begun - r->step) * p->all + c->write;
	}
	if (copied) {
		r->copied = copied;
		r->exposed = -1;
	}
}

/* Adds what n steps took, and then a step in flight, which is lost. */
static void spend(struct run *r, const struct pace *p, int64_t n, double in_flight)
{
	const struct {
		enum goodput_part part;
		double each;
	} parts[] = { { GOODPUT_TRAINED, r->s->costs.step },
		      { GOODPUT_LOWER, p->step - r->s->costs.step },
		      { GOODPUT_SLOW, p->slow },
		      { GOODPUT_SAVING, p->saving } };
	double all = (double)n * p->all;
	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
		double seconds = (double)n * parts[i].each;
		r->out->parts[parts[i].part] += seconds;
		goodput_history_add(r->history, parts[i].part, r->now, all, seconds);
	}
	r->out->parts[GOODPUT_LOST] += in_flight;
	goodput_history_add(r->history, GOODPUT_LOST, r->now + all, in_flight, in_flight);
}

/* The supervisor has seen a later step, or a later checkpoint, than any before. */
static void note_progress(struct run *r, int64_t *best, int64_t step)
{
	r->progress |= step > *best;
	*best = step > *best ? step : *best;
}

/* n whole steps, in lasts seconds. */
static void count(struct run *r, const struct pace *p, int64_t n, double lasts)
{
	int64_t saved = r->saved;
	spend(r, p, n, fmax(0, lasts - (double)n * p->all));
	note_saved(r, p, n, lasts);
	r->step += n;
	r->now += lasts;
	if (n > 0)
		note_progress(r, &r->best_step, r->step);
	if (r->saved != saved)
		note_progress(r, &r->best_saved, r->saved);
}

void goodput_train(struct run *r, double until)
{
	struct pace p = pace_of(r);
	int64_t left = r->s->steps - r->step;
	double lasts = fmax(0, until - r->now);
	/* By their number, because the time of a step may be lost in rounding. */
	if (r->s->seconds <= 0 && (double)left * p.all <= lasts) {
		count(r, &p, left, (double)left * p.all);
		return;
	}
	count(r, &p, (int64_t)(lasts / p.all), lasts);
	r->now = fmax(r->now, until);
}

void goodput_go_back(struct run *r, int64_t step)
{
	double again = (double)(r->step - step) * r->s->costs.step;
	r->out->parts[GOODPUT_TRAINED] -= again;
	r->out->parts[GOODPUT_LOST] += again;
	goodput_history_undo(r->history, r->now, again);
	r->step = step;
}
