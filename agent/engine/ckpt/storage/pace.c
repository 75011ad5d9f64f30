#include "agent/engine/ckpt/storage/pace.h"

#include "base/clock.h"

#include <math.h>
#include <time.h>

static const double burst_s = 0.25, glance_s = 0.05;

void ckpt_pace_start(struct ckpt_pace *p, int64_t bytes_per_s)
{
	*p = (struct ckpt_pace){ .rate = (double)bytes_per_s, .at = clock_s() };
}

int64_t ckpt_pace_piece(const struct ckpt_pace *p, int64_t most)
{
	double piece = burst_s * p->rate;
	return p->rate <= 0 || piece >= (double)most ? most : piece < 1 ? 1 : (int64_t)piece;
}

double ckpt_pace_take(struct ckpt_pace *p, size_t n, double now)
{
	if (p->rate <= 0)
		return 0;
	p->allowed = fmin(p->allowed + (now - p->at) * p->rate, burst_s * p->rate);
	p->allowed -= (double)n;
	p->at = now;
	return p->allowed < 0 ? -p->allowed / p->rate : 0;
}

int ckpt_pace_wait(struct ckpt_pace *p, size_t n, const atomic_bool *cancel, struct err *e)
{
	double until = ckpt_pace_take(p, n, clock_s());
	until = until > 0 ? p->at + until : 0;
	for (double left; until > 0 && (left = until - clock_s()) > 0;) {
		if (cancel && atomic_load(cancel))
			return err_set(e, ERR_ABORTED, "the copy was stopped");
		left = fmin(left, glance_s);
		nanosleep(&(struct timespec){ .tv_nsec = (long)(left * 1e9) }, NULL);
	}
	return 0;
}
