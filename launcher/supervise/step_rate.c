#include "launcher/supervise/step_rate.h"

#include <math.h>

static const double spacing_s = 0.1, window_s = 2, gap_s = 1, half_life_s = 60;

/* The last sample that is as old as the window; otherwise the oldest one. r->n is not 0. */
static int find_oldest(const struct step_rate *r, double now)
{
	int oldest = r->last;
	for (int i = 1; i < r->n && now - r->seen[oldest].at < window_s; i++)
		oldest = (r->last + STEP_RATE_SAMPLES - i) % STEP_RATE_SAMPLES;
	return oldest;
}

void supervise_step_rate_note(struct step_rate *r, double now, int64_t step)
{
	double passed = r->n ? now - r->seen[r->last].at : 0;
	if (r->n && passed < spacing_s)
		return;
	if (passed > gap_s)
		r->n = 0;
	r->last = (r->last + 1) % STEP_RATE_SAMPLES;
	r->seen[r->last].at = now;
	r->seen[r->last].step = step;
	r->n += r->n < STEP_RATE_SAMPLES;
	int oldest = find_oldest(r, now);
	double seconds = now - r->seen[oldest].at;
	double rate = seconds > 0 ? (double)(step - r->seen[oldest].step) / seconds : 0;
	r->most = fmax(rate, r->most * exp2(-passed / half_life_s));
}

double supervise_step_rate_within(const struct step_rate *r, double now, double seconds)
{
	double rate = r->most;
	if (r->n) { /* this may be faster than the fastest 2 seconds so far, above all in the first ones */
		int oldest = find_oldest(r, now);
		double known = fmax(now - r->seen[oldest].at, spacing_s);
		rate = fmax(rate, (double)(r->seen[r->last].step - r->seen[oldest].step) / known);
	}
	return fmax(ceil(rate * seconds), 1);
}
