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

/* Adds seconds of training to the slices of the picture, from this time on; they take `lasts`. */
static void note_trained(struct run *r, double from, double lasts, double seconds)
{
	double slice = r->s->seconds / GOODPUT_SLICES;
	if (!(slice > 0) || !(lasts > 0))
		return;
	for (int i = (int)(from / slice); i < GOODPUT_SLICES && i * slice < from + lasts; i++) {
		double a = fmax(from, i * slice), b = fmin(from + lasts, (i + 1) * slice);
		r->out->trained[i] += seconds * fmax(0, b - a) / lasts;
	}
}

/* Takes them from the slices again, the last ones first. */
static void forget_trained(struct run *r, double seconds)
{
	double slice = r->s->seconds / GOODPUT_SLICES;
	int i = slice > 0 ? (int)fmin(r->now / slice, GOODPUT_SLICES - 1) : -1;
	for (; i >= 0 && seconds > 0; i--) {
		double some = fmin(seconds, r->out->trained[i]);
		r->out->trained[i] -= some;
		seconds -= some;
	}
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

/* n whole steps, in lasts seconds. */
static void count(struct run *r, const struct pace *p, int64_t n, double lasts)
{
	double *parts = r->out->parts, useful = (double)n * r->s->costs.step;
	note_trained(r, r->now, (double)n * p->all, useful);
	note_saved(r, p, n, lasts);
	parts[GOODPUT_TRAINED] += useful;
	parts[GOODPUT_LOWER] += (double)n * (p->step - r->s->costs.step);
	parts[GOODPUT_SLOW] += (double)n * p->slow;
	parts[GOODPUT_SAVING] += (double)n * p->saving;
	parts[GOODPUT_LOST] += fmax(0, lasts - (double)n * p->all); /* the step in flight */
	r->step += n;
	r->now += lasts;
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
	forget_trained(r, again);
	r->step = step;
}
