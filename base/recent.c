#include "base/recent.h"

#include "base/numbers.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

/* The standard deviation of a normal distribution over its MAD. */
static const double mad_to_deviation = 1.4826;

void recent_add(struct recent *r, int window, double x)
{
	r->last[r->next] = x;
	r->next = (r->next + 1) % window;
	r->n += r->n < window;
}

static double median(double *values, int n)
{
	qsort(values, (size_t)n, sizeof *values, compare_double);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static bool is_highest(const struct recent *r, double x)
{
	for (int i = 0; i < r->n; i++)
		if (r->last[i] >= x)
			return false;
	return r->n > 0;
}

struct recent_bound recent_bound(const struct recent *r, double z, double least, double share)
{
	double room[RECENT_MAX], highest = -INFINITY;
	if (!r->n)
		return (struct recent_bound){ .limit = INFINITY };
	for (int i = 0; i < r->n; i++)
		highest = fmax(highest, room[i] = r->last[i]);
	double middle = median(room, r->n);
	for (int i = 0; i < r->n; i++)
		room[i] = fabs(r->last[i] - middle);
	double deviation = fmax(mad_to_deviation * median(room, r->n),
				fmax(least, share * fabs(middle)));
	return (struct recent_bound){
		.usual = middle,
		.deviation = deviation,
		.limit = deviation > 0 ? fmax(highest, middle + z * deviation) : INFINITY,
	};
}

/* Nearly all values are not the highest, and need no medians. */
static double above(const struct recent *r, double x, double z, double least, double share,
		    double *usual)
{
	if (!is_highest(r, x))
		return 0;
	struct recent_bound b = recent_bound(r, z, least, share);
	if (x <= b.limit)
		return 0;
	*usual = b.usual;
	return (x - b.usual) / b.deviation;
}

double recent_above(const struct recent *r, double x, double z, double least_deviation,
		    double *usual)
{
	return above(r, x, z, least_deviation, 0, usual);
}

double recent_above_share(const struct recent *r, double x, double z, double share, double *usual)
{
	return above(r, x, z, 0, share, usual);
}
