#include "launcher/exports/exports.h"

#include "base/clock.h"
#include "base/version.h"
#include "launcher/exports/export_ops.h"
#include "launcher/exports/gauges.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct export_ops *const all[] = { &exports_tensorboard, &exports_listener,
						&exports_textfile };
enum { EXPORTS = sizeof all / sizeof *all };

struct opened {
	const struct export_ops *ops;
	void *x;
	double last_text; /* when it got the numbers */
};

struct exports {
	struct exports_options o;
	struct opened list[EXPORTS];
	int n;
	struct export_gauges gauges;
	double predicted_s;
};

/* Calls the function of each export that has it. */
#define EACH(exports, function, ...) \
	for (int i_ = 0; (exports) && i_ < (exports)->n; i_++) \
		if ((exports)->list[i_].ops->function) \
	(exports)->list[i_].ops->function((exports)->list[i_].x, __VA_ARGS__)

static void tell_trouble(struct exports *x, const struct export_ops *ops, const struct err *why)
{
	char text[sizeof why->text + 128];
	snprintf(text, sizeof text, "%s: %s; the run goes on", ops->key, why->text);
	x->o.tell(x->o.arg, true, text);
}

static void describe_run(struct exports *x)
{
	char host[256] = "";
	gethostname(host, sizeof host - 1);
	exports_gauges_init(&x->gauges, x->o.job->job.name, host);
	x->gauges.rank = x->o.job->metrics.ranks ? x->o.rank : NULL;
	x->gauges.arg = x->o.arg;
	exports_gauge_set(&x->gauges, GAUGE_STARTED, clock_wall_s());
	exports_gauge_set(&x->gauges, GAUGE_PLANNED, (double)job_steps(x->o.job));
	exports_gauge_set(&x->gauges, GAUGE_STEPS, 0);
	exports_gauge_set(&x->gauges, GAUGE_TOKENS, 0);
	exports_gauge_set(&x->gauges, GAUGE_RESTARTS, 0);
	exports_gauge_set(&x->gauges, GAUGE_CHECKPOINTS, 0);
	exports_gauges_info(&x->gauges, "version", MUSTER_VERSION);
	exports_gauges_info(&x->gauges, "family",
			    job_word(x->o.job, offsetof(struct job, model.family)));
}

struct exports *exports_open(const struct exports_options *o)
{
	bool wanted = false;
	for (int i = 0; i < EXPORTS; i++)
		wanted |= all[i]->is_wanted(o->job);
	struct exports *x = wanted ? calloc(1, sizeof *x) : NULL;
	if (!x)
		return NULL;
	x->o = *o;
	describe_run(x);
	for (int i = 0; i < EXPORTS; i++) {
		struct err e = ERR_INIT;
		struct opened *to = &x->list[x->n];
		*to = (struct opened){ .ops = all[i], .last_text = -INFINITY };
		if (!all[i]->is_wanted(o->job))
			continue;
		if (all[i]->open(o, &to->x, &e))
			tell_trouble(x, all[i], &e);
		else
			x->n++;
	}
	if (x->n)
		return x;
	free(x);
	return NULL;
}

void exports_begin(struct exports *x, const struct export_begin *b)
{
	if (!x)
		return;
	struct export_gauges *g = &x->gauges;
	exports_gauge_set(g, GAUGE_GENERATION, b->generation);
	exports_gauge_set(g, GAUGE_RANKS, b->ranks);
	exports_gauge_set(g, GAUGE_NODES, b->nodes);
	exports_gauge_set(g, GAUGE_RESUMED, (double)b->step);
	exports_gauge_set(g, GAUGE_PREDICTED, b->predicted_s);
	x->predicted_s = b->predicted_s;
	EACH(x, begin, b);
}

static void set_if(struct export_gauges *g, enum export_gauge id, bool has, double value)
{
	if (has)
		exports_gauge_set(g, id, value);
}

static void note_step(struct export_gauges *g, const struct msg_metrics *m)
{
	exports_gauge_set(g, GAUGE_STEP, (double)m->step);
	exports_gauge_set(g, GAUGE_SAMPLES, (double)m->samples);
	exports_gauge_set(g, GAUGE_LOSS, m->loss);
	exports_gauge_set(g, GAUGE_GRAD_NORM, m->grad_norm);
	exports_gauge_set(g, GAUGE_LEARNING_RATE, m->lr);
	exports_gauge_set(g, GAUGE_STEP_SECONDS, m->step_s);
	exports_gauge_set(g, GAUGE_PEAK, (double)m->peak_bytes);
	exports_gauge_set(g, GAUGE_LAST_STEP, clock_wall_s());
	exports_gauge_add(g, GAUGE_STEPS, 1);
	exports_gauge_add(g, GAUGE_TOKENS, (double)m->tokens);
	set_if(g, GAUGE_CROSS_ENTROPY, m->has_cross_entropy, m->cross_entropy);
	set_if(g, GAUGE_BALANCE_LOSS, m->has_balance_loss, m->balance_loss);
	set_if(g, GAUGE_Z_LOSS, m->has_z_loss, m->z_loss);
	set_if(g, GAUGE_LOSS_SCALE, m->has_loss_scale, m->loss_scale);
	if (m->has_skipped)
		exports_gauge_add(g, GAUGE_SKIPPED, m->skipped);
#define ADD_PART(with, ENUM, member, ...) \
	g->parts[STEP_PART_##ENUM] += isfinite(m->member##_s) ? m->member##_s : 0;
	STEP_PARTS(ADD_PART, )
#undef ADD_PART
}

void exports_step(struct exports *x, const struct msg_metrics *m)
{
	if (!x)
		return;
	note_step(&x->gauges, m);
	EACH(x, step, m, x->predicted_s);
}

void exports_eval(struct exports *x, const struct msg_eval *m)
{
	if (!x)
		return;
	exports_gauge_set(&x->gauges, GAUGE_EVAL_LOSS, m->loss);
	exports_gauge_set(&x->gauges, GAUGE_EVAL_STEP, (double)m->step);
	EACH(x, eval, m);
}

void exports_checkpoint(struct exports *x, const struct msg_ckpt *m)
{
	if (!x)
		return;
	exports_gauge_add(&x->gauges, GAUGE_CHECKPOINTS, 1);
	exports_gauge_set(&x->gauges, GAUGE_CKPT_STEP, (double)m->step);
	exports_gauge_set(&x->gauges, GAUGE_CKPT_BYTES, (double)m->bytes);
	exports_gauge_set(&x->gauges, GAUGE_CKPT_SECONDS, m->seconds);
	exports_gauge_set(&x->gauges, GAUGE_CKPT_STALL, m->stall_s);
	exports_gauge_set(&x->gauges, GAUGE_CKPT_TIME, clock_wall_s());
	EACH(x, checkpoint, m);
}

void exports_state(struct exports *x, enum rundir_state_id state, int64_t restarts)
{
	if (!x)
		return;
	x->gauges.state = state;
	exports_gauge_set(&x->gauges, GAUGE_RESTARTS, (double)restarts);
}

/* --- The text -------------------------------------------------------------------------- */

static bool is_due(const struct opened *to, double now)
{
	return to->ops->text && now - to->last_text >= to->ops->text_s;
}

/* What only the supervisor knows. */
static void ask_time(struct exports *x)
{
	x->gauges.time = x->o.time ? x->o.time(x->o.arg) : NULL;
	if (x->gauges.time)
		exports_gauge_set(&x->gauges, GAUGE_GOODPUT, time_parts_goodput(x->gauges.time));
}

static void give_text(struct exports *x, double now)
{
	struct buf ranks = BUF_INIT, prometheus = BUF_INIT, open_metrics = BUF_INIT;
	ask_time(x);
	exports_gauges_ranks(&x->gauges, &ranks);
	exports_gauges_text(&x->gauges, FORMAT_PROMETHEUS, &ranks, &prometheus);
	exports_gauges_text(&x->gauges, FORMAT_OPEN_METRICS, &ranks, &open_metrics);
	bool failed = buf_failed(&ranks) || buf_failed(&prometheus) || buf_failed(&open_metrics);
	for (int i = 0; i < x->n && !failed; i++) {
		struct opened *to = &x->list[i];
		if (!is_due(to, now))
			continue;
		if (to->ops->text(to->x, &prometheus, &open_metrics))
			to->last_text = now;
	}
	buf_fini(&ranks);
	buf_fini(&prometheus);
	buf_fini(&open_metrics);
}

static bool is_any_due(const struct exports *x, double now)
{
	for (int i = 0; i < x->n; i++)
		if (is_due(&x->list[i], now))
			return true;
	return false;
}

void exports_tick(struct exports *x, double now)
{
	struct err e = ERR_INIT;
	if (!x)
		return;
	for (int i = 0; i < x->n; i++)
		if (x->list[i].ops->trouble && x->list[i].ops->trouble(x->list[i].x, &e))
			tell_trouble(x, x->list[i].ops, &e);
	if (is_any_due(x, now))
		give_text(x, now);
}

void exports_close(struct exports *x, enum rundir_state_id state)
{
	if (!x)
		return;
	x->gauges.state = state;
	give_text(x, INFINITY);
	for (int i = 0; i < x->n; i++)
		x->list[i].ops->close(x->list[i].x, state);
	free(x);
}
