#include "plan/spec/batch.h"

#include "plan/spec/speeds.h"

#include <math.h>
#include <stdlib.h>

static double stage_cost(const struct model_shape *m, const struct stage *s)
{
	return (s->layer_hi - s->layer_lo) * shape_cost_layer(m) +
	       (s->first ? shape_cost_embed(m) : 0) + (s->last ? shape_cost_head(m) : 0);
}

static double rank_cost(const struct model_shape *m, const struct layout *l,
			const struct stage *stages, int pp)
{
	double cost = 0;
	for (int c = 0; c < l->chunks; c++)
		cost += stage_cost(m, &stages[layout_stage(l, pp, c)]);
	return cost;
}

/* Time of a micro-batch on replica dp, in units of the stages' cost. */
static double replica_time(const struct job *job, const struct model_shape *m,
			   const struct layout *l, const struct stage *stages, int dp)
{
	double slowest = 0;
	for (int pp = 0; pp < l->pp; pp++)
		slowest = fmax(slowest,
			       rank_cost(m, l, stages, pp) / speeds_holder(job, l, dp, pp));
	return slowest;
}

/* Shares n rounds among groups whose rounds take time[g] each. Each group gets at least one round.
 * First each group gets the rounds that it can surely have. Then each further round goes to the
 * group that would end first. Of two that end at the same time it goes to the slower one, because
 * that leaves the faster one less idle. */
static void share_rounds(int64_t n, int groups, const double *time, int64_t *rounds)
{
	double rate = 0;
	int64_t left = n;
	for (int g = 0; g < groups; g++)
		rate += 1 / time[g];
	for (int g = 0; g < groups; g++) {
		/* Slightly less than the exact share, which rounding could raise above a whole
		 * number. */
		int64_t sure = (int64_t)floor((double)(n - groups) / time[g] / rate * (1 - 1e-12));
		rounds[g] = sure > 1 ? sure : 1;
		left -= rounds[g];
	}
	for (; left > 0; left--) {
		int best = 0;
		for (int g = 1; g < groups; g++) {
			double mine = (double)(rounds[g] + 1) * time[g],
			       least = (double)(rounds[best] + 1) * time[best];
			if (mine < least || (mine == least && time[g] > time[best]))
				best = g;
		}
		rounds[best]++;
	}
}

static int refuse_unequal(const struct job *job, int a, int64_t x, int b, int64_t y, struct err *e)
{
	return err_set(e, ERR_USAGE,
		       "zero = %lld reduces each micro-batch's gradients over all replicas, and "
		       "the devices' speeds give replica %d "
		       "%lld micro-batches and replica %d %lld; use zero = 1",
		       (long long)job->parallel.zero, a, (long long)x, b, (long long)y);
}

static int split_unequal(const struct job *job, const struct model_shape *m, const struct layout *l,
			 const struct stage *stages, struct batch_share *out, struct err *e)
{
	int groups = l->dp / l->ep, rc = -1;
	int64_t n = job->batch.global / job->batch.micro / l->ep, first = 0;
	double *time = calloc((size_t)groups, sizeof *time);
	int64_t *rounds = calloc((size_t)groups, sizeof *rounds);
	if (!time || !rounds) {
		err_set(e, ERR_NOMEM,
			"no memory to share a batch over %d replicas; close other programs", l->dp);
		goto out;
	}
	for (int dp = 0; dp < l->dp; dp++)
		time[dp / l->ep] = fmax(time[dp / l->ep], replica_time(job, m, l, stages, dp));
	share_rounds(n, groups, time, rounds);
	for (int g = 1; g < groups; g++)
		if (job->parallel.zero >= 2 && rounds[g] != rounds[0]) {
			refuse_unequal(job, 0, rounds[0], g * l->ep, rounds[g], e);
			goto out;
		}
	for (int dp = 0; dp < l->dp; dp++) {
		out[dp] = (struct batch_share){ .micros = (int)rounds[dp / l->ep], .first = first };
		first += rounds[dp / l->ep] * job->batch.micro;
	}
	rc = 0;
out:
	free(rounds);
	free(time);
	return rc;
}

int batch_split(const struct job *job, const struct model_shape *m, const struct layout *l,
		const struct stage *stages, struct batch_share *out, struct err *e)
{
	bool unequal = speeds_devices(job) > 0;
	int64_t share = job->batch.micro * (unequal ? l->ep : l->dp),
		n = job->batch.global / job->batch.micro;
	if (job->batch.global % share || n < l->dp)
		return err_set(e, ERR_USAGE,
			       "global = %lld does not give each of %d replicas a whole number of "
			       "micro-batches of %lld; make it a multiple of %lld",
			       (long long)job->batch.global, l->dp, (long long)job->batch.micro,
			       (long long)(job->batch.micro * l->dp));
	if (unequal)
		return split_unequal(job, m, l, stages, out, e);
	for (int dp = 0; dp < l->dp; dp++)
		out[dp] = (struct batch_share){ .micros = (int)(n / l->dp),
						.first = job->batch.micro * (n / l->dp) * dp };
	return 0;
}

int batch_slowest(const struct model_shape *m, const struct layout *l, const struct stage *stages,
		  const struct batch_share *shares, const double *speeds)
{
	int slowest = 0;
	double most = 0;
	for (int dp = 0; dp < l->dp; dp++) {
		double mine = 0;
		for (int pp = 0; pp < l->pp; pp++)
			mine = fmax(mine, rank_cost(m, l, stages, pp) / speeds[dp * l->pp + pp]);
		mine *= shares[dp].micros;
		if (mine > most) {
			most = mine;
			slowest = dp;
		}
	}
	return slowest;
}
