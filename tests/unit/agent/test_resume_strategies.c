/*
 * A run that stops and is resumed equals, to the bit, the run that did not stop, under every
 * strategy. Each row trains 6 steps without a stop. It also trains 3 steps, saves a checkpoint in
 * files, starts new processes that load it, and trains 3 more steps. Losses, gradient norms and all
 * final parameters are equal, so the steps depend on nothing except the checkpoint and the job.
 *
 * test_resume_strategies [WORD] runs only the rows whose names contain the word.
 */
#include "base/log.h"
#include "tests/unit/agent/ckpt_fixture.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

enum { STEPS = 6, STOP = 3, WORDS = 16, LAYOUTS = 2, TEXT = 512 };

/* Few numbers divide these sizes. */
static const struct tiny gpt2 = { "gpt2", FAMILY_GPT2, 5,  20,      5, 5, 4,
				  51,     101,         16, TIE_YES, 1, 8, 0.1 },
			 llama = { "llama", FAMILY_LLAMA, 5,  24,     8, 2,  4,
				   45,      103,          16, TIE_NO, 2, 16, 0.1 },
			 tied = { "llama tied", FAMILY_LLAMA, 4,  20,      6, 3, 6,
				  37,           67,           16, TIE_YES, 1, 8, 0.1 },
			 mixtral = { "mixtral", FAMILY_MIXTRAL, 4, 16, 4,  2, 4, 24, 61,
				     16,        TIE_NO,         1, 8,  0.1 };

#define BF16 "precision.dtype=bf16 optimizer.lr=1e-3 "

/* clang-format off */
static const struct strategy {
	const char *name;
	const struct tiny *model;
	const char *words, *layouts[LAYOUTS];
} strategies[] = {
	{ "one process", &tied, "", { "parallel.dp=1" } },
	{ "ddp", &gpt2, "", { "parallel.dp=2", "parallel.tp=2 parallel.dp=2" } },
	{ "zero-1", &gpt2, "parallel.zero=1", { "parallel.dp=2", "parallel.pp=2 parallel.dp=2" } },
	{ "zero-2", &tied, "parallel.zero=2", { "parallel.dp=4", "parallel.tp=2 parallel.dp=2" } },
	{ "zero-3", &llama, "parallel.zero=3", { "parallel.dp=2", "parallel.pp=2 parallel.dp=2" } },
	{ "zero-3 inside nodes", &gpt2, "parallel.zero=3 parallel.zero_shard=node", { "parallel.dp=4" } },
	{ "sp", &llama, "parallel.sp=yes", { "parallel.tp=2", "parallel.tp=2 parallel.pp=2" } },
	{ "recompute", &tied, "recompute.mode=full recompute.every=2", { "parallel.pp=2" } },
	{ "recompute selective", &gpt2, "recompute.mode=selective", { "parallel.tp=2 parallel.dp=2" } },
	{ "dropout", &gpt2, "model.dropout=0.2 model.attn_dropout=0.1", { "parallel.dp=2", "parallel.tp=2 parallel.pp=2" } },
	{ "1f1b, interleaved", &tied, "parallel.schedule=interleaved", { "parallel.pp=2", "parallel.pp=2 parallel.dp=2" } },
	{ "zb-h1", &llama, "parallel.schedule=zb-h1", { "parallel.pp=2", "parallel.pp=2 parallel.tp=2" } },
	{ "zb-v", &tied, "parallel.schedule=zb-v", { "parallel.pp=2", "parallel.pp=2 parallel.dp=2" } },
	{ "breadth-first", &tied, "parallel.schedule=breadth-first", { "parallel.pp=2", "parallel.pp=2 parallel.dp=2" } },
	{ "cp", &llama, "", { "parallel.cp=2", "parallel.cp=2 parallel.tp=2" } },
	{ "ep", &mixtral, "", { "parallel.ep=2 parallel.dp=2", "parallel.ep=2 parallel.dp=2 parallel.tp=2" } },
	{ "ep, capacity, z-loss, zero-1", &mixtral, "model.capacity=1.25 model.z_loss=0.01 parallel.zero=1", { "parallel.ep=2 parallel.dp=4" } },
	{ "bf16", &llama, BF16, { "parallel.tp=2", "parallel.dp=2" } },
	{ "bf16, rounded at random", &gpt2, BF16 "precision.stochastic_rounding=yes", { "parallel.dp=2", "parallel.tp=2 parallel.pp=2" } },
	{ "bf16, rounded at random, zero-3", &tied, BF16 "precision.stochastic_rounding=yes parallel.zero=3", { "parallel.dp=2" } },
	{ "fp16", &tied, "precision.dtype=fp16 precision.loss_scale=1024", { "parallel.dp=2" } },
	{ "fp8", &gpt2, BF16 "precision.fp8=hybrid", { "parallel.dp=2", "parallel.tp=2 parallel.pp=2" } },
	{ "fp8, delayed", &gpt2, BF16 "precision.fp8=hybrid precision.fp8_scaling=delayed", { "parallel.dp=2", "parallel.tp=2 parallel.pp=2" } },
	{ "offload", &gpt2, "offload.activations=yes offload.optimizer=yes", { "parallel.dp=2", "parallel.pp=2" } },
	{ "offload, zero-1, bf16", &gpt2, BF16 "offload.optimizer=yes parallel.zero=1", { "parallel.dp=2" } },
	{ "sgd", &gpt2, "optimizer.kind=sgd optimizer.lr=0.05", { "parallel.dp=2", "parallel.tp=2" } },
	{ "adafactor", &llama, "optimizer.kind=adafactor", { "parallel.dp=2", "parallel.tp=2 parallel.pp=2" } },
	{ "adafactor, bf16, offload, zero-1", &gpt2, BF16 "optimizer.kind=adafactor offload.optimizer=yes parallel.zero=1", { "parallel.dp=2" } },
	{ "muon", &gpt2, "optimizer.kind=muon", { "parallel.dp=2", "parallel.tp=2 parallel.pp=2" } },
	{ "muon, experts, zero-3", &mixtral, "optimizer.kind=muon parallel.zero=3", { "parallel.ep=2 parallel.dp=4" } },
	{ "parameter server, in step", &gpt2, "parallel.sync=server parallel.staleness=0", { "parallel.dp=2", "parallel.dp=3 batch.global=6" } },
	{ "documents", &llama, "data.documents=mask", { "parallel.dp=2", "parallel.cp=2" } },
};
/* clang-format on */

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* The results of the ranks of one run. */
struct rank_result {
	double loss[STEPS], norm[STEPS];
};

struct training {
	const struct tiny *model;
	struct job job;
	struct catalogue whole;
	struct rank_result *accounts; /* [WORLD_MAX], shared */
	float *params;                /* [whole.elements], shared */
	/* steps; from > 0: resumes from the checkpoint; to < STEPS: saves one */
	int from, to;
};

static int train(struct trainee *t, const struct training *c, struct rank_result *a, struct err *e)
{
	if (t->from != c->from)
		return err_set(e, ERR_INTERNAL, "the checkpoint is of step %d, not %d", t->from,
			       c->from);
	for (int step = c->from; step < c->to; step++)
		if (trainee_step(t, step, &a->loss[step], &a->norm[step], e))
			return -1;
	return c->to < STEPS ? trainee_save(t, fix_dir, c->to, e) : 0;
}

static int train_rank(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct trainee t;
	int rc = trainee_resume(c->model, &c->job, world, "cpu", 1, c->from ? fix_dir : NULL, &t,
				e);
	if (!rc)
		rc = train(&t, c, &c->accounts[comm_rank(world)], e);
	if (!rc)
		rc = trainee_gather(&t, &c->whole, false, c->params, e);
	trainee_close(&t);
	return rc;
}

static void training_open(const struct strategy *s, const char *layout, struct training *c)
{
	const char *words[WORDS] = { NULL };
	char text[TEXT];
	struct model_shape shape;
	struct err e = ERR_INIT;
	int n = 0;
	*c = (struct training){ .model = s->model };
	snprintf(text, sizeof text, "%s %s", s->words, layout);
	for (char *w = strtok(text, " "); w; w = strtok(NULL, " "))
		words[n++] = w;
	if (trainee_job(s->model, words, &c->job, &e))
		fail_msg("%s: %s", s->name, e.text);
	shape_of_job(&c->job, &shape);
	assert_int_equal(trainee_whole(&shape, &c->whole, &e), 0);
	c->accounts = world_shared(WORLD_MAX * sizeof *c->accounts);
	c->params = world_shared((size_t)c->whole.elements * sizeof *c->params);
}

static void course_close(struct training *c)
{
	world_unshared(c->accounts, WORLD_MAX * sizeof *c->accounts);
	world_unshared(c->params, (size_t)c->whole.elements * sizeof *c->params);
	catalogue_free(&c->whole);
}

static int train_steps(struct training *c, int from, int to)
{
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	c->from = from;
	c->to = to;
	return world_run(layout_world(&l), train_rank, c);
}

/* Returns the first thing that differs, or NULL if nothing does. */
static const char *difference(const struct training *a, const struct training *b)
{
	static char text[TEXT];
	for (int r = 0; r < WORLD_MAX; r++)
		for (int i = 0; i < STEPS; i++)
			if (a->accounts[r].loss[i] != b->accounts[r].loss[i] ||
			    a->accounts[r].norm[i] != b->accounts[r].norm[i]) {
				snprintf(text, sizeof text,
					 "rank %d, step %d: loss %.17g, norm %.17g; not stopped "
					 "%.17g, %.17g",
					 r, i + 1, b->accounts[r].loss[i], b->accounts[r].norm[i],
					 a->accounts[r].loss[i], a->accounts[r].norm[i]);
				return text;
			}
	for (int i = 0; i < a->whole.n; i++) {
		const struct param *p = &a->whole.params[i];
		if (memcmp(a->params + p->offset, b->params + p->offset,
			   (size_t)p->count * sizeof *a->params))
			return p->name;
	}
	return NULL;
}

/* Returns whether the cell is correct. */
static bool run_cell(const struct strategy *s, const char *layout)
{
	struct training straight, stopped;
	training_open(s, layout, &straight);
	training_open(s, layout, &stopped);
	bool ran = !train_steps(&straight, 0, STEPS) && !train_steps(&stopped, 0, STOP) &&
		   !train_steps(&stopped, STOP, STEPS);
	const char *wrong = ran ? difference(&straight, &stopped) : "it does not run";
	if (wrong)
		print_error("  %s, %s: %s\n", s->name, layout, wrong);
	/* Two runs that change nothing would also be equal. */
	bool moved = ran && straight.accounts[0].loss[STEPS - 1] != straight.accounts[0].loss[0] &&
		     straight.params[0] != 0;
	fix_remove(fix_path(STOP, NULL));
	course_close(&straight);
	course_close(&stopped);
	return !wrong && moved;
}

static void a_run_that_stopped_is_the_run_that_did_not(void **state)
{
	const char *only = *state;
	int cells = 0, wrong = 0;
	for (int i = 0; i < COUNT(strategies); i++)
		for (int k = 0; k < LAYOUTS && strategies[i].layouts[k]; k++) {
			if (!strstr(strategies[i].name, only))
				continue;
			cells++;
			wrong += !run_cell(&strategies[i], strategies[i].layouts[k]);
		}
	printf("%d strategies in their layouts, %d wrong\n", cells, wrong);
	assert_int_equal(wrong, 0);
	assert_true(*only || cells >= 36);
}

int main(int argc, char **argv)
{
	static char all[] = "";
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(a_run_that_stopped_is_the_run_that_did_not,
					  argc > 1 ? argv[1] : all),
	};
	log_setup(2, LOG_ERROR, "test");
	return cmocka_run_group_tests_name("going on, to the bit", tests, fix_setup, fix_teardown);
}
