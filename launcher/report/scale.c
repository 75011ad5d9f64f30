#include "launcher/report/scale.h"

#include <math.h>

/* The smallest of 1, 2, 5 and 10 times a power of ten that is at least `least`. */
static double round_up(double least)
{
	double power = pow(10, floor(log10(least))), of = least / power;
	const double slack = 1 + 1e-9; /* log10 rounds */
	return power * (of <= slack ? 1 : of <= 2 * slack ? 2 : of <= 5 * slack ? 5 : 10);
}

enum { ROUND_TICKS = 5 };

static void widen(double *lo, double *hi)
{
	double step = round_up((*hi - *lo) / ROUND_TICKS);
	*lo = step * floor(*lo / step + 1e-9);
	*hi = step * ceil(*hi / step - 1e-9);
}

struct scale report_scale(double lo, double hi, bool round)
{
	const double most = 1e300;
	if (!isfinite(lo) || !isfinite(hi) || lo > hi)
		return (struct scale){ 0, 1 };
	lo = fmax(fmin(lo, most), -most);
	hi = fmax(fmin(hi, most), -most);
	if (hi - lo <= 1e-9 * fmax(fabs(lo), fabs(hi))) {
		double room = lo != 0 ? fabs(lo) / 10 : 1;
		lo -= room;
		hi += room;
	}
	if (round)
		widen(&lo, &hi);
	return (struct scale){ lo, hi };
}

double report_scale_at(const struct scale *s, double v)
{
	double at = (v - s->lo) / (s->hi - s->lo);
	return at > 0 ? fmin(at, 1) : 0;
}

int report_scale_ticks(const struct scale *s, int most, double ticks[SCALE_TICKS])
{
	int n = 0;
	most = most > SCALE_TICKS ? SCALE_TICKS : most < 2 ? 2 : most;
	double step = round_up((s->hi - s->lo) / (most - 1)), slack = step * 1e-6;
	for (double i = ceil(s->lo / step - 1e-6); n < most && i * step <= s->hi + slack; i++)
		ticks[n++] = i * step == 0 ? 0 : i * step;
	return n;
}
