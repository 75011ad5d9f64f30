/* The closed forms of a step's time against the simulated tables. They are equal where the forms
 * claim so; elsewhere the tests bound the difference. */
#include "tests/unit/plan/scene.h"
#include "tests/unit/plan/tables.h"

#include "plan/cost/devices.h"
#include "plan/spec/schedule/closed_form.h"
#include "plan/cost/step.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Differences between a form and the simulation, as fractions of the simulation. */
struct error {
	double sum, most, under;
	int n;
};

static void note(struct error *e, double form, double simulated)
{
	double off = form / simulated - 1;
	e->sum += fabs(off);
	e->most = fmax(e->most, fabs(off));
	e->under = fmax(e->under, -off);
	e->n++;
}

static void report(const char *what, const struct error *e, double mean, double most)
{
	print_message("%-22s %5d cases: mean %.2f %%, most %.2f %%, under by %.2f %% at most\n",
		      what, e->n, 100 * e->sum / e->n, 100 * e->most, 100 * e->under);
	assert_true(e->sum / e->n <= mean);
	assert_true(e->most <= most);
}

/* Whole jobs: the terms equal the plan's own, and the total is as close as the form. */
static void a_plan_has_the_same_parts(void **state)
{
	/* clang-format off */
	static const char *const layouts[][8] = {
		{ "parallel.pp=1", "parallel.dp=128", "model.layers=16" }, { "parallel.pp=8", "parallel.dp=16" }, { "parallel.pp=16", "parallel.dp=8" },
		{ "parallel.pp=8", "parallel.dp=16", "parallel.schedule=gpipe" }, { "parallel.pp=12", "parallel.dp=8", "batch.global=1536", "recompute.mode=full" },
		{ "parallel.pp=8", "parallel.dp=16", "parallel.schedule=interleaved", "parallel.chunks=4" }, { "parallel.pp=5", "parallel.dp=16", "recompute.mode=full", "recompute.every=3" },
		{ "parallel.pp=8", "parallel.dp=16", "parallel.schedule=zb-h1" }, { "parallel.pp=8", "parallel.dp=16", "parallel.schedule=zb-v" },
		{ "parallel.pp=8", "parallel.dp=16", "parallel.zero=1", "model.tie_head=no" }, { "parallel.pp=4", "parallel.dp=32", "parallel.zero=3", "recompute.mode=full" },
	};
	/* clang-format on */
	struct cluster cluster;
	struct err e = ERR_INIT;
	struct error all = { 0 };
	(void)state;
	assert_int_equal(topo_cluster_open("dgx-h100:128", 0, &cluster, &e), 0);
	cluster.kinds[0].device_memory = 0; /* the memory limit is not tested here */
	for (int k = 0; k < (int)(sizeof layouts / sizeof *layouts); k++) {
		const char *list[16] = { "parallel.sp=no", "parallel.zero=0",
					 "parallel.schedule=1f1b", "parallel.chunks=0" };
		int words = 4;
		struct job job;
		struct plan plan;
		struct plan_time t;
		struct cost_units units;
		struct cost_machine machine;
		struct group_links group_links[GROUP_KINDS];
		for (int w = 0; w < 8 && layouts[k][w]; w++)
			list[words++] = layouts[k][w];
		if (job_load("templates/jobs/175b.ini", list, words, &job, &e) ||
		    plan_build(&job, &cluster, &plan, &e))
			fail_msg("layout %d: %s", k, e.text);
		for (int kind = 0; kind < GROUP_KINDS; kind++)
			group_links[kind] = plan.place.links[kind].span;
		cost_machine_of_plan(&job, &cluster, &plan, &machine);
		cost_machine_links(&machine, group_links);
		cost_units_of(&plan.shape, &plan.layout, 0, &units);
		struct cost_case c = {
			.job = &job,
			.shape = &plan.shape,
			.layout = &plan.layout,
			.stages = plan.stages,
			.units = &units,
			.group_links = group_links,
			.machine = &machine,
			.engine = &cost_engine_muster,
			.micros = plan.micros,
		};
		cost_step(&c, &t);
		note(&all, t.total, plan.time.total);
		near(t.compute, plan.time.compute);
		near(t.recompute, plan.time.recompute);
		near(t.tp, plan.time.tp);
		near(t.dp, plan.time.dp);
		near(t.optimizer, plan.time.optimizer);
		near(t.total - t.pp, plan.time.total - plan.time.pp);
		plan_free(&plan);
	}
	topo_cluster_free(&cluster);
	report("plans of 175b", &all, 0.02, 0.06);
}

/* --- Cores that agents share --- */

/* A model of four layers in a pipeline with 8 micro-batches. Returns the plan's simulated time;
 * *form gets the closed form. */
static double shared_step(int cores, double meeting, const char *layout, double *form)
{
	const char *words[12] = { "job.device=cpu", "launch.threads=1", "launch.calibration=none",
				  "model.layers=4", "model.hidden=128", "model.seq=64",
				  "batch.micro=1",  "batch.global=8",   "parallel.dp=1" };
	char list[128];
	struct cluster cluster;
	struct job job;
	struct plan plan;
	struct plan_time t;
	struct cost_units units;
	struct cost_machine machine;
	struct group_links group_links[GROUP_KINDS];
	struct err e = ERR_INIT;
	int n = 9;
	snprintf(list, sizeof list, "%s", layout);
	for (char *rest = list, *word; (word = strtok_r(rest, " ", &rest));)
		words[n++] = word;
	open_host(cores, 4, meeting, &cluster);
	if (job_load(NULL, words, n, &job, &e) || plan_build(&job, &cluster, &plan, &e))
		fail_msg("%s: %s", layout, e.text);
	for (int kind = 0; kind < GROUP_KINDS; kind++)
		group_links[kind] = plan.place.links[kind].span;
	cost_machine_of_plan(&job, &cluster, &plan, &machine);
	cost_machine_links(&machine, group_links);
	cost_units_of(&plan.shape, &plan.layout, 0, &units);
	cost_step(&(struct cost_case){ .job = &job,
				       .shape = &plan.shape,
				       .layout = &plan.layout,
				       .stages = plan.stages,
				       .units = &units,
				       .group_links = group_links,
				       .machine = &machine,
				       .engine = &cost_engine_muster,
				       .micros = plan.micros,
				       .node_replicas = plan.ranks[0].node_replicas },
		  &t);
	double total = plan.time.total;
	*form = t.total;
	plan_free(&plan);
	topo_cluster_free(&cluster);
	return total;
}

/* The additional cost if a meeting takes one second. */
static double lost(int cores, const char *layout, double *form)
{
	double before, after,
		simulated = shared_step(cores, 1, layout, &after) -
			    shared_step(cores, 0, layout, &before);
	*form = after - before;
	return simulated;
}

static void ranks_that_share_cores_lose_by_meeting(void **state)
{
	double form;
	(void)state;
	/* The passes run one after another: each of 8 micro-batches passes 4 ranks, there and back,
	 * on half of the cores. That takes half as long as a clock shows if all cores are busy. */
	assert_float_equal(lost(2, "parallel.pp=4 parallel.schedule=naive", &form), 8 * 4 * 2 * 0.5,
			   1e-6);
	assert_float_equal(form, 8 * 4 * 2 * 0.5, 1e-6);
	/* The passes run side by side on two cores: at best, this takes half as long again. */
	static const char *const layouts[] = { "parallel.pp=4 parallel.schedule=gpipe",
					       "parallel.pp=4",
					       "parallel.pp=4 parallel.schedule=zb-h1" };
	for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
		double simulated = lost(2, layouts[i], &form);
		print_message("%s: %.3g s, in closed form %.3g s\n", layouts[i], simulated, form);
		assert_true(simulated >= 16 - 1e-6 && simulated <= 16 * 1.6);
		assert_true(form >= 16 - 1e-6 && fabs(form / simulated - 1) < 0.25);
	}
	/* There is nothing to lose if each rank has a core, or if a pipeline has one rank. */
	assert_float_equal(lost(4, "parallel.pp=4", &form), 0, 1e-12);
	assert_float_equal(form, 0, 1e-12);
	assert_float_equal(lost(2, "parallel.pp=1", &form), 0, 1e-12);
}

/* The closed form's view of these stages. */
static struct pipeline_times pipe_of(const struct layout *l, const double *f, const double *i,
				     const double *w)
{
	struct pipeline_times p = { 0 };
	for (int r = 0; r < l->pp; r++) {
		struct pipeline_rank_times rank = { 0 };
		for (int c = 0; c < l->chunks; c++) {
			int s = layout_stage(l, r, c);
			rank.forward += f[s];
			rank.input += i[s];
			rank.weight += w[s];
			rank.last = f[s] + i[s] + w[s];
			rank.first = c ? rank.first : rank.last;
		}
		schedule_times_add(&p, &rank);
	}
	return p;
}

static void compare(enum job_schedule kind, const struct layout *l, int micros, const double *f,
		    const double *i, const double *w, double hop, struct error *e)
{
	struct schedule s;
	struct pipeline_times p = pipe_of(l, f, i, w);
	assert_int_equal(schedule_build(kind, l, micros, &s, NULL), 0);
	double whole = schedule_simulate(
		&s, &(struct sched_costs){ .forward = f, .input = i, .weight = w, .hop = hop },
		NULL, NULL);
	schedule_free(&s);
	note(e, schedule_seconds(&p, kind, l->chunks, micros, hop), whole);
}

static void equal_stages_are_exact(void **state)
{
	(void)state;
	double f[STAGES_MAX], i[STAGES_MAX], w[STAGES_MAX];
	for (int k = 0; k < n_forms; k++) {
		struct error e = { 0 };
		for (int s = 0; s < STAGES_MAX; s++) {
			f[s] = 1;
			i[s] = w[s] = 1;
		}
		for (int pp = 2; pp <= 8; pp++)
			for (int m = 2 * pp; m <= 5 * pp; m += pp) {
				struct layout l = table_layout(forms[k].kind, pp, forms[k].chunks);
				compare(forms[k].kind, &l, m, f, i, w, 0, &e);
			}
		assert_true(e.most < 1e-9);
	}
}

/* Properties of transformer stages: a backward pass takes twice the forward, and more with
 * recomputation; stages differ by a layer; the head costs a few layers; messages take up to a tenth
 * of a pass; there are few micro-batches or many. */
static double random_between(uint64_t *state, double lo, double hi)
{
	*state = *state * 6364136223846793005u + 1442695040888963407u;
	return lo + (hi - lo) * (double)(*state >> 11) / (double)(1ull << 53);
}

/* The largest relative error of a closed form: the mean, and that of one case. */
struct held {
	double mean, most;
};

static struct held held_of(enum job_schedule kind)
{
	static const struct held forms_held[SCHEDULES] = {
		[SCHEDULE_NAIVE] = { 1e-12, 1e-9 }, [SCHEDULE_GPIPE] = { 1e-12, 1e-9 },
		[SCHEDULE_1F1B] = { 0.01, 0.08 },   [SCHEDULE_ZB_H1] = { 0.02, 0.15 },
		[SCHEDULE_ZB_V] = { 0.06, 0.25 },
	};
	return forms_held[kind].most > 0 ? forms_held[kind] : (struct held){ 0.03, 0.2 };
}

static void compare_uneven(enum job_schedule kind, int pp, int chunks, int micros, uint64_t *seed,
			   struct error *e)
{
	double f[128], i[128], w[128];
	struct layout l = table_layout(kind, pp, chunks);
	int n = layout_n_stages(&l), layers = (int)random_between(seed, 1, 8);
	double again = random_between(seed, 0, 1), weight = random_between(seed, 0.6, 1),
	       head = random_between(seed, 0, 2);
	int longer = (int)random_between(seed, 0, n); /* later stages have one layer more */
	for (int s = 0; s < n; s++) {
		double here = layers + (s >= longer);
		f[s] = here + (s == n - 1 ? head : 0);
		w[s] = here * weight;
		i[s] = here * (2 - weight + again) + (s == n - 1 ? 0.3 * head : 0);
	}
	compare(kind, &l, micros, f, i, w, random_between(seed, 0, 0.1) * layers, e);
}

static void uneven_stages_are_near(void **state)
{
	(void)state;
	for (int k = 0; k < SCHEDULES; k++) {
		enum job_schedule kind = (enum job_schedule)k;
		for (int chunks = schedule_kinds[k]->chunks_least;
		     chunks <= schedule_kinds[k]->chunks_most && chunks <= 4; chunks += 2) {
			struct error e = { 0 };
			struct held held = held_of(kind);
			uint64_t seed = 1;
			char name[64];
			for (int pp = 2; pp <= 16; pp++)
				for (int m = 1; m <= 8 * pp; m += 1 + m / 2)
					compare_uneven(kind, pp, chunks, m, &seed, &e);
			snprintf(name, sizeof name, "%s, %d", schedule_words[k], chunks);
			report(name, &e, held.mean, held.most);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_stages_are_exact),
		cmocka_unit_test(uneven_stages_are_near),
		cmocka_unit_test(a_plan_has_the_same_parts),
		cmocka_unit_test(ranks_that_share_cores_lose_by_meeting),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
