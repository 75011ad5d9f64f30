/* Tests the jobs that the engine refuses, the phases that it reports, and the error on all ranks
 * after one rank has died. */
#include "agent/engine/pipeline/engine.h"
#include "tests/unit/agent/tiny.h"
#include "tests/unit/agent/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct tiny model = { "gpt2", FAMILY_GPT2, 2, 16,      4, 4, 4,
				   37,     29,          9, TIE_YES, 1, 4, 0.1 },
			 deep = {
				 "gpt2", FAMILY_GPT2, 4, 16, 4, 4, 4, 37, 29, 9, TIE_YES, 1, 1, 0.1
			 };

struct tokens {
	int32_t inputs[256], targets[256];
};

static struct engine_options options(const struct rank_view *view, struct comm *world)
{
	return (struct engine_options){
		.view = view, .world = world, .backend_name = "reference", .threads = 1
	};
}

#define LAYOUT(t, p, d) \
	{ \
		.tp = t, .cp = 1, .dp = d, .pp = p, .ep = 1, .chunks = 1 \
	}

/* Jobs that cannot run, each with a substring of the expected error text. */
struct refusal {
	int64_t micro, global;
	struct layout layout;
	const char *backend_name, *says;
};

static const struct refusal refusals[] = {
	{ 3, 4, LAYOUT(1, 1, 1), "reference", "global = 4" },
	{ 1, 4, LAYOUT(1, 3, 1), "reference", "3 stages (pp × chunks)" },
	{ 1, 4, LAYOUT(2, 1, 1), "reference", "rank 0 of 1 in the world" },
	{ 1, 4, LAYOUT(1, 1, 1), "abacus", "backend 'abacus'" },
};

static int expect_refusal(struct comm *world, void *arg, struct err *e)
{
	const struct refusal *r = arg;
	struct job job;
	struct engine *g = NULL;
	tiny_job(&model, &job);
	job.batch.micro = r->micro;
	job.batch.global = r->global;
	struct rank_view view = { 0 };
	struct engine_options opt = options(&view, world);
	opt.backend_name = r->backend_name;
	int rc = rank_view_init(&job, &r->layout, 0, &view, e) || pipeline_open(&opt, &g, e);
	pipeline_close(g);
	rank_view_fini(&view);
	if (!rc)
		return err_set(e, ERR_INTERNAL, "pipeline_open succeeded; it had to fail with '%s'",
			       r->says);
	return g || !strstr(e->text, r->says) ? err_prefix(e, "expected '%s', got", r->says) : 0;
}

static void a_job_that_cannot_run_is_refused_with_its_cause(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++) {
		struct refusal r = refusals[i];
		assert_int_equal(world_run(1, expect_refusal, &r), 0);
	}
	pipeline_close(NULL);
}

struct phases {
	char text[4096];
};

static void append_phase(const char *what, void *arg)
{
	struct phases *p = arg;
	strncat(p->text, what, sizeof p->text - strlen(p->text) - 2);
	strcat(p->text, " ");
}

/* The row of each rank with 4 micro-batches, in order of time. */
static struct rows {
	enum job_schedule kind;
	struct layout layout;
	const char *of[2];
} one_f_one_b = { SCHEDULE_1F1B,
		  LAYOUT(1, 2, 1),
		  {
			  "forward send-activations "
			  "forward send-activations receive-gradients backward forward "
			  "send-activations receive-gradients backward "
			  "forward send-activations receive-gradients start-messages backward "
			  "receive-gradients "
			  "backward reduce-gradients share-loss ",
			  "receive-activations forward backward send-gradients receive-activations "
			  "forward backward send-gradients "
			  "receive-activations forward backward send-gradients receive-activations "
			  "forward backward send-gradients "
			  "reduce-gradients share-loss ",
		  } };

/* One micro-batch through a V schedule: nothing is sent at the turning point, and each backward
 * pass has 2 halves. */
static struct rows vee = {
	SCHEDULE_ZB_V,
	{ .tp = 1, .cp = 1, .dp = 1, .pp = 2, .ep = 1, .chunks = 2, .vee = true },
	{
		"forward send-activations receive-activations forward backward-input "
		"send-gradients start-messages backward-weight "
		"receive-gradients backward-input backward-weight reduce-gradients share-loss ",
		"receive-activations forward forward send-activations receive-gradients "
		"backward-input backward-weight "
		"backward-input send-gradients backward-weight reduce-gradients share-loss ",
	}
};

static int compare_phases(struct comm *world, void *arg, struct err *e)
{
	struct job job;
	struct tokens t;
	struct phases seen = { "" };
	struct engine *g;
	struct engine_times times;
	double loss;
	int rank = comm_rank(world);

	const struct rows *rows = arg;
	const struct tiny *m = rows->layout.vee ? &deep : &model;
	tiny_job(m, &job);
	job.parallel.schedule = rows->kind;
	tiny_batch(m, 0, m->global, t.inputs, t.targets);
	const struct engine_batch batch = { .inputs = t.inputs,
					    .targets = t.targets,
					    .loss_scale = 1 };
	struct rank_view view;
	struct engine_options opt = options(&view, world);
	opt.phase = append_phase;
	opt.phase_arg = &seen;
	if (rank_view_init(&job, &rows->layout, rank, &view, e) || pipeline_open(&opt, &g, e))
		return -1;
	int rc = pipeline_step(g, &batch, &loss, e);
	pipeline_times(g, &times);
	if (!rc && strcmp(seen.text, rows->of[rank]))
		rc = err_set(e, ERR_INTERNAL, "the phases were %s", seen.text);
	if (!rc && (times.compute <= 0 || times.pp <= 0))
		rc = err_set(e, ERR_INTERNAL, "times: compute %g pp %g", times.compute, times.pp);
	if (!rc && pipeline_peak_bytes(g) < 8 * pipeline_catalogue(g)->elements)
		rc = err_set(e, ERR_INTERNAL,
			     "peak of %lld bytes does not hold parameters and gradients",
			     (long long)pipeline_peak_bytes(g));
	pipeline_close(g);
	rank_view_fini(&view);
	return rc;
}

static void each_rank_executes_its_row_and_reports_each_phase(void **state)
{
	(void)state;
	assert_int_equal(world_run(2, compare_phases, &one_f_one_b), 0);
	assert_int_equal(world_run(2, compare_phases, &vee), 0);
}

/* Rank 3 leaves after the first step. The second step of the others must fail by itself, and they
 * must be able to close. */
static int lose_one(struct comm *world, void *arg, struct err *e)
{
	static const struct layout cube = LAYOUT(2, 2, 2);
	struct job job;
	struct tokens t;
	struct engine *g;
	double loss;

	(void)arg;
	tiny_job(&model, &job);
	tiny_batch(&model, 0, model.global, t.inputs, t.targets);
	const struct engine_batch batch = { .inputs = t.inputs,
					    .targets = t.targets,
					    .loss_scale = 1 };
	struct rank_view view;
	struct engine_options opt = options(&view, world);
	if (rank_view_init(&job, &cube, comm_rank(world), &view, e) || pipeline_open(&opt, &g, e))
		return -1;
	int rc = pipeline_step(g, &batch, &loss, e);
	if (!rc && comm_rank(world) == 3) {
		pipeline_close(g);
		rank_view_fini(&view);
		comm_abort(world, "rank 3 leaves");
		return 0;
	}
	if (!rc && !pipeline_step(g, &batch, &loss, e))
		rc = err_set(e, ERR_INTERNAL, "a step without rank 3 succeeded");
	pipeline_close(g);
	rank_view_fini(&view);
	return rc;
}

static void a_lost_rank_fails_the_step_on_all_ranks(void **state)
{
	(void)state;
	assert_int_equal(world_run(8, lose_one, NULL), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_that_cannot_run_is_refused_with_its_cause),
		cmocka_unit_test(each_rank_executes_its_row_and_reports_each_phase),
		cmocka_unit_test(a_lost_rank_fails_the_step_on_all_ranks),
	};
	return cmocka_run_group_tests_name("engine", tests, NULL, NULL);
}
