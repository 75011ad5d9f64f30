#include "launcher/supervise/contract.h"

#include "base/human.h"
#include "plan/cost/train.h"

#include <math.h>
#include <stdio.h>

static const struct {
	const char *field, *name;
	bool transfers;
} parts[CONTRACT_PARTS] = {
	[CONTRACT_COMPUTE] = { "compute_s", "compute", false },
	[CONTRACT_RECOMPUTE] = { "recompute_s", "recomputation", false },
	[CONTRACT_TP] = { "tp_s", "tensor parallel", true },
	[CONTRACT_CP] = { "cp_s", "context parallel", true },
	[CONTRACT_EP] = { "ep_s", "expert parallel", true },
	[CONTRACT_PP] = { "pp_s", "pipeline", true },
	[CONTRACT_DP] = { "dp_s", "data parallel", true },
	[CONTRACT_OPTIMIZER] = { "optimizer_s", "optimizer", false },
	[CONTRACT_DATA] = { "data_s", "data", false },
	[CONTRACT_CHECKPOINT] = { "checkpoint_s", "checkpoints", false },
	[CONTRACT_OTHER] = { "other_s", "other", false },
};

#define SHOWN    0.01 /* of the step: smaller parts are not worth a line */
#define MATTERS  0.05
#define MISMATCH 2.0

static double sum_of(const double p[CONTRACT_PARTS])
{
	double sum = 0;
	for (int i = 0; i < CONTRACT_PARTS; i++)
		sum += p[i];
	return sum;
}

/* --- Gathering --- */

void supervise_contract_step(struct contract *c, const json_t *metrics)
{
	c->steps++;
	for (int i = 0; i < CONTRACT_PARTS; i++) {
		double x = json_number_value(json_object_get(metrics, parts[i].field));
		c->parts[i] += isfinite(x) && x > 0 ? x : 0;
	}
}

static double farness(double predicted, double measured)
{
	return predicted > 0 && measured > 0 ? fabs(log(predicted / measured)) : -1;
}

void supervise_contract_memory(struct contract *c, const struct plan *plan, int rank, double bytes)
{
	const struct plan_rank *r = &plan->ranks[rank];
	/* which the agents' device allocator does not know of */
	double predicted = r->total - r->snapshot;
	if (farness(predicted, bytes) <= farness(c->predicted_bytes, c->measured_bytes))
		return;
	c->rank = rank;
	c->predicted_bytes = predicted;
	c->measured_bytes = bytes;
}

void supervise_contract_predicted(const struct job *job, const struct cluster *cluster,
				  const struct plan *plan, double p[CONTRACT_PARTS])
{
	const struct plan_time *t = &plan->time;
	struct train_costs costs;
	cost_train_costs_of(job, cluster, plan, &costs);
	const double all[CONTRACT_PARTS] = {
		[CONTRACT_COMPUTE] = t->compute,
		[CONTRACT_RECOMPUTE] = t->recompute,
		[CONTRACT_TP] = t->tp,
		[CONTRACT_CP] = t->cp,
		[CONTRACT_EP] = t->ep,
		[CONTRACT_PP] = t->bubble,
		[CONTRACT_DP] = t->dp,
		[CONTRACT_OPTIMIZER] = t->optimizer,
		[CONTRACT_CHECKPOINT] = job->checkpoint.every > 0
						? costs.snapshot / (double)job->checkpoint.every
						: 0,
	};
	for (int i = 0; i < CONTRACT_PARTS; i++)
		p[i] = fmax(0, all[i]);
	p[CONTRACT_OTHER] = fmax(0, t->total + p[CONTRACT_CHECKPOINT] - sum_of(p));
}

/* --- Telling --- */

static double measured(const struct contract *c, int part)
{
	return c->steps ? c->parts[part] / (double)c->steps : 0;
}

static double measured_step(const struct contract *c)
{
	return c->steps ? sum_of(c->parts) / (double)c->steps : 0;
}

bool supervise_contract_mismatch(const struct contract *c, const double predicted[CONTRACT_PARTS],
				 bool shared, char *text, size_t size)
{
	double step = measured_step(c);
	for (int i = 0; i < CONTRACT_PARTS && !shared; i++) {
		double was = measured(c, i), thought = predicted[i];
		if (!parts[i].transfers || fabs(was - thought) < MATTERS * step)
			continue;
		if (was > MISMATCH * thought && thought > 0)
			snprintf(text, size,
				 "%s took %.1f times what was predicted; measure what the links "
				 "give with muster bench comm, and calibrate "
				 "with muster bench calibrate",
				 parts[i].name, was / thought);
		else if (was > thought && !(thought > 0))
			snprintf(text, size, "%s took %.3g s a step, and none was predicted",
				 parts[i].name, was);
		else if (thought > MISMATCH * was)
			snprintf(text, size,
				 "%s took %.2g of the time that was predicted; calibrate with "
				 "muster bench calibrate, and a better layout may be found",
				 parts[i].name, was / thought);
		else
			continue;
		return true;
	}
	return false;
}

static json_t *parts_json(const double p[CONTRACT_PARTS])
{
	json_t *o = json_pack("{s:f}", "step_s", sum_of(p));
	for (int i = 0; i < CONTRACT_PARTS; i++)
		json_object_set_new(o, parts[i].field, json_real(p[i]));
	return o;
}

json_t *supervise_contract_json(const struct contract *c, const double predicted[CONTRACT_PARTS])
{
	double means[CONTRACT_PARTS];
	for (int i = 0; i < CONTRACT_PARTS; i++)
		means[i] = measured(c, i);
	json_t *o = json_pack("{s:I, s:o, s:o}", "steps", (json_int_t)c->steps, "predicted",
			      parts_json(predicted), "measured", parts_json(means));
	if (c->measured_bytes > 0)
		json_object_set_new(o, "memory",
				    json_pack("{s:i, s:f, s:f}", "rank", c->rank, "predicted_bytes",
					      c->predicted_bytes, "measured_bytes",
					      c->measured_bytes));
	return o;
}

void supervise_contract_tell(const struct contract *c, const double predicted[CONTRACT_PARTS],
			     struct terminal *t)
{
	double step = measured_step(c), whole = sum_of(predicted);
	char a[HUMAN], b[HUMAN];
	if (!c->steps || !(step > 0))
		return;
	supervise_terminal_event(t, TONE_PLAIN, "step",
				 "%-16s %9.4g s predicted %9.4g s measured  %+.0f %%", "in all",
				 whole, step, 100 * (whole / step - 1));
	for (int i = 0; i < CONTRACT_PARTS; i++) {
		double was = measured(c, i);
		if (was >= SHOWN * step || predicted[i] >= SHOWN * whole)
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
