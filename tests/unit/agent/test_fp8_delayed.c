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
		struct fp8_scale begun[SCALES], ended[SCALES];
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
		if (trainee_step(t, step, &r->loss[step], &norm, e))
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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(losses_are_near_those_of_current_scaling),
		cmocka_unit_test(scales_follow_the_largest_numbers_of_all_ranks),
		cmocka_unit_test(another_layout_continues_with_the_same_scales),
		cmocka_unit_test(runs_with_and_without_scales_load_each_others_checkpoints),
	};
	log_setup(2, LOG_ERROR, "test");
	return cmocka_run_group_tests_name("delayed scaling", tests, fix_setup, fix_teardown);
}
