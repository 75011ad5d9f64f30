/* Tests that a second computation of a step in check mode gives the bits of the first one, in each
 * layout: otherwise a run would take its own arithmetic for a fault of hardware. */
#include "agent/engine/train/holdings.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const struct tiny gpt2 = { "gpt2", FAMILY_GPT2, 4,  32,      4, 4, 8,
				  64,     67,          16, TIE_YES, 1, 8, 0.1 },
			 llama = { "llama", FAMILY_LLAMA, 4,  32,     4, 2, 8,
				   48,      67,           16, TIE_NO, 1, 8, 0.1 },
			 mixtral = { "mixtral", FAMILY_MIXTRAL, 2, 32, 4,  2, 8, 48, 67,
				     16,        TIE_NO,         1, 8,  0.1 };

enum { WORDS = 8 };
struct scene {
	const struct tiny *model;
	int ranks;
	const char *words[WORDS];
	const char *backend;
};

static const struct scene scenes[] = {
	{ &gpt2, 1, { NULL }, "cpu" },
	{ &gpt2, 1, { "model.dropout=0.1", "precision.dtype=bf16", NULL }, "cpu" },
	{ &llama, 1, { "recompute.mode=full", "offload.activations=yes", NULL }, "cpu" },
	{ &gpt2, 2, { "parallel.dp=2", NULL }, "cpu" },
	{ &gpt2, 2, { "parallel.dp=2", "parallel.zero=3", NULL }, "cpu" },
	{ &llama,
	  2,
	  { "parallel.dp=2", "parallel.zero=2", "recompute.mode=selective", NULL },
	  "cpu" },
	{ &llama, 4, { "parallel.tp=2", "parallel.sp=yes", "parallel.dp=2", NULL }, "cpu" },
	{ &llama, 2, { "parallel.cp=2", NULL }, "cpu" },
	{ &gpt2, 2, { "parallel.pp=2", NULL }, "cpu" },
	{ &gpt2,
	  2,
	  { "parallel.pp=2", "parallel.chunks=2", "parallel.schedule=interleaved", NULL },
	  "cpu" },
	{ &gpt2, 2, { "parallel.pp=2", "parallel.schedule=zb-h1", NULL }, "cpu" },
	{ &mixtral, 2, { "parallel.dp=2", "parallel.ep=2", NULL }, "cpu" },
	{ &mixtral, 2, { "parallel.tp=2", "recompute.mode=full", NULL }, "cpu" },
};

/* What is left of a computation. */
struct remains {
	double loss;
	struct model_kept kept;
	struct holdings gradients;
};

static int take(struct trainee *t, struct remains *r, struct err *e)
{
	return model_retained(pipeline_model(t->engine), &r->kept, e) ||
			       train_holdings_gradients(pipeline_store(t->engine), &r->gradients, e)
		       ? -1
		       : 0;
}

static int compare(const struct remains *a, const struct remains *b, struct err *e)
{
	if (memcmp(&a->loss, &b->loss, sizeof a->loss))
		return err_set(e, ERR_INTERNAL, "loss %.17g, then %.17g", a->loss, b->loss);
	if (a->kept.n != b->kept.n || !a->kept.n || a->gradients.n != b->gradients.n)
		return err_set(e, ERR_INTERNAL, "not as many tensors are left");
	for (int i = 0; i < a->kept.n; i++)
		if (memcmp(&a->kept.tallies[i], &b->kept.tallies[i], sizeof(struct tally)))
			return err_set(e, ERR_INTERNAL, "tensor %d of layer %d differs", i,
				       a->kept.places[i].layer);
	for (int i = 0; i < a->gradients.n; i++)
		if (memcmp(&a->gradients.list[i].tally, &b->gradients.list[i].tally,
			   sizeof(struct tally)))
			return err_set(e, ERR_INTERNAL, "the gradient of %s differs",
				       a->gradients.list[i].param->name);
	return 0;
}

static int compute_twice(struct trainee *t, struct err *e)
{
	struct remains first, second;
	struct model_finding found;
	trainee_read(t, 2);
	const struct engine_batch b = { .inputs = t->inputs,
					.targets = t->targets,
					.starts = t->starts,
					.sample = t->first,
					.loss_scale = 1 };
	if (pipeline_step(t->engine, &b, &first.loss, e) || take(t, &first, e) ||
	    pipeline_check(t->engine, &b, &second.loss, &found, e) || take(t, &second, e))
		return -1;
	int rc = compare(&first, &second, e);
	if (!rc && found.bad)
		rc = err_set(e, ERR_INTERNAL, "it found bad numbers in %s", found.what);
	model_kept_fini(&first.kept);
	model_kept_fini(&second.kept);
	train_holdings_close(&first.gradients);
	train_holdings_close(&second.gradients);
	return rc;
}

static int run_scene(struct comm *world, void *arg, struct err *e)
{
	const struct scene *s = arg;
	static struct trainee t;
	static struct job job;
	double loss, norm;
	if (trainee_job(s->model, s->words, &job, e) ||
	    trainee_open(s->model, &job, world, s->backend, 1, &t, e))
		return -1;
	int rc = trainee_step(&t, 0, &loss, &norm, e) || trainee_step(&t, 1, &loss, &norm, e) ||
				 compute_twice(&t, e)
			 ? -1
			 : 0;
	t.failed = rc;
	trainee_close(&t);
	return rc;
}

static void a_second_computation_has_the_bits_of_the_first(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
		struct scene s = scenes[i];
		if (world_run(s.ranks, run_scene, &s))
			fail_msg("%s, %d ranks, %s", s.model->name, s.ranks,
				 s.words[0] ? s.words[0] : "");
	}
}

/* A number of the second stage is spoiled in the first micro-batch. */
static int find_planted(struct comm *world, void *arg, struct err *e)
{
	static struct trainee t;
	static struct job job;
	static const char *const words[] = { "parallel.pp=2", NULL };
	struct model_finding found;
	double loss;
	enum model_plant what = *(enum model_plant *)arg;
	if (trainee_job(&gpt2, words, &job, e) || trainee_open(&gpt2, &job, world, "cpu", 1, &t, e))
		return -1;
	trainee_read(&t, 0);
	const struct engine_batch b = {
		.inputs = t.inputs, .targets = t.targets, .starts = t.starts, .loss_scale = 1
	};
	if (comm_rank(world) == 1)
		model_plant(pipeline_model(t.engine), what);
	int rc = pipeline_step(t.engine, &b, &loss, e);
	if (!rc)
		rc = pipeline_check(t.engine, &b, &loss, &found, e);
	bool own = comm_rank(world) == 1, input = what == PLANT_INPUT;
	const char *expected = input ? "input" : "layers.3.attn.q.weight";
	if (!rc && own &&
	    (!found.bad || strcmp(found.what, expected) || found.at.micro ||
	     found.at.backward == input || found.gradient == input ||
	     found.at.layer != (input ? 2 : 3)))
		rc = err_set(e, ERR_INTERNAL, "found %lld bad numbers in %s of layer %d",
			     (long long)found.bad, found.what, found.at.layer);
	/* The other stage gets the number later, or never. */
	if (!rc && !own && found.bad && (!input || !found.at.backward))
		rc = err_set(e, ERR_INTERNAL, "rank 0 has bad numbers in %s", found.what);
	t.failed = rc;
	trainee_close(&t);
	return rc;
}

static void check_mode_finds_a_planted_number_where_it_begins(void **state)
{
	(void)state;
	for (enum model_plant what = PLANT_INPUT; what <= PLANT_GRADIENT; what++)
		assert_int_equal(world_run(2, find_planted, &what), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_second_computation_has_the_bits_of_the_first),
		cmocka_unit_test(check_mode_finds_a_planted_number_where_it_begins),
	};
	return cmocka_run_group_tests_name("check mode", tests, NULL, NULL);
}
