#include "agent/engine/train/times.h"

#include <math.h>

enum { EVALUATION = TIME_EVALUATION - TIME_STEP };

/* Adds the time since `until`: the seconds of each part, and to TIME_OTHER what they leave. */
static void book(struct train_times *t, const double seconds[TIME_REPORTED], int64_t now)
{
	int64_t left = now - t->until;
	double known = 0;
	if (left <= 0)
		return;
	for (int i = 0; i < TIME_REPORTED; i++)
		known += fmax(0, seconds[i]);
	double scale = fmin(1, 1e-6 * (double)left / known);
	for (int i = 0; i < TIME_REPORTED; i++) {
		double share = fmin(1e6 * scale * fmax(0, seconds[i]), (double)left);
		t->us[i] += (int64_t)share;
		left -= (int64_t)share;
	}
	t->us[STEP_PART_OTHER] += left;
	t->until = now;
}

void train_times_begin(struct train_times *t, int64_t step, int64_t now)
{
	*t = (struct train_times){ .step = step, .until = now };
}

void train_times_step(struct train_times *t, const struct step_report *r, int64_t now)
{
	double seconds[TIME_REPORTED] = {
#define STEP_SECONDS(with, ENUM, member, name, transfers, doc) [STEP_PART_##ENUM] = r->member##_s,
		STEP_PARTS(STEP_SECONDS, )
#undef STEP_SECONDS
	};
	seconds[STEP_PART_CHECKPOINT] = seconds[STEP_PART_OTHER] = 0;
	book(t, seconds, now);
	t->step = r->step;
}

void train_times_between(struct train_times *t, double evaluation, double checkpoint, int64_t now)
{
	double seconds[TIME_REPORTED] = {
		[STEP_PART_CHECKPOINT] = checkpoint, [EVALUATION] = evaluation
	};
	book(t, seconds, now);
}
