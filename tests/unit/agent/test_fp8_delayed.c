/* Delayed scaling: what the scales are, that all ranks have the same ones, and what a checkpoint
 * keeps of them. That runs in 8 bits continue to the bit is in test_resume_strategies. */
#include "agent/engine/model/scales_fp8.h"
#include "base/log.h"
#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <math.h>

enum { STEPS = 6, STOP = 3, LAYERS = 4, SCALES = FP8_SIDES * LAYERS * ACT_LINEARS };

static const struct tiny gpt2 = { "gpt2", FAMILY_GPT2, LAYERS, 32,      4, 4, 8,
				  64,     37,          16,     TIE_YES, 1, 4, 0.1 };

#define DELAYED "precision.fp8_scaling=delayed"

/* Trains steps [from, to); from > 0: from the checkpoint; saves: at the end. */
struct task {
	const char *words[8];
	int from, to;
	bool saves;
	struct result {
		double loss[STEPS];
		/* when the trainee is open, after the first step, and at the end */
		struct fp8_scale begun[SCALES], used[SCALES], ended[SCALES];
		bool has_scales;
	} * results; /* [WORLD_MAX], shared */
};

static int read_scales(struct trainee *t, struct fp8_scale *out, struct err *e)
{
	const struct model_scales *s = t->state.scales;
	return s ? backend_get(pipeline_backend(t->engine), out,
			       model_scales_at(s, FP8_INPUTS, 0, ACT_LINEAR_QKV),
			       SCALES * sizeof *out, e)
		 : 0;
}

static int train(struct trainee *t, const struct task *c, struct result *r, struct err *e)
{
	double norm;
	r->has_scales = t->state.scales;
	if (read_scales(t, r->begun, e))
		return -1;
	for (int step = c->from; step < c->to; step++)
		if (trainee_step(t, step, &r->loss[step], &norm, e) ||
		    (step == c->from && read_scales(t, r->used, e)))
			return -1;
	if ((t->state.scales && model_scales_settle(t->state.scales, e)) ||
	    read_scales(t, r->ended, e))
		return -1;
	return c->saves ? trainee_save(t, fix_dir, c->to, e) : 0;
}

static int train_rank(struct comm *world, void *arg, struct err *e)
{
	const struct task *c = arg;
	struct trainee t;
	struct job job;
	if (trainee_job(&gpt2, c->words, &job, e) ||
	    trainee_resume(&gpt2, &job, world, "cpu", 1, c->from ? fix_dir : NULL, &t, e))
		return -1;
	int rc = train(&t, c, &c->results[comm_rank(world)], e);
	trainee_close(&t);
	return rc;
}

static struct result *run(struct task c, int ranks)
{
	c.results = world_shared(WORLD_MAX * sizeof *c.results);
	assert_int_equal(world_run(ranks, train_rank, &c), 0);
	return c.results;
}

static void done(struct result *r)
{
	world_unshared(r, WORLD_MAX * sizeof *r);
}

#define WORDS(...) \
	{ \
		"precision.dtype=bf16", "precision.fp8=hybrid", "optimizer.lr=1e-3", __VA_ARGS__ \
	}

static void losses_are_near_those_of_current_scaling(void **state)
{
	(void)state;
	struct result *delayed = run((struct task){ WORDS(DELAYED), 0, STEPS, false, NULL }, 1),
		      *current = run((struct task){ WORDS(NULL), 0, STEPS, false, NULL }, 1);
	/* the first step has no history */
	assert_true(delayed->loss[0] == current->loss[0]);
	assert_memory_not_equal(delayed->loss, current->loss, sizeof delayed->loss);
	for (int i = 0; i < STEPS; i++)
		assert_true(fabs(delayed->loss[i] - current->loss[i]) < 0x1p-6 * current->loss[i]);
	done(delayed);
	done(current);
}

/* The largest power of 2 with which the largest number of all steps fits. */
static void check_scale(const struct fp8_scale *s, float limit)
{
	float most = 0;
	assert_int_equal(s->updates, STOP);
	for (int i = 0; i < STOP; i++) {
		assert_true(s->history[i] > 0);
		most = fmaxf(most, s->history[i]);
	}
	assert_true(s->scale * most <= limit && 2 * s->scale * most > limit);
	assert_true(s->scale * s->inverse == 1);
	assert_true(s->largest == 0);
}

static void scales_follow_the_largest_numbers_of_all_ranks(void **state)
{
	(void)state;
	struct result *r = run(
		(struct task){ WORDS("parallel.tp=2", "parallel.pp=2", "parallel.dp=2", DELAYED), 0,
			       STOP, false, NULL },
		8);
	for (int i = 0; i < SCALES; i++)
		check_scale(&r->ended[i], i < SCALES / FP8_SIDES ? 448 : 57344);
	for (int rank = 1; rank < 8; rank++)
		assert_memory_equal(r[rank].ended, r->ended, sizeof r->ended);
	done(r);
}

static void another_layout_continues_with_the_same_scales(void **state)
{
	(void)state;
	struct result *a = run((struct task){ WORDS("parallel.tp=2", DELAYED), 0, STOP, true,
					      NULL },
			       2),
		      *b = run((struct task){ WORDS("parallel.pp=2", "parallel.dp=2", DELAYED),
					      STOP, STEPS, false, NULL },
			       4);
	for (int rank = 0; rank < 4; rank++)
		assert_memory_equal(b[rank].begun, a->ended, sizeof a->ended);
	assert_int_equal(b->ended[0].updates, STEPS);
	done(a);
	done(b);
	fix_remove(fix_path(STOP, NULL));
}

static void runs_with_and_without_scales_load_each_others_checkpoints(void **state)
{
	static const struct fp8_scale zero[SCALES];
	(void)state;
	struct result *a = run((struct task){ WORDS(DELAYED), 0, STOP, true, NULL }, 1),
		      *b = run((struct task){ WORDS(NULL), STOP, STEPS, false, NULL }, 1);
	assert_true(a->has_scales && !b->has_scales);
	done(a);
	done(b);
	fix_remove(fix_path(STOP, NULL));
	a = run((struct task){ WORDS(NULL), 0, STOP, true, NULL }, 1);
	b = run((struct task){ WORDS(DELAYED), STOP, STEPS, false, NULL }, 1);
	assert_memory_equal(b->begun, zero, sizeof zero);
	assert_int_equal(b->ended[0].updates, STEPS - STOP);
	done(a);
	done(b);
	fix_remove(fix_path(STOP, NULL));
}

/* The history holds the tensors' own numbers, whatever the format. */
static void another_format_continues_with_scales_of_its_own(void **state)
{
	(void)state;
	struct result *a = run((struct task){ WORDS(DELAYED), 0, STOP, true, NULL }, 1),
		      *b = run((struct task){ WORDS("precision.fp8=e4m3", DELAYED), STOP, STOP + 1,
					      false, NULL },
			       1);
	for (int i = 0; i < SCALES; i++) {
		struct fp8_scale s = b->used[i];
		assert_memory_equal(s.history, a->ended[i].history, sizeof s.history);
		s.largest = 0; /* the step has noted it */
		check_scale(&s, 448);
	}
	done(a);
	done(b);
	fix_remove(fix_path(STOP, NULL));
}

/* --- Without a trainee ----------------------------------------------------------------------- */

/* Ends a step in which the scale's tensor had only the number x. */
static void note(struct model_scales *s, struct backend *k, struct fp8_scale *at, float x,
		 struct fp8_scale *out)
{
	struct err e = ERR_INIT;
	assert_int_equal(model_scales_begin(s, &e), 0);
	backend_ops(k)->fp8_cast(k, &x, 1, 1, &(struct fp8_copies){ .scale = at });
	assert_int_equal(model_scales_settle(s, &e), 0);
	assert_int_equal(backend_get(k, out, at, sizeof *out, &e), 0);
}

static int note_all(struct comm *world, void *arg, struct err *e)
{
	static const struct {
		float x, scale;
	} steps[] = {
		{ 0, 1 },        /* nothing is known */
		{ INFINITY, 1 }, /* still nothing */
		{ 224, 2 },      { NAN, 2 }, { 448, 1 }, { 0, 1 },
	};
	struct backend *k;
	struct model_scales *s;
	struct fp8_scale got;
	(void)arg;
	if (backend_open("cpu", 1, &k, e) ||
	    model_scales_open(&(struct model_scales_options){ k, world, 1, FP8_E5M2 }, &s, e))
		return -1;
	struct fp8_scale *at = model_scales_at(s, FP8_INPUTS, 0, ACT_LINEAR_UP);
	for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
		note(s, k, at, steps[i].x, &got);
		assert_true(got.scale == steps[i].scale && got.inverse == 1 / steps[i].scale);
		assert_true(isfinite(got.history[i])); /* or no checkpoint is committed */
	}
	/* no step froze the scale: 448 leaves the history after as many updates as it has */
	for (int i = 0; i < FP8_SCALE_HISTORY; i++)
		note(s, k, at, 28, &got);
	assert_true(got.scale == 16);
	model_scales_close(s);
	backend_close(k);
	return 0;
}

static void a_scale_needs_a_finite_number_in_its_history(void **state)
{
	(void)state;
	assert_int_equal(world_run(1, note_all, NULL), 0);
}

/* A checkpoint may hold any number of updates. */
static void any_number_of_updates_stays_in_the_history(void **state)
{
	(void)state;
	static const int32_t updates[] = { -1, -15, -16, INT32_MIN };
	static const char *const backends[] = { "cpu", "reference" };
	for (int b = 0; b < 2; b++)
		for (size_t i = 0; i < sizeof updates / sizeof *updates; i++) {
			struct fp8_scale s[2] = { { .largest = 3 },
						  { .largest = 5, .updates = updates[i] } };
			struct fp8_scale before = s[0];
			struct backend *k;
			assert_int_equal(backend_open(backends[b], 1, &k, NULL), 0);
			backend_ops(k)->fp8_update_scales(k, s + 1, 1, FP8_E4M3, true);
			backend_close(k);
			assert_memory_equal(&s[0], &before, sizeof before);
			assert_true(s[1].history[(uint32_t)updates[i] % FP8_SCALE_HISTORY] == 5);
			assert_true(s[1].largest == 0 && s[1].scale == 64);
			assert_int_equal(s[1].updates, updates[i] + 1);
		}
}

/* --- Faults ---------------------------------------------------------------------------------- */

static const struct tiny llama = { "llama", FAMILY_LLAMA, 1,  32,     4, 2, 8,
				   48,      37,           16, TIE_NO, 1, 4, 0.1 };

/* Makes the first layer's gate and up so large that their product overflows: the input of down is
 * infinite or 0, but never NaN. */
static int spoil(struct trainee *t, struct err *e)
{
	struct param_store *store = pipeline_store(t->engine);
	int n, found = 0;
	const struct param_piece *pieces = param_store_pieces(store, &n);
	if (param_store_settle(store, e))
		return -1;
	for (int i = 0; i < n; i++)
		if (strstr(pieces[i].param->name, "mlp.up.weight") ||
		    strstr(pieces[i].param->name, "mlp.gate.weight")) {
			for (int64_t j = 0; j < pieces[i].count; j++)
				pieces[i].master[j] *= 1e25f;
			found++;
		}
	assert_int_equal(found, 2);
	return param_store_sync_params(store, STOP, e);
}

static int train_spoiled(struct comm *world, void *arg, struct err *e)
{
	const struct task *c = arg;
	struct trainee t;
	struct job job;
	double loss, norm;
	if (trainee_job(&llama, c->words, &job, e) ||
	    trainee_open(&llama, &job, world, "cpu", 1, &t, e))
		return -1;
	int rc = trainee_step(&t, 0, &loss, &norm, e) || trainee_step(&t, 1, &loss, &norm, e) ||
		 spoil(&t, e);
	bool bad = !rc && trainee_step(&t, 2, &c->results->loss[2], &norm, e) &&
		   e->code == ERR_NUMERIC;
	trainee_close(&t);
	return bad ? 0 : -1;
}

static void an_infinity_is_not_hidden(void **state)
{
	(void)state;
	struct task c[] = { { WORDS(DELAYED), 0, STOP, false, NULL },
			    { WORDS(NULL), 0, STOP, false, NULL } };
	for (int i = 0; i < 2; i++) {
		c[i].results = world_shared(WORLD_MAX * sizeof *c->results);
		assert_int_equal(world_run(1, train_spoiled, &c[i]), 0);
		assert_true(isnan(c[i].results->loss[2]));
		done(c[i].results);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(another_format_continues_with_scales_of_its_own),
		cmocka_unit_test(a_scale_needs_a_finite_number_in_its_history),
		cmocka_unit_test(any_number_of_updates_stays_in_the_history),
		cmocka_unit_test(an_infinity_is_not_hidden),
		cmocka_unit_test(losses_are_near_those_of_current_scaling),
		cmocka_unit_test(scales_follow_the_largest_numbers_of_all_ranks),
		cmocka_unit_test(another_layout_continues_with_the_same_scales),
		cmocka_unit_test(runs_with_and_without_scales_load_each_others_checkpoints),
	};
	log_setup(2, LOG_ERROR, "test");
	return cmocka_run_group_tests_name("delayed scaling", tests, fix_setup, fix_teardown);
}
