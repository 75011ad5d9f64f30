#include "plan/place/exchange.h"

#include <math.h>
#include <stddef.h>

double place_exchange_share(const struct measured *m, double busy)
{
	return m->cores > 0 ? fmax(1, busy / m->cores) : 1;
}

/* The distance of two numbers on a logarithmic scale. */
static double log_distance(double a, double b)
{
	return fabs(log(a / b));
}

/* Between two points the logarithm of the time is linear in the logarithm of the bytes. Below all
 * points it is the time of the smallest one. Above them the rate is that of the largest one; a
 * meeting keeps the time of the largest one. */
static double seconds_at(const struct measured_exchange *x, double bytes)
{
	int i = 1, last = x->n - 1;
	if (bytes <= x->bytes[0])
		return x->seconds[0];
	if (bytes >= x->bytes[last])
		return x->op == MEASURED_MEETING ? x->seconds[last]
						 : x->seconds[last] * bytes / x->bytes[last];
	while (bytes > x->bytes[i])
		i++;
	double share = log(bytes / x->bytes[i - 1]) / log(x->bytes[i] / x->bytes[i - 1]);
	return x->seconds[i - 1] * pow(x->seconds[i] / x->seconds[i - 1], share);
}

/* Among the exchanges in groups of this size, finds the one with the nearest number of agents. */
static const struct measured_exchange *find_exchange(const struct measured *m, enum measured_op op,
						     int group, int crowd)
{
	const struct measured_exchange *best = NULL;
	for (int i = 0; i < m->n_exchanges; i++) {
		const struct measured_exchange *x = &m->exchanges[i];
		if (x->transport == m->transport && x->op == op && x->group == group &&
		    (!best || log_distance(x->crowd, crowd) < log_distance(best->crowd, crowd)))
			best = x;
	}
	return best;
}

/* Finds the nearest measured group sizes below and above `group`; 0: there is none. */
static void find_group_sizes(const struct measured *m, enum measured_op op, int group, int *below,
			     int *above)
{
	*below = *above = 0;
	for (int i = 0; i < m->n_exchanges; i++) {
		const struct measured_exchange *x = &m->exchanges[i];
		if (x->transport != m->transport || x->op != op)
			continue;
		if (x->group <= group && x->group > *below)
			*below = x->group;
		if (x->group >= group && (!*above || x->group < *above))
			*above = x->group;
	}
}

static double alone_seconds(const struct measured *m, enum measured_op op, int group, int crowd,
			    double bytes)
{
	const struct measured_exchange *x = find_exchange(m, op, group, crowd);
	return seconds_at(x, bytes) / place_exchange_share(m, x->crowd);
}

double place_exchange_seconds(const struct measured *m, enum measured_op op, int group, int crowd,
			      double bytes)
{
	int below, above;
	if (group < 2 || !(bytes > 0))
		return 0;
	find_group_sizes(m, op, group, &below, &above);
	if (!below && !above)
		return 0;
	if (!below || !above || below == above)
		return alone_seconds(m, op, below ? below : above, crowd, bytes);
	double least = alone_seconds(m, op, below, crowd, bytes),
	       most = alone_seconds(m, op, above, crowd, bytes);
	return least + (most - least) * (group - below) / (above - below);
}

double place_exchange_meeting(const struct measured *m, int group, int crowd, double work)
{
	return place_exchange_seconds(m, MEASURED_MEETING, group, crowd, work * 1e6);
}
