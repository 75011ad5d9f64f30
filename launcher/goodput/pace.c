/* pace: the training of a simulated run between two faults, at a constant pace. */
#include "launcher/goodput/run_inner.h"

#include <math.h>

/* A slow node makes every step so many times longer: all wait for it. */
static const double slow_factor = 1.3;

struct pace {
	double step;   /* seconds of one, with the ranks that there are */
	double slow;   /* more of them because of a slow node */
	double saving; /* more, on average, for snapshots */
	double all;
};

static double share(int64_t every)
{
	return every > 0 ? 1.0 / (double)every : 0;
}

static struct pace pace_of(const struct run *r)
{
	const struct goodput_costs *c = &r->s->costs;
	const struct goodput_rules *rules = &r->s->rules;
	struct pace p = { .step = c->step * goodput_fewer(r) };
	p.slow = r->now < r->slow_until ? p.step * (slow_factor - 1) : 0;
	p.saving = c->snapshot * (share(rules->every) + share(rules->copy_every));
	p.all = p.step + p.slow + p.saving;
	return p;
}

double goodput_train_end(const struct run *r)
{
	return r->s->seconds > 0 ? INFINITY
				 : r->now + (double)(r->s->steps - r->step) * pace_of(r).all;
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

/* The last step that is a multiple of `every`, was finished by now, and was so `delay` seconds ago; before:
 * the one that counted before. */
static int64_t last_of(const struct run *r, const struct pace *p, int64_t every, double delay,
		       double lasts, int64_t before)
{
	double ago = lasts - delay;
	if (every <= 0 || ago <= 0)
		return before;
	int64_t done = r->step + (int64_t)(ago / p->all), last = done - done % every;
	return last > r->step ? last : before;
}

void goodput_train(struct run *r, double until)
{
	const struct goodput_setup *s = r->s;
	struct pace p = pace_of(r);
	double lasts = until - r->now;
	if (!(lasts > 0))
		return;
	double steps = lasts / p.all;
	if (s->seconds <= 0) /* rounding must not lose the last step */
		steps = fmin(steps * (1 + 1e-12) + 1e-9, (double)(s->steps - r->step));
	int64_t n = (int64_t)steps, copied;
	double useful = (double)n * s->costs.step;
	note_trained(r, r->now, (double)n * p.all, useful);
	r->saved = last_of(r, &p, s->rules.every, s->costs.write, lasts, r->saved);
	copied = last_of(r, &p, s->rules.copy_every, s->costs.copy, lasts, r->copied);
	r->exposed = copied > r->copied ? -1 : r->exposed;
	r->copied = copied;
	r->out->parts[GOODPUT_TRAINED] += useful;
	r->out->parts[GOODPUT_LOWER] += (double)n * (p.step - s->costs.step);
	r->out->parts[GOODPUT_SLOW] += (double)n * p.slow;
	r->out->parts[GOODPUT_SAVING] += (double)n * p.saving;
	r->out->parts[GOODPUT_LOST] += lasts - (double)n * p.all; /* the step in flight */
	r->step += n;
	r->now = until;
}

void goodput_go_back(struct run *r, int64_t step)
{
	double again = (double)(r->step - step) * r->s->costs.step;
	r->out->parts[GOODPUT_TRAINED] -= again;
	r->out->parts[GOODPUT_LOST] += again;
	forget_trained(r, again);
	r->step = step;
}
