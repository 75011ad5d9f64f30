/* program_stop: after which step a program that reports steps stops, and how long that takes. */
#include "launcher/supervise/supervisor.h"

#include <math.h>

/* Messages to all ranks are on their way for less than this many seconds. */
static const double stop_notice_s = 2;
/* No more steps than this are left to the ranks, however fast they are. */
static const double most_steps = 1e6;

static int64_t last_step(const struct supervisor *s)
{
	int64_t last = -1;
	for (int r = 0; r < s->world; r++)
		last = s->ranks[r].step > last ? s->ranks[r].step : last;
	return last;
}

/* The step that a program continues from is none that it has finished now. */
void supervise_program_note_steps(struct supervisor *s)
{
	int64_t last = s->program.began ? last_step(s) : -1;
	if (last > s->resumed)
		supervise_step_rate_note(&s->program.rate, supervise_now(s), last);
}

static double steps_until_stop(const struct supervisor *s)
{
	double steps = supervise_step_rate_within(&s->program.rate, supervise_now(s),
						  stop_notice_s);
	return 1 + fmin(steps, most_steps);
}

int64_t supervise_program_stop_step(const struct supervisor *s)
{
	return s->program.began ? last_step(s) + (int64_t)steps_until_stop(s) : 0;
}

/* The step that runs now may be the longest, such as one with an evaluation; the others may take twice
 * their usual time. The first step is known with the start only. */
double supervise_program_reach_seconds(const struct supervisor *s)
{
	double cap = s->d->job.restart.hang_timeout;
	double longest = s->stop.gap_s > 0 ? s->stop.gap_s : s->program.start_s;
	double usual = s->step_s > 0 ? s->step_s : longest;
	if (!s->program.began)
		return 0;
	if (cap > 0)
		longest = fmin(longest, cap);
	return longest + (steps_until_stop(s) - 1) * 2 * fmin(usual, longest);
}
