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

static double cost_of(const struct copy_pace *p)
{
	return p->stall_s + fmax(p->slow_s, 0);
}

static int64_t whole(double every)
{
	return every < 1 ? 1 : every > EVERY_MOST ? EVERY_MOST : (int64_t)every;
}

int64_t train_copy_pace_every(const struct copy_pace *p, double share)
{
	return p->step_s > 0 ? whole(ceil(cost_of(p) / (share * p->step_s))) : 0;
}

int64_t train_copy_pace_worth(const struct copy_pace *p, double mtbf, int64_t done)
{
	if (!(p->step_s > 0))
		return 0;
	double worth = sqrt(2 * cost_of(p) * mtbf) / p->step_s;
	return whole(fmin(worth, (double)done / 10));
}
