#include "plan/cost/measured.h"

#include <math.h>

/* --- Keeping --- */

void topo_measured_add_machine(struct measured *m, const struct measured_machine *machine)
{
	int i = 0;
	while (i < m->n_machines && (m->machines[i].agents != machine->agents ||
				     m->machines[i].threads != machine->threads ||
				     m->machines[i].narrow != machine->narrow))
		i++;
	if (i == MEASURED_MACHINES)
		return;
	m->machines[i] = *machine;
	m->n_machines += i == m->n_machines;
}

static bool is_alike(const struct measured_exchange *a, const struct measured_exchange *b)
{
	return a->transport == b->transport && a->op == b->op && a->group == b->group &&
	       a->crowd == b->crowd;
}

void topo_measured_add_exchange(struct measured *m, const struct measured_exchange *exchange)
{
	int i = 0;
	while (i < m->n_exchanges && !is_alike(&m->exchanges[i], exchange))
		i++;
	if (i == MEASURED_EXCHANGES)
		return;
	m->exchanges[i] = *exchange;
	m->n_exchanges += i == m->n_exchanges;
}

/* --- Asking --- */

double place_exchange_share(const struct measured *m, double busy)
{
	return m->cores > 0 ? fmax(1, busy / m->cores) : 1;
}

/* How many times one is the other, as a distance. */
static double apart(double a, double b)
{
	return fabs(log(a / b));
}

/* Agents that do not all fit were not measured: those that fill the cores stand for them. */
bool cost_measured_machine(const struct measured *m, int agents, int threads, bool narrow,
		      struct machine *out)
{
	const struct measured_machine *best = NULL;
	double least = 0, fit = fmax(1, fmin(agents, floor((double)m->cores / threads)));
	for (int i = 0; i < m->n_machines; i++) {
		const struct measured_machine *x = &m->machines[i];
		/* Threads matter more than neighbours. */
		double far = 4 * apart(x->threads, threads) + apart(x->agents, fit);
		if (x->narrow != narrow || (best && far >= least))
			continue;
		best = x;
		least = far;
	}
	if (best)
		*out = best->machine;
	return best != NULL;
}

/* Straight in the logarithms between points; below them the time of the least, above them the
 * rate of the most. */
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

/* Of those with this group the one whose crowd is nearest. */
static const struct measured_exchange *find(const struct measured *m, enum measured_op op,
					    int group, int crowd)
{
	const struct measured_exchange *best = NULL;
	for (int i = 0; i < m->n_exchanges; i++) {
		const struct measured_exchange *x = &m->exchanges[i];
		if (x->transport == m->transport && x->op == op && x->group == group &&
		    (!best || apart(x->crowd, crowd) < apart(best->crowd, crowd)))
			best = x;
	}
	return best;
}

/* The measured group sizes on both sides of `group`; 0: none. */
static void around(const struct measured *m, enum measured_op op, int group, int *below, int *above)
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
	const struct measured_exchange *x = find(m, op, group, crowd);
	return seconds_at(x, bytes) / place_exchange_share(m, x->crowd);
}

double place_exchange_seconds(const struct measured *m, enum measured_op op, int group, int crowd,
			 double bytes)
{
	int below, above;
	if (group < 2 || !(bytes > 0))
		return 0;
	around(m, op, group, &below, &above);
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
