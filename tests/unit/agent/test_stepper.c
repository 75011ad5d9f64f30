/*
 * A step whose numbers are read late does what one does whose numbers are read at once: the same
 * losses, norms and skipped steps, and the same bits in weights and optimizer states, with several
 * ranks too. A bad step is found in both ways, changes nothing, and can be computed again with the
 * same bits when the passes of the next step have run.
 *
 * On the CPU an op is done when its call returns; that a device's queue changes nothing is in
 * tests/gpu/test_cuda_train.c.
 */
#include "agent/engine/train/holdings.h"
#include "base/log.h"
#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <math.h>

enum { STEPS = 10, WORDS = 10 };

static const struct tiny gpt2 = { "gpt2", FAMILY_GPT2, 4,  20,      5, 5, 4,
				  51,     101,         16, TIE_YES, 1, 8, 0.1 },
			 llama = { "llama", FAMILY_LLAMA, 4,  24,     8, 2,  4,
				   45,      103,          16, TIE_NO, 2, 16, 0.1 },
			 experts = { "experts", FAMILY_MIXTRAL, 2, 16, 4,  2, 4, 24, 61,
				     16,        TIE_NO,         2, 8,  0.1 };

struct scene {
	const char *name;
	const struct tiny *model;
	const char *words[WORDS];
};

#define BF16    "precision.dtype=bf16", "optimizer.lr=1e-3"
#define RANDOM  "precision.stochastic_rounding=yes"
#define DELAYED "precision.fp8=hybrid", "precision.fp8_scaling=delayed"
#define STOP    "health.bad_numbers=stop", "health.spike_window=8"
/* The scale doubles after each good step, until it is too large. */
#define OVERFLOWS "precision.dtype=fp16", "precision.loss_scale_window=1"

/* clang-format off */
static const struct scene scenes[] = {
	{ "1 rank", &gpt2, { STOP } },
	{ "dp 2, zero 1", &gpt2, { "parallel.dp=2", "parallel.zero=1", STOP } },
	{ "tp 2, pp 2", &llama, { "parallel.tp=2", "parallel.pp=2" } },
	{ "ep 2, dp 2", &experts, { "parallel.ep=2", "parallel.dp=2", STOP } },
	{ "tp 2, rounded at random", &llama, { BF16, RANDOM, "parallel.tp=2", STOP } },
	{ "tp 2, dp 2, zero 3, rounded at random", &llama, { BF16, RANDOM, "parallel.tp=2", "parallel.dp=2", "parallel.zero=3" } },
	{ "tp 2, sgd, offload, rounded at random", &gpt2,
	  { "precision.dtype=bf16", "optimizer.kind=sgd", RANDOM, "parallel.tp=2", "offload.optimizer=yes" } },
	{ "delayed scaling", &gpt2, { BF16, DELAYED, STOP } },
	{ "tp 2, dp 2, delayed scaling", &llama, { BF16, DELAYED, "parallel.tp=2", "parallel.dp=2", "parallel.zero=1", STOP } },
};
/* clang-format on */
static const struct scene overflowing[] = {
	{ "fp16, dp 2", &gpt2, { OVERFLOWS, "parallel.dp=2", STOP } },
	{ "fp16, tp 2, rounded at random", &llama, { OVERFLOWS, RANDOM, "parallel.tp=2" } },
};

#define COUNT(a) (sizeof(a) / sizeof *(a))

enum fault {
	NO_FAULT,
	NAN_GRADIENT, /* each time that the step is computed */
	NAN_ONCE,     /* after the passes: in fp16 a step that overflows */
	LARGE_NORM,   /* after the passes, a spike */
	LIMIT_BELOW   /* the numbers are those of a good step, but above the limit */
};

/* What is equal in both ways. */
struct outcome {
	double loss[STEPS], norm[STEPS];
	bool skipped[STEPS];
	struct held_sum state[HELD_CLASSES]; /* at the end, or when the step was found bad */
	struct held_sum gradients[HELD_CLASSES];
	double local_loss; /* of the bad step */
	char text[400];
};

struct course {
	const struct scene *scene;
	enum train_reading reading;
	enum fault fault;
	int at; /* the step of the fault */
	int from;
	const char *save; /* where to save at the end */
	struct job job;
	struct outcome of[WORLD_MAX];
};

struct rank {
	const struct course *c;
	struct outcome *own;
	struct trainee t;
	int step;
};

static int sum_state(struct rank *r, struct err *e)
{
	const char *isa = backend_isa(pipeline_backend(r->t.engine));
	struct holdings h;
	if (param_store_settle(r->t.state.store, e) ||
	    train_holdings_state(&r->t.state, true, &h, e))
		return -1;
	train_holdings_sum(&h, isa, r->own->state);
	train_holdings_close(&h);
	return 0;
}

static int sum_gradients(struct rank *r, struct err *e)
{
	struct holdings h;
	if (train_holdings_gradients(r->t.state.store, &h, e))
		return -1;
	train_holdings_sum(&h, backend_isa(pipeline_backend(r->t.engine)), r->own->gradients);
	train_holdings_close(&h);
	r->own->local_loss = pipeline_local_loss(r->t.engine);
	return 0;
}

static void multiply_gradients(struct rank *r, float factor)
{
	int n;
	const struct param_piece *pieces = param_store_pieces(r->t.state.store, &n);
	for (int i = 0; i < n; i++)
		for (int64_t j = 0; j < pieces[i].count; j++)
			pieces[i].grad[j] *= factor;
}

static int on_queued(void *arg, struct err *e)
{
	struct rank *r = arg;
	(void)e;
	if (r->step == r->c->at && r->c->fault == NAN_ONCE)
		multiply_gradients(r, NAN);
	if (r->step == r->c->at && r->c->fault == LARGE_NORM)
		multiply_gradients(r, 1e4f);
	return 0;
}

/* What was planted in the next step's passes must not be in those that are computed again. */
static void on_bad(void *arg, const struct step_result *n, const struct bad_number *bad,
		   struct err *e)
{
	struct rank *r = arg;
	struct err failed = ERR_INIT;
	(void)bad;
	snprintf(r->own->text, sizeof r->own->text, "%.399s", e->text);
	if (n->step != r->c->at || n->passed != (r->t.stepper.late && n->step < STEPS - 1))
		snprintf(r->own->text, sizeof r->own->text, "step %lld is bad", (long long)n->step);
	if (r->c->fault == NAN_GRADIENT)
		model_plant(pipeline_model(r->t.engine), PLANT_GRADIENT);
	bool repeats = r->c->fault == NAN_GRADIENT || r->c->fault == LIMIT_BELOW;
	if (train_stepper_again(&r->t.stepper, &failed) || (repeats && sum_gradients(r, &failed)) ||
	    sum_state(r, &failed))
		snprintf(r->own->text, sizeof r->own->text, "again: %.300s", failed.text);
}

static void note(struct rank *r)
{
	const struct step_result *n = &r->t.stepper.last;
	if (isnan(n->loss) && isnan(n->norm))
		return;
	r->own->loss[n->step] = n->loss;
	r->own->norm[n->step] = n->norm;
	r->own->skipped[n->step] = n->skipped;
}

static int one_step(struct rank *r, struct err *e)
{
	struct trainee *t = &r->t;
	struct stepper *s = &t->stepper;
	bool faulty = r->step == r->c->at;
	model_plant(pipeline_model(t->engine),
		    faulty && r->c->fault == NAN_GRADIENT ? PLANT_GRADIENT : PLANT_NOTHING);
	const struct engine_batch b = { .inputs = t->inputs,
					.targets = t->targets,
					.sample = r->step * t->job.batch.global + t->first };
	trainee_read(t, r->step);
	if (train_stepper_passes(s, &b, r->step, e))
		return -1;
	if (s->late && r->step > r->c->from)
		note(r);
	if (faulty && r->c->fault == LIMIT_BELOW)
		s->spikes.loss_limit = 1e-3;
	if (train_stepper_update(s, e))
		return -1;
	if (!s->late)
		note(r);
	return 0;
}

static int attend(struct comm *world, void *arg, struct err *e)
{
	struct course *c = arg;
	static struct rank r;
	r = (struct rank){ .c = c, .own = &c->of[comm_rank(world)] };
	trainee_reading = c->reading;
	int rc = trainee_resume(c->scene->model, &c->job, world, "cpu", 1, c->from ? fix_dir : NULL,
				&r.t, e);
	r.t.hooks.arg = &r;
	r.t.hooks.queued = on_queued;
	r.t.hooks.bad = on_bad;
	int to = c->save ? c->at : STEPS;
	for (r.step = c->from; !rc && r.step < to; r.step++)
		rc = one_step(&r, e);
	if (!rc) {
		rc = train_stepper_settle(&r.t.stepper, e);
		if (!rc)
			note(&r);
	}
	bool bad = rc && e->code == ERR_NUMERIC;
	if (!rc)
		rc = sum_state(&r, e) || (c->save && trainee_save(&r.t, c->save, to, e)) ? -1 : 0;
	r.t.failed = rc;
	trainee_close(&r.t);
	return bad ? 0 : rc;
}

static struct course *run(struct course like)
{
	struct course *c = world_shared(sizeof *c);
	struct err e = ERR_INIT;
	*c = like;
	if (trainee_job(c->scene->model, c->scene->words, &c->job, &e))
		fail_msg("%s: %s", c->scene->name, e.text);
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	if (world_run(layout_world(&l), attend, c))
		fail_msg("%s: fault %d in step %d", c->scene->name, (int)c->fault, c->at);
	return c;
}

static void drop(struct course *c)
{
	world_unshared(c, sizeof *c);
}

/* Compares all that both ways have in common, and returns that of the one read late. */
static struct course *compare(const struct scene *scene, enum fault fault, int at)
{
	struct course *once = run((struct course){
		.scene = scene, .reading = TRAIN_READS_AT_ONCE, .fault = fault, .at = at });
	struct course *late = run((struct course){
		.scene = scene, .reading = TRAIN_READS_LATE, .fault = fault, .at = at });
	for (int i = 0; i < WORLD_MAX; i++) {
		if (strcmp(once->of[i].text, late->of[i].text))
			fail_msg("%s, rank %d: \"%s\" and \"%s\"", scene->name, i, once->of[i].text,
				 late->of[i].text);
		if (memcmp(&once->of[i], &late->of[i], sizeof *once->of))
			fail_msg("%s, fault %d in step %d, rank %d: other bits", scene->name,
				 (int)fault, at, i);
	}
	drop(once);
	return late;
}

static void both_ways_give_the_same_bits(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(scenes); i++) {
		struct course *c = compare(&scenes[i], NO_FAULT, -1);
		/* the same batch */
		assert_true(c->of[0].loss[STEPS - 1] < c->of[0].loss[STEPS - 1 - 4]);
		assert_string_equal(c->of[0].text, "");
		drop(c);
	}
}

static int skips(const struct course *c)
{
	int n = 0;
	for (int i = 0; i < STEPS; i++)
		n += c->of[0].skipped[i];
	return n;
}

static void both_ways_skip_the_same_steps(void **state)
{
	(void)state;
	for (size_t i = 0; i < COUNT(overflowing); i++) {
		struct course *c = compare(&overflowing[i], NAN_ONCE, 3);
		assert_true(c->of[0].skipped[3]);
		assert_in_range(skips(c), 1, STEPS - 2);
		assert_string_equal(c->of[0].text, "");
		drop(c);
	}
}

/* The first step and the last one have no step before or after them. */
static void a_bad_step_changes_nothing_and_is_computed_again(void **state)
{
	static const enum fault faults[] = { NAN_GRADIENT, LIMIT_BELOW };
	static const int steps[] = { 0, 3, STEPS - 1 };
	(void)state;
	for (size_t i = 0; i < COUNT(scenes); i++)
		for (size_t f = 0; f < COUNT(faults); f++) {
			int at = steps[(i + f) % COUNT(steps)];
			struct course *c = compare(&scenes[i], faults[f], at);
			char begin[40];
			snprintf(begin, sizeof begin, "step %d: ", at + 1);
			if (strncmp(c->of[0].text, begin, strlen(begin)) ||
			    !strstr(c->of[0].text, "nothing was updated"))
				fail_msg("%s: \"%s\"", scenes[i].name, c->of[0].text);
			drop(c);
		}
}

/* With delayed scaling each step has other scales; the first one has none. */
static void scales_are_those_that_the_step_had(void **state)
{
	static const int steps[] = { 0, 1, 5 };
	(void)state;
	for (size_t i = COUNT(scenes) - 2; i < COUNT(scenes); i++)
		for (size_t s = 0; s < COUNT(steps); s++)
			drop(compare(&scenes[i], LIMIT_BELOW, steps[s]));
}

/* With a window of 1 step the next step has another loss scale. */
static void the_loss_scale_is_the_one_that_the_step_had(void **state)
{
	static const int steps[] = { 0, 5, STEPS - 1 };
	(void)state;
	for (size_t i = 0; i < COUNT(overflowing); i++)
		for (size_t s = 0; s < COUNT(steps); s++) {
			struct course *c = compare(&overflowing[i], LIMIT_BELOW, steps[s]);
			assert_true(strstr(c->of[0].text, "nothing was updated"));
			drop(c);
		}
}

static void a_spike_is_found_in_both_ways(void **state)
{
	(void)state;
	struct course *c = compare(&scenes[1], LARGE_NORM, 6);
	assert_true(strstr(c->of[0].text, "step 7: a spike: the gradient norm is "));
	drop(c);
	/* half of the window is not known */
	c = compare(&scenes[1], LARGE_NORM, 2);
	assert_string_equal(c->of[0].text, "");
	drop(c);
}

static void a_run_continues_with_the_same_bits(void **state)
{
	(void)state;
	for (size_t i = 4; i < COUNT(scenes); i += 4) {
		struct course whole = { .scene = &scenes[i],
					.reading = TRAIN_READS_LATE,
					.at = -1 },
			      part = whole;
		part.at = STEPS / 2;
		part.save = fix_dir;
		struct course *a = run(whole);
		drop(run(part));
		whole.from = STEPS / 2;
		struct course *b = run(whole);
		assert_memory_equal(a->of[0].loss + whole.from, b->of[0].loss + whole.from,
				    sizeof *a->of[0].loss * (STEPS - (size_t)whole.from));
		for (int rank = 0; rank < WORLD_MAX; rank++)
			assert_memory_equal(a->of[rank].state, b->of[rank].state,
					    sizeof a->of[rank].state);
		drop(a);
		drop(b);
		fix_remove(fix_path(STEPS / 2, NULL));
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(both_ways_give_the_same_bits),
		cmocka_unit_test(both_ways_skip_the_same_steps),
		cmocka_unit_test(a_bad_step_changes_nothing_and_is_computed_again),
		cmocka_unit_test(scales_are_those_that_the_step_had),
		cmocka_unit_test(the_loss_scale_is_the_one_that_the_step_had),
		cmocka_unit_test(a_spike_is_found_in_both_ways),
		cmocka_unit_test(a_run_continues_with_the_same_bits),
	};
	log_setup(2, LOG_ERROR, "test");
	return cmocka_run_group_tests_name("steps that are read late", tests, fix_setup,
					   fix_teardown);
}
