#include "launcher/supervise/warnings.h"

#include "base/human.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>

/* The least deviations, as for health.spike_z: of the loss over its median, and of the norm's
 * logarithm. */
static const double least_loss = 0.02, least_norm = 0.25;

static const struct warning_rule rules[WARNING_COUNT] = {
#define WARNING_ROW(ENUM, id, steps, begins, ends, slow, over, remedy) \
	[WARNING_##ENUM] = { id, steps, begins, ends, slow, over, remedy },
	WARNING_RULES(WARNING_ROW)
#undef WARNING_ROW
};

const struct warning_rule *supervise_warning_rule(enum warning_id id)
{
	return &rules[id];
}

void supervise_warnings_init(struct warnings *w, const struct warning_limits *limits)
{
	*w = (struct warnings){ .limits = *limits, .last_step = -1 };
}

/* --- what a step shows ---------------------------------------------------------------- */

enum verdict { UNKNOWN, WITHIN, OUT };

typedef double measure(const struct recent *r, double x, double z, double least, double *usual);

/* Judges a value by the last ones. One that is out of their range does not join them. After so many
 * of these in a row, the values have a new level, and the range begins anew. */
static enum verdict judge_recent(struct warning_range *r, double x, double z, measure *above,
				 double least, double *usual)
{
	if (!isfinite(x) || !(z > 0))
		return UNKNOWN;
	if (r->out == WARNING_WINDOW)
		*r = (struct warning_range){ 0 };
	bool known = r->recent.n >= WARNING_WINDOW / 2;
	if (known && above(&r->recent, x, z, least, usual) > 0) {
		r->out++;
		return OUT;
	}
	r->out = 0;
	recent_add(&r->recent, WARNING_WINDOW, x);
	return known ? WITHIN : UNKNOWN;
}

static enum verdict judge_loss(struct warnings *w, const struct warning_sample *x,
			       char text[WARNING_TEXT])
{
	double usual;
	if (x->step <= w->limits.warmup)
		return UNKNOWN;
	enum verdict v = judge_recent(&w->loss, x->loss, w->limits.z, recent_above_share,
				      least_loss, &usual);
	if (v == OUT)
		snprintf(text, WARNING_TEXT, "step %lld: the loss is %.4g, and %.4g was usual",
			 (long long)x->step, x->loss, usual);
	return v;
}

static enum verdict judge_norm(struct warnings *w, const struct warning_sample *x,
			       char text[WARNING_TEXT])
{
	double usual;
	if (x->step <= w->limits.warmup)
		return UNKNOWN;
	/* A norm of 0 is possible; it stays far below all others. */
	double norm = isfinite(x->norm) ? log(fmax(x->norm, 1e-30)) : NAN;
	enum verdict v = judge_recent(&w->norm, norm, w->limits.z, recent_above, least_norm,
				      &usual);
	if (v == OUT)
		snprintf(text, WARNING_TEXT,
			 "step %lld: the gradient norm is %.4g, and %.4g was usual",
			 (long long)x->step, x->norm, exp(usual));
	return v;
}

static enum verdict judge_data(struct warnings *w, const struct warning_sample *x,
			       char text[WARNING_TEXT])
{
	if (!(w->limits.data > 0) || !isfinite(x->data))
		return UNKNOWN;
	if (x->data <= w->limits.data)
		return WITHIN;
	snprintf(text, WARNING_TEXT, "step %lld: rank %d waits for samples for %.0f %% of a step",
		 (long long)x->step, x->data_rank, 100 * x->data);
	return OUT;
}

static enum verdict judge_prediction(struct warnings *w, const struct warning_sample *x,
				     char text[WARNING_TEXT])
{
	char took[HUMAN], predicted[HUMAN];
	if (!(w->limits.predicted > 0) || !isfinite(x->step_s) || !(x->predicted_s > 0))
		return UNKNOWN;
	if (x->step_s <= w->limits.predicted * x->predicted_s)
		return WITHIN;
	snprintf(text, WARNING_TEXT, "step %lld: a step takes %s, %.1f times the predicted %s",
		 (long long)x->step, human_seconds(x->step_s, took), x->step_s / x->predicted_s,
		 human_seconds(x->predicted_s, predicted));
	return OUT;
}

static enum verdict (*const judges[WARNING_COUNT])(struct warnings *w,
						   const struct warning_sample *x,
						   char text[WARNING_TEXT]) = {
	[WARNING_LOSS] = judge_loss,
	[WARNING_NORM] = judge_norm,
	[WARNING_DATA] = judge_data,
	[WARNING_PREDICTION] = judge_prediction,
};

/* --- what holds ----------------------------------------------------------------------- */

struct warning_news supervise_warnings_hold(struct warnings *w, enum warning_id id, bool holds,
					    const char *text, double time)
{
	struct warning *x = &w->list[id];
	if (x->holds == holds)
		return (struct warning_news){ 0, 0 };
	x->holds = holds;
	x->since = holds ? time : 0;
	snprintf(x->text, sizeof x->text, "%s", text ? text : rules[id].over);
	return (struct warning_news){ .begun = holds ? 1u << id : 0,
				      .ended = holds ? 0 : 1u << id };
}

/* Counts the step. Sets *holds. */
static void count_step(struct warning *x, const struct warning_rule *r, bool out, bool *holds)
{
	uint64_t last = r->steps < 64 ? (UINT64_C(1) << r->steps) - 1 : UINT64_MAX;
	x->out = ((x->out << 1) | out) & last;
	int n = __builtin_popcountll(x->out);
	*holds = x->holds ? n > r->ends : n >= r->begins;
}

void supervise_warnings_prime(struct warnings *w, const struct warning_sample *x)
{
	char text[WARNING_TEXT];
	judge_loss(w, x, text);
	judge_norm(w, x, text);
	w->last_step = x->step;
}

struct warning_news supervise_warnings_step(struct warnings *w, const struct warning_sample *x,
					    double time)
{
	struct warning_news all = { 0, 0 };
	if (x->step + WARNING_BACK <= w->last_step)
		w->loss = w->norm = (struct warning_range){ 0 };
	w->last_step = x->step;
	for (int i = 0; i < WARNING_COUNT; i++) {
		char text[WARNING_TEXT] = "";
		enum verdict v = judges[i] ? judges[i](w, x, text) : UNKNOWN;
		bool holds;
		if (v == UNKNOWN)
			continue;
		count_step(&w->list[i], &rules[i], v == OUT, &holds);
		struct warning_news n = supervise_warnings_hold(w, (enum warning_id)i, holds,
								holds ? text : NULL, time);
		all.begun |= n.begun;
		all.ended |= n.ended;
	}
	return all;
}

json_t *supervise_warnings_json(const struct warnings *w)
{
	json_t *list = json_array();
	for (int i = 0; list && i < WARNING_COUNT; i++) {
		const struct warning *x = &w->list[i];
		if (!x->holds)
			continue;
		json_t *o = json_pack("{s:s, s:f, s:s, s:s}", "id", rules[i].id, "since", x->since,
				      "text", x->text, "remedy", rules[i].remedy);
		if (!o || json_array_append_new(list, o)) {
			json_decref(list);
			return NULL;
		}
	}
	return list;
}
