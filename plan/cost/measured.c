#include "plan/cost/measured.h"

#include <math.h>
#include <string.h>

/* The distance of two numbers on a logarithmic scale. */
static double log_distance(double a, double b)
{
	return fabs(log(a / b));
}

void cost_measured_rates(const struct machine_rates *rates, struct cost_machine *out)
{
	memset(out, 0, sizeof *out);
	memcpy(out->rates, rates->rates, sizeof out->rates);
	memcpy(out->packing, rates->packing, sizeof out->packing);
	out->op = rates->op;
}

/* If the agents do not all fit on the cores, there is no measurement of them. Agents that fill the
 * cores then take their place. */
bool cost_measured_machine(const struct measured *m, int agents, int threads, bool low_precision,
			   struct cost_machine *out)
{
	const struct measured_machine *best = NULL;
	double least = 0, fit = fmax(1, fmin(agents, floor((double)m->cores / threads)));
	for (int i = 0; i < m->n_machines; i++) {
		const struct measured_machine *x = &m->machines[i];
		/* The number of threads matters more than the number of agents. */
		double distance = 4 * log_distance(x->threads, threads) +
				  log_distance(x->agents, fit);
		if (x->low_precision != low_precision || (best && distance >= least))
			continue;
		best = x;
		least = distance;
	}
	if (best)
		cost_measured_rates(&best->machine, out);
	return best != NULL;
}
