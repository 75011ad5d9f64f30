/*
 * The cost model against published steps, with one set of constants for the machine and no figure of a row's own; and what
 * must hold of any prediction.
 *
 * Each table's engine is Megatron-LM as it was when the table was measured (plan/cost/engine.c).
 */
#include "plan/cost/devices.h"
#include "plan/cost/step.h"
#include "tests/unit/plan/tables.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

struct run {
	int heads, hidden, layers, tp, pp, chunks, devices, global, micro;
	double seconds; /* measured */
};

/* How a table's rows were run, besides. */
struct setting {
	const char *words, *cluster;
	const struct engine *engine;
};

/* --- A run's prediction, step by step as a plan's, but with equal stages ------------------- */

/* Blank-separated words, cut in place. */
static int cut(char *text, const char *words[], int most)
{
	int n = 0;
	for (char *w = strtok(text, " "); w && n < most; w = strtok(NULL, " "))
		words[n++] = w;
	return n;
}

static struct job job_of(const struct run *r, const char *more)
{
	char text[1000];
	const char *words[40];
	struct job job;
	struct err e = ERR_INIT;
	int dp = r->devices / (r->tp * r->pp);
	snprintf(text, sizeof text, "model.vocab=51200 model.seq=2048 precision.dtype=fp16 model.dropout=0.1 model.attn_dropout=0.1 model.layers=%d "
		 "model.hidden=%d model.heads=%d parallel.tp=%d parallel.pp=%d parallel.dp=%d batch.global=%d batch.micro=%d parallel.schedule=%s "
		 "parallel.chunks=%d %s", r->layers, r->hidden, r->heads, r->tp, r->pp, dp, r->global, r->micro,
		 r->chunks > 1 ? "interleaved" : "1f1b", r->chunks > 1 ? r->chunks : 0, more);
	if (job_load(NULL, words, cut(text, words, 40), &job, &e))
		fail_msg("%s", e.text);
	return job;
}

static struct stage *equal_stages(const struct layout *l, int layers)
{
	int n = layout_n_stages(l);
	struct stage *stages = calloc((size_t)n, sizeof *stages);
	assert_non_null(stages);
	for (int i = 0; i < n; i++)
		stages[i] = (struct stage){ i * layers / n, (i + 1) * layers / n, i == 0, i == n - 1 };
	return stages;
}

static void block_spans(const struct cluster *c, const struct layout *l, struct span spans[GROUP_KINDS])
{
	int world = layout_world(l), devices = c->kinds[0].devices;
	struct cluster_slot *slots = calloc((size_t)world, sizeof *slots);
	struct err e = ERR_INIT;
	assert_non_null(slots);
	for (int i = 0; i < world; i++)
		slots[i] = (struct cluster_slot){ i / devices, i % devices };
	assert_int_equal(spans_of(c, l, slots, spans, &e), 0);
	free(slots);
}

/* machine: NULL, the cluster's. */
static struct plan_time predict_on(const struct run *r, const struct setting *s, const struct machine *machine)
{
	char spec[100];
	struct err e = ERR_INIT;
	struct job job = job_of(r, s->words);
	struct layout l = layout_of(&job, r->devices / (r->tp * r->pp));
	struct stage *stages = equal_stages(&l, r->layers);
	struct model_shape shape;
	struct cost_units units;
	struct span spans[GROUP_KINDS];
	struct machine own;
	struct cluster c;
	struct plan_time t;
	model_shape(&job, &shape);
	snprintf(spec, sizeof spec, "%s:%d", s->cluster, (r->devices + 7) / 8);
	if (cluster_open(spec, 0, &c, &e))
		fail_msg("%s", e.text);
	machine_of(&c.kinds[0], true, 1, &own);
	block_spans(&c, &l, spans);
	machine_links(machine ? machine : &own, spans);
	cost_units_of(&shape, &l, job.parallel.sp, &units);
	cost_step(&(struct cost_case){ .job = &job, .shape = &shape, .layout = &l, .stages = stages, .units = &units, .spans = spans,
				       .machine = machine ? machine : &own, .engine = s->engine, .micros = r->global / (l.dp * r->micro) }, &t);
	cluster_free(&c);
	free(stages);
	return t;
}

static struct plan_time predict(const struct run *r, const struct setting *s)
{
	return predict_on(r, s, NULL);
}

/* --- Published steps ---------------------------------------------------------------------- */

struct errors {
	double sum, most;
	int n;
};

static void hold(const struct run *r, int n, const struct setting *s, struct errors *e)
{
	for (int i = 0; i < n; i++) {
		double predicted = predict(&r[i], s).total, off = 100 * (predicted / r[i].seconds - 1);
		print_message("    %3d layers of %5d, tp %d, pp %2d × %d, %4d GPUs, %-45s predicted %7.2f s, measured %7.2f, %+5.1f %%\n", r[i].layers,
			      r[i].hidden, r[i].tp, r[i].pp, r[i].chunks, r[i].devices, s->words, predicted, r[i].seconds, off);
		e->sum += fabs(off);
		e->most = fmax(e->most, fabs(off));
		e->n++;
	}
}

static void within(const struct errors *e, double mean, double most)
{
	print_message("    mean %.2f %%, most %.2f %%\n", e->sum / e->n, e->most);
	assert_true(e->sum / e->n <= mean);
	assert_true(e->most <= most);
}

/* Narayanan et al., arXiv 2104.04473, table 1; iterations from its FLOP/s by its formula (3). How they were run:
 * examples/sc21/run_table_1.sh in Megatron-LM. */
static const struct run narayanan[] = {
	{ 24, 2304, 24, 1, 1, 1, 32, 512, 16, 3.53 },
	{ 32, 3072, 30, 2, 1, 1, 64, 512, 16, 3.70 },
	{ 32, 4096, 36, 4, 1, 1, 128, 512, 16, 3.70 },
	{ 48, 6144, 40, 8, 1, 1, 256, 1024, 8, 9.40 },
	{ 64, 8192, 48, 8, 2, 1, 512, 1536, 4, 14.45 },
	{ 80, 10240, 60, 8, 4, 3, 1024, 1792, 2, 16.06 },
	{ 96, 12288, 80, 8, 8, 2, 1536, 2304, 2, 24.82 },
	{ 128, 16384, 96, 8, 16, 2, 1920, 2160, 1, 37.61 },
	{ 128, 20480, 105, 8, 35, 3, 2520, 2520, 1, 54.08 },
	{ 160, 25600, 128, 8, 64, 1, 3072, 3072, 1, 102.63 },
};
static const struct setting april_2021 = { "recompute.mode=full", "dgx-a100", &ENGINE_MEGATRON_2021 };

static void narayanans_steps(void **state)
{
	struct errors e = { 0 };
	(void)state;
	hold(narayanan, sizeof narayanan / sizeof *narayanan, &april_2021, &e);
	within(&e, 6, 12);
}

/* Korthikanti et al., arXiv 2205.05198, tables 3 and 5: full recomputation, and sequence parallelism with selective. */
static const struct run korthikanti[2][4] = {
	{
		{ 64, 6144, 48, 8, 1, 1, 8, 4, 4, 1.42 }, { 96, 12288, 96, 8, 8, 3, 64, 64, 1, 18.13 },
		{ 128, 20480, 105, 8, 35, 3, 280, 280, 1, 49.05 }, { 160, 25600, 128, 8, 64, 1, 512, 512, 1, 94.42 },
	},
	{
		{ 64, 6144, 48, 8, 1, 1, 8, 4, 4, 1.10 }, { 96, 12288, 96, 8, 8, 3, 64, 64, 1, 13.75 },
		{ 128, 20480, 105, 8, 35, 3, 280, 280, 1, 37.83 }, { 160, 25600, 128, 8, 64, 1, 512, 512, 1, 71.49 },
	},
};
static const struct setting full_2022 = { "recompute.mode=full", "dgx-a100", &ENGINE_MEGATRON_2022 };
static const struct setting selective_2022 = { "recompute.mode=selective parallel.sp=yes", "dgx-a100", &ENGINE_MEGATRON_2022 };

static void korthikantis_steps(void **state)
{
	struct errors e = { 0 };
	(void)state;
	hold(korthikanti[0], 4, &full_2022, &e);
	hold(korthikanti[1], 4, &selective_2022, &e);
	within(&e, 3, 7);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(narayanans_steps),
		cmocka_unit_test(korthikantis_steps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
