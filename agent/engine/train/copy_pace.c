#include "agent/engine/train/copy_pace.h"

#include <math.h>

/* The weight of a new value in a mean, and the longest interval. */
static const double weight = 0.2;
enum { EVERY_MOST = 1000000000 };

static double mean(double old, double value, bool first)
{
	return first ? value : old + weight * (value - old);
}

void train_copy_pace_step(struct copy_pace *p, double seconds, bool copying)
{
	if (copying && p->step_s > 0)
		p->slower += seconds - p->step_s;
	else if (!copying)
		p->step_s = mean(p->step_s, seconds, !(p->step_s > 0));
}

void train_copy_pace_take(struct copy_pace *p, double stall_s)
{
	p->stall_s = mean(p->stall_s, stall_s, p->copies == 0);
	if (p->copies > 0)
		p->slow_s = mean(p->slow_s, p->slower, p->copies == 1);
	p->slower = 0;
	p->copies++;
}

int64_t train_copy_pace_every(const struct copy_pace *p, double share)
{
	if (!(p->step_s > 0))
		return 0;
	double every = ceil((p->stall_s + fmax(p->slow_s, 0)) / (share * p->step_s));
	return every < 1 ? 1 : every > EVERY_MOST ? EVERY_MOST : (int64_t)every;
}
