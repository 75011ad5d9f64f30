/* report_json: the report for programs. Times are in seconds, shares from 0 to 1. */
#include "launcher/goodput/report.h"

#include <math.h>

static json_t *number(double x)
{
	return isfinite(x) ? json_real(x) : json_null();
}

static json_t *parts_json(const struct goodput_sum *s)
{
	json_t *o = json_object();
	for (int i = 0; i < GOODPUT_PART_COUNT; i++)
		json_object_set_new(o, goodput_part_name((enum goodput_part)i),
				    number(s->parts[i]));
	return o;
}

static json_t *sum_json(const struct goodput_sum *s)
{
	return json_pack(
		"{s:i, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, "
		"s:b, s:o}",
		"runs", s->runs, "effective", number(s->effective), "low", number(s->low), "high",
		number(s->high), "seconds", number(s->seconds), "steps", number(s->steps), "faults",
		number(s->all_faults), "restarts", number(s->restarts), "from_copies",
		number(s->from_copies), "replaced", number(s->replaced), "left_out",
		number(s->shrunk), "waited", number(s->waited), "excluded", number(s->excluded),
		"futile", number(s->futile), "by_hand", number(s->people), "longest_break_s",
		number(s->longest), "endless", s->endless, "parts_s", parts_json(s));
}

static json_t *lines_json(const struct goodput_lines *l)
{
	json_t *list = json_array();
	for (int i = 0; i < l->n; i++)
		json_array_append_new(list, json_pack("{s:s, s:o}", "with", l->of[i].what, "sum",
						      sum_json(&l->of[i].sum)));
	return list;
}

static json_t *costs_json(const struct goodput_setup *s)
{
	struct goodput_costs c = s->costs;
	json_t *o = json_object();
	for (int i = 0; i < GOODPUT_COST_COUNT; i++)
		json_object_set_new(o, goodput_cost_row(i)->name, number(*goodput_cost(&c, i)));
	return o;
}

/* By kind, as in a file of faults, with their number in a run. */
static json_t *faults_json(const struct goodput_report *r)
{
	json_t *doc = goodput_faults_json(r->setup.faults);
	json_t *list = json_object_get(doc, "faults");
	for (size_t i = 0; i < json_array_size(list); i++)
		json_object_set_new(json_array_get(list, i), "in_a_run", number(r->sum.faults[i]));
	return doc;
}

static json_t *picture_json(const struct goodput_report *r)
{
	const struct goodput_timeline *t = &r->first;
	json_t *list = json_array();
	for (int i = 0; i < t->n; i++)
		json_array_append_new(list, number(t->columns[i][GOODPUT_TRAINED] / t->each));
	return list;
}

json_t *goodput_report_json(const struct goodput_report *r)
{
	const struct goodput_setup *s = &r->setup;
	const struct goodput_advice *a = &r->advice;
	json_t *best = a->known ? json_pack("{s:I, s:I, s:i, s:I, s:s, s:o}", "checkpoint.every",
					    (json_int_t)a->every, "checkpoint.memory_every",
					    (json_int_t)a->copy_every, "slurm.spares", a->spares,
					    "restart.max_restarts", (json_int_t)a->restarts,
					    "health.slow_policy",
					    a->leaves_slow ? "exclude" : "warn", "sum",
					    sum_json(&a->sum))
				: json_null();
	return json_pack("{s:s, s:s, s:i, s:i, s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}",
			 "job", r->job, "cluster", r->cluster, "devices", r->devices, "nodes",
			 s->nodes, "spares", s->spares, "seed", (json_int_t)r->plan.seed, "costs_s",
			 costs_json(s), "faults", faults_json(r), "sum", sum_json(&r->sum),
			 "first_run", picture_json(r), "settings", lines_json(&r->settings),
			 "costs_doubled", lines_json(&r->costs), "launchers",
			 lines_json(&r->launchers), "best", best);
}
