#include "launcher/supervise/contract.h"

#include "base/human.h"
#include "launcher/rundir/likely.h"
#include "plan/cost/train_time.h"
#include "plan/peak.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

/* clang-format off */
static const struct {
	const char *field, *name;
	bool transfers;
	size_t at; /* in struct msg_metrics */
} parts[STEP_PART_COUNT] = {
#define PART_ROW(with, ENUM, member, name, transfers, doc) \
	[STEP_PART_##ENUM] = { #member "_s", name, transfers, offsetof(struct msg_metrics, member##_s) },
	STEP_PARTS(PART_ROW, )
#undef PART_ROW
};
/* clang-format on */

/* Shares of a step: smaller parts are not printed, smaller differences are no mismatch. */
static const double shown = 0.01, matters = 0.05;
static const double mismatch = 2; /* factor */

double supervise_contract_sum(const double p[STEP_PART_COUNT])
{
	double sum = 0;
	for (int i = 0; i < STEP_PART_COUNT; i++)
		sum += p[i];
	return sum;
}

void supervise_contract_step(struct contract *c, const struct msg_metrics *m)
{
	c->steps++;
	for (int i = 0; i < STEP_PART_COUNT; i++) {
		double x = *(const double *)((const char *)m + parts[i].at);
		c->parts[i] += isfinite(x) && x > 0 ? x : 0;
	}
}

/* How far two numbers of bytes are apart, as a logarithm; -1: one is unknown. */
static double memory_distance(double predicted, double measured)
{
	return predicted > 0 && measured > 0 ? fabs(log(predicted / measured)) : -1;
}

void supervise_contract_memory(struct contract *c, const struct plan *plan, int rank, double bytes)
{
	const struct plan_rank *r = &plan->ranks[rank];
	/* The agents' device allocator does not count the snapshot. */
	double predicted = r->total - r->snapshot;
	if (memory_distance(predicted, bytes) <=
	    memory_distance(c->predicted_bytes, c->measured_bytes))
		return;
	c->rank = rank;
	c->predicted_bytes = predicted;
	c->measured_bytes = bytes;
}

void supervise_contract_predicted(const struct job *job, const struct cluster *cluster,
				  const struct plan *plan, double p[STEP_PART_COUNT])
{
	const struct plan_time *t = &plan->time;
	struct train_costs costs;
	cost_train_costs_of(job, cluster, plan, &costs);
	for (int i = 0; i < STEP_PART_COUNT; i++)
		p[i] = fmax(0, t->parts[i]);
	if (job->checkpoint.every > 0)
		p[STEP_PART_CHECKPOINT] = costs.snapshot / (double)job->checkpoint.every;
	p[STEP_PART_OTHER] = fmax(0,
				  t->total + p[STEP_PART_CHECKPOINT] - supervise_contract_sum(p));
}

bool supervise_contract_interval(const struct job *job, const struct cluster *cluster,
				 const struct plan *plan, double seconds, struct cost_interval *out)
{
	struct plan_peak peak;
	plan_peak_of(cluster, plan, &peak);
	return cost_sureness_interval(job, &plan->shape, peak.flops, seconds, out);
}

static double measured_part(const struct contract *c, int part)
{
	return c->steps ? c->parts[part] / (double)c->steps : 0;
}

static double measured_step(const struct contract *c)
{
	return c->steps ? supervise_contract_sum(c->parts) / (double)c->steps : 0;
}

bool supervise_contract_mismatch(const struct contract *c, const double predicted[STEP_PART_COUNT],
				 bool shared, char *text, size_t size)
{
	double step = measured_step(c);
	for (int i = 0; i < STEP_PART_COUNT && !shared; i++) {
		double was = measured_part(c, i), thought = predicted[i];
		if (!parts[i].transfers || fabs(was - thought) < matters * step)
			continue;
		if (was > mismatch * thought && thought > 0)
			snprintf(text, size,
				 "%s took %.1f times the predicted time; measure the links with "
				 "muster bench comm, and calibrate with muster bench calibrate",
				 parts[i].name, was / thought);
		else if (was > thought && !(thought > 0))
			snprintf(text, size, "%s took %.3g s per step, but none was predicted",
				 parts[i].name, was);
		else if (thought > mismatch * was)
			snprintf(text, size,
				 "%s took %.2g of the predicted time; calibrate with muster bench "
				 "calibrate, and muster may find a better layout",
				 parts[i].name, was / thought);
		else
			continue;
		return true;
	}
	return false;
}

static json_t *parts_json(const double p[STEP_PART_COUNT])
{
	json_t *o = json_pack("{s:f}", "step_s", supervise_contract_sum(p));
	for (int i = 0; i < STEP_PART_COUNT; i++)
		json_object_set_new(o, parts[i].field, json_real(p[i]));
	return o;
}

json_t *supervise_contract_json(const struct contract *c, const double predicted[STEP_PART_COUNT])
{
	double means[STEP_PART_COUNT];
	for (int i = 0; i < STEP_PART_COUNT; i++)
		means[i] = measured_part(c, i);
	json_t *o = json_pack("{s:I, s:o, s:o}", "steps", (json_int_t)c->steps, "predicted",
			      parts_json(predicted), "measured", parts_json(means));
	if (c->measured_bytes > 0)
		json_object_set_new(o, "memory",
				    json_pack("{s:i, s:f, s:f}", "rank", c->rank, "predicted_bytes",
					      c->predicted_bytes, "measured_bytes",
					      c->measured_bytes));
	return o;
}

void supervise_contract_print(const struct contract *c, const double predicted[STEP_PART_COUNT],
			      const struct cost_interval *likely, struct terminal *t)
{
	double step = measured_step(c), whole = supervise_contract_sum(predicted);
	char a[HUMAN], b[HUMAN], where[RUNDIR_LIKELY];
	if (!c->steps || !(step > 0))
		return;
	supervise_terminal_event(t, TONE_PLAIN, "step",
				 "%-16s %9.4g s predicted %9.4g s measured  %+.0f %%", "total",
				 whole, step, 100 * (whole / step - 1));
	if (likely)
		supervise_terminal_event(t, TONE_PLAIN, "", "the measured step is %s",
					 rundir_likely_print(step, likely->least, likely->most,
							     where));
	for (int i = 0; i < STEP_PART_COUNT; i++) {
		double was = measured_part(c, i);
		if (was >= shown * step || predicted[i] >= shown * whole)
			supervise_terminal_event(t, TONE_PLAIN, "",
						 "%-16s %9.4g %s %12.4g %11s %3.0f %%",
						 parts[i].name, predicted[i], "           ", was,
						 "", 100 * was / step);
	}
	if (c->measured_bytes > 0)
		supervise_terminal_event(
			t, TONE_PLAIN, "memory",
			"%s predicted, %s measured on rank %d, where they differ most",
			human_bytes(c->predicted_bytes, a), human_bytes(c->measured_bytes, b),
			c->rank);
}
