/*
 * The layout and the strategy change how a step is computed, not its result. The program prints the
 * table of all strategies (rows) in all layouts (columns). Each cell trains 20 steps with real
 * processes and compares losses, gradient norms, the evaluation's loss and the final parameters
 * with those of one process. The relative error is at most 1e-5 in fp32, 1e-2 in bf16, and 2^-4
 * with 8-bit products. Losses and norms must also have the same bits on all ranks.
 *
 * A cell shows "·" if the job's own checks refuse its keys as contradictory. The reason is one of
 * job_check's.
 *
 * `make check` runs every third cell and leaves the others blank; `make check-all` runs all of
 * them.
 *
 * test_strategies [WORD] runs only the rows whose names contain the word, with all cells.
 */
#include "tests/large.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { STEPS = 20, WORDS = 12 };

/* Few numbers divide these sizes. */
static const struct tiny
	gpt2 = { "gpt2", FAMILY_GPT2, 5, 20, 5, 5, 4, 51, 101, 16, TIE_YES, 1, 8, 0.1 },
	llama = { "llama", FAMILY_LLAMA, 5, 24, 8, 2, 4, 45, 103, 16, TIE_NO, 2, 16, 0.1 },
	tied = { "llama tied", FAMILY_LLAMA, 4, 20, 6, 3, 6, 37, 67, 16, TIE_YES, 1, 8, 0.1 },
	mixtral = { "mixtral", FAMILY_MIXTRAL, 4, 16, 4, 2, 4, 24, 61, 16, TIE_NO, 2, 8, 0.1 },
	qwen2 = { "qwen2", FAMILY_QWEN2, 4, 24, 8, 2, 4, 45, 71, 16, TIE_NO, 2, 16, 0.1 },
	/* The heads together are wider than the model. */
	qwen3 = { "qwen3", FAMILY_QWEN3, 4, 20, 4, 2, 6, 37, 67, 16, TIE_YES, 2, 8, 0.1 },
	/* These two are for degrees of 3. */
	thirds = { "thirds", FAMILY_GPT2, 4, 20, 5, 5, 4, 50, 71, 18, TIE_YES, 3, 9, 0.1 },
	third_experts = { "third experts",
			  FAMILY_MIXTRAL,
			  3,
			  20,
			  6,
			  3,
			  4,
			  23,
			  61,
			  18,
			  TIE_NO,
			  1,
			  9,
			  0.1 },
	/* Tensors are larger than 64 KiB, so that transfers overlap the products. */
	wide = { "wide", FAMILY_GPT2, 2, 192, 4, 4, 48, 260, 101, 96, TIE_YES, 2, 8, 0.02 };

/* A row. `math` words change the result, so the row's single process has them too. `how` words
 * must not change it. */
struct strategy {
	const char *name;
	const struct tiny *model;
	const char *math[WORDS], *how[WORDS];
};

/* clang-format off */
static const struct strategy strategies[] = {
	{ "gpt2", &gpt2, { 0 }, { 0 } },
	{ "llama, 2 kv heads", &llama, { 0 }, { 0 } },
	{ "tied llama, gpipe", &tied, { 0 }, { "parallel.schedule=gpipe" } },
	{ "naive", &tied, { 0 }, { "parallel.schedule=naive" } },
	{ "interleaved, zero-1", &tied, { 0 }, { "parallel.schedule=interleaved", "parallel.zero=1" } },
	{ "interleaved, sp, zero-2", &gpt2, { 0 }, { "parallel.schedule=interleaved", "parallel.sp=yes", "parallel.zero=2" } },
	{ "zb-h1", &llama, { 0 }, { "parallel.schedule=zb-h1" } },
	{ "zb-v, zero-3", &tied, { 0 }, { "parallel.schedule=zb-v", "parallel.zero=3" } },
	{ "breadth-first, zero-3", &tied, { 0 }, { "parallel.schedule=breadth-first", "parallel.zero=3" } },
	{ "zb-v, mixtral", &mixtral, { 0 }, { "parallel.schedule=zb-v" } },
	{ "bf16", &gpt2, { "precision.dtype=bf16", "optimizer.lr=1e-3" }, { 0 } },
	{ "bf16, sp, zero-3", &llama, { "precision.dtype=bf16", "optimizer.lr=1e-3" }, { "parallel.sp=yes", "parallel.zero=3" } },
	{ "bf16, rounded at random, zero-1", &gpt2, { "precision.dtype=bf16", "optimizer.lr=1e-3", "precision.stochastic_rounding=yes" },
	  { "parallel.zero=1" } },
	{ "fp8 hybrid", &gpt2, { "precision.dtype=bf16", "precision.fp8=hybrid", "optimizer.lr=1e-3" }, { 0 } },
	{ "fp8 e4m3, sp, recompute, zero-3", &llama, { "precision.dtype=bf16", "precision.fp8=e4m3", "optimizer.lr=1e-3" },
	  { "parallel.sp=yes", "recompute.mode=full", "parallel.zero=3" } },
	{ "fp8 e4m3, recompute every 2nd", &llama, { "precision.dtype=bf16", "precision.fp8=e4m3", "optimizer.lr=1e-3" },
	  { "recompute.mode=full", "recompute.every=2", "parallel.zero=1" } },
	{ "fp8 delayed, sp, zero-1", &llama, { "precision.dtype=bf16", "precision.fp8=hybrid", "precision.fp8_scaling=delayed", "optimizer.lr=1e-3" },
	  { "parallel.sp=yes", "parallel.zero=1" } },
	{ "fp8 delayed, zb-v, recompute, zero-3", &gpt2, { "precision.dtype=bf16", "precision.fp8=e4m3", "precision.fp8_scaling=delayed", "optimizer.lr=1e-3" },
	  { "parallel.schedule=zb-v", "recompute.mode=full", "parallel.zero=3" } },
	{ "fp8 hybrid, zb-v, offload, selective", &gpt2, { "precision.dtype=bf16", "precision.fp8=hybrid", "optimizer.lr=1e-3" },
	  { "parallel.schedule=zb-v", "offload.activations=yes", "recompute.mode=selective" } },
	{ "fp16, recompute, zero-2", &tied, { "precision.dtype=fp16", "precision.loss_scale=1024" },
	  { "recompute.mode=selective", "parallel.zero=2" } },
	{ "sgd, zero-3 inside nodes", &gpt2, { "optimizer.kind=sgd", "optimizer.lr=0.05" },
	  { "parallel.zero=3", "parallel.zero_shard=node" } },
	{ "zero-1 inside nodes, mixtral", &mixtral, { 0 }, { "parallel.zero=1", "parallel.zero_shard=node" } },
	{ "zero-1", &gpt2, { 0 }, { "parallel.zero=1" } },
	{ "zero-2", &tied, { 0 }, { "parallel.zero=2" } },
	{ "zero-3", &llama, { 0 }, { "parallel.zero=3" } },
	{ "sp", &llama, { 0 }, { "parallel.sp=yes" } },
	{ "sp + zero-3", &gpt2, { 0 }, { "parallel.sp=yes", "parallel.zero=3" } },
	{ "recompute full", &llama, { 0 }, { "recompute.mode=full" } },
	{ "recompute selective, sp", &gpt2, { 0 }, { "recompute.mode=selective", "parallel.sp=yes" } },
	{ "recompute every 2nd, zero-2", &tied, { 0 }, { "recompute.mode=full", "recompute.every=2", "parallel.zero=2" } },
	{ "dropout", &gpt2, { "model.dropout=0.2", "model.attn_dropout=0.1" }, { 0 } },
	{ "dropout, sp, recompute, zero-3", &tied, { "model.dropout=0.2", "model.attn_dropout=0.1" },
	  { "parallel.sp=yes", "recompute.mode=full", "parallel.zero=3" } },
	{ "overlap", &wide, { "optimizer.lr=3e-4", "optimizer.min_lr=0" }, { 0 } },
	{ "overlap, sp, zero-3", &wide, { "optimizer.lr=3e-4", "optimizer.min_lr=0" }, { "parallel.sp=yes", "parallel.zero=3" } },
	{ "offload both, zero-1", &gpt2, { 0 }, { "offload.activations=yes", "offload.optimizer=yes", "parallel.zero=1" } },
	{ "parameter server, staleness 0", &tied, { 0 }, { "parallel.sync=server", "parallel.staleness=0" } },
	{ "parameter server, dropout, recompute", &gpt2, { "model.dropout=0.2", "optimizer.kind=sgd", "optimizer.lr=0.05" },
	  { "parallel.sync=server", "parallel.staleness=0", "recompute.mode=full" } },
	{ "adafactor", &gpt2, { "optimizer.kind=adafactor" }, { 0 } },
	{ "adafactor, sp, zero-1", &llama, { "optimizer.kind=adafactor" }, { "parallel.sp=yes", "parallel.zero=1" } },
	{ "adafactor, zb-v, zero-3", &tied, { "optimizer.kind=adafactor" }, { "parallel.schedule=zb-v", "parallel.zero=3" } },
	{ "adafactor, mixtral, zero-2 inside nodes", &mixtral, { "optimizer.kind=adafactor" }, { "parallel.zero=2", "parallel.zero_shard=node" } },
	{ "adafactor, bf16, offload, zero-3", &gpt2, { "optimizer.kind=adafactor", "precision.dtype=bf16", "optimizer.lr=1e-3" },
	  { "parallel.zero=3", "offload.optimizer=yes" } },
	{ "muon", &gpt2, { "optimizer.kind=muon" }, { 0 } },
	{ "muon, sp, zero-1", &llama, { "optimizer.kind=muon" }, { "parallel.sp=yes", "parallel.zero=1" } },
	{ "muon, zb-v, zero-3", &tied, { "optimizer.kind=muon" }, { "parallel.schedule=zb-v", "parallel.zero=3" } },
	{ "muon, mixtral, zero-2 inside nodes", &mixtral, { "optimizer.kind=muon" }, { "parallel.zero=2", "parallel.zero_shard=node" } },
	{ "muon, bf16, offload, zero-3", &gpt2, { "optimizer.kind=muon", "precision.dtype=bf16", "optimizer.lr=1e-3" },
	  { "parallel.zero=3", "offload.optimizer=yes" } },
	{ "documents", &llama, { "data.documents=mask" }, { 0 } },
	{ "qwen2, sp, zero-2", &qwen2, { 0 }, { "parallel.sp=yes", "parallel.zero=2" } },
	{ "qwen3", &qwen3, { 0 }, { 0 } },
	{ "qwen3, sp, recompute, zero-3", &qwen3, { 0 }, { "parallel.sp=yes", "recompute.mode=full", "parallel.zero=3" } },
	{ "qwen3, zb-v, offload, selective", &qwen3, { "data.documents=mask" },
	  { "parallel.schedule=zb-v", "offload.activations=yes", "recompute.mode=selective" } },
	{ "qwen3, bf16, interleaved", &qwen3, { "precision.dtype=bf16", "optimizer.lr=1e-3" }, { "parallel.schedule=interleaved" } },
	{ "mixtral", &mixtral, { 0 }, { 0 } },
	{ "mixtral, capacity, z-loss", &mixtral, { "model.capacity=1.25", "model.z_loss=0.01", "model.router=before" }, { 0 } },
	{ "mixtral, sp, zero-1", &mixtral, { 0 }, { "parallel.sp=yes", "parallel.zero=1" } },
	{ "mixtral, recompute, zero-3", &mixtral, { 0 }, { "recompute.mode=full", "parallel.zero=3" } },
	{ "mixtral, capacity, dropout, micro 1", &mixtral, { "model.capacity=1.25", "model.dropout=0.2", "model.attn_dropout=0.1" },
	  { "batch.micro=1" } },
	{ "mixtral, recompute, zb-h1", &mixtral, { 0 }, { "recompute.mode=full", "parallel.schedule=zb-h1" } },
	{ "mixtral, dropout, recompute, zb-v", &mixtral, { "model.dropout=0.2", "model.attn_dropout=0.1" },
	  { "recompute.mode=full", "recompute.every=2", "parallel.schedule=zb-v" } },
	{ "offload, zb-v, recompute every 2nd", &tied, { 0 },
	  { "offload.activations=yes", "parallel.schedule=zb-v", "recompute.mode=full", "recompute.every=2" } },
	{ "thirds, dropout, sp, zero-3", &thirds, { "model.dropout=0.2", "model.attn_dropout=0.1", "data.documents=mask" },
	  { "parallel.sp=yes", "parallel.zero=3" } },
	{ "thirds, mixtral, capacity", &third_experts, { "model.capacity=1.25", "model.z_loss=0.01" }, { "parallel.zero=2" } },
};
/* clang-format on */

/* A column. */
struct column {
	const char *name;
	const char *words[WORDS];
};

static const struct column columns[] = {
	{ "dp2", { "parallel.dp=2" } },
	{ "tp2", { "parallel.tp=2" } },
	{ "pp2", { "parallel.pp=2" } },
	{ "tp2 dp2", { "parallel.tp=2", "parallel.dp=2" } },
	{ "tp2 pp2", { "parallel.tp=2", "parallel.pp=2" } },
	{ "pp2 dp2", { "parallel.pp=2", "parallel.dp=2" } },
	{ "tp4", { "parallel.tp=4" } },
	{ "dp4", { "parallel.dp=4" } },
	{ "pp4", { "parallel.pp=4" } },
	{ "cp2", { "parallel.cp=2" } },
	{ "cp4", { "parallel.cp=4" } },
	{ "cp2 tp2", { "parallel.cp=2", "parallel.tp=2" } },
	{ "cp2 pp2 dp2", { "parallel.cp=2", "parallel.pp=2", "parallel.dp=2" } },
	{ "ep2 dp2", { "parallel.ep=2", "parallel.dp=2" } },
	{ "ep2 dp4", { "parallel.ep=2", "parallel.dp=4" } },
	{ "ep2 dp2 tp2", { "parallel.ep=2", "parallel.dp=2", "parallel.tp=2" } },
	{ "tp2 pp2 dp2", { "parallel.tp=2", "parallel.pp=2", "parallel.dp=2" } },
	{ "cp3", { "parallel.cp=3" } },
	{ "tp3 pp2", { "parallel.tp=3", "parallel.pp=2" } },
	{ "ep3 dp3", { "parallel.ep=3", "parallel.dp=3" } },
	{ "cp3 tp2", { "parallel.cp=3", "parallel.tp=2" } },
};

#define COUNT(a) ((int)(sizeof(a) / sizeof *(a)))

/* The results of the ranks of one run. */
struct rank_result {
	double loss[STEPS], norm[STEPS], eval[2]; /* in the middle and at the end */
};

struct training {
	const struct tiny *model;
	struct job job;
	struct catalogue whole;
	struct rank_result *accounts; /* [WORLD_MAX], shared */
	float *params;                /* [whole.elements], shared */
};

static int train_rank(struct comm *world, void *arg, struct err *e)
{
	const struct training *c = arg;
	struct rank_result *a = &c->accounts[comm_rank(world)];
	struct trainee t;
	int rc = trainee_open(c->model, &c->job, world, "cpu", 1, &t, e);
	for (int step = 0; !rc && step < STEPS; step++) {
		if (step == STEPS / 2)
			rc = trainee_eval(&t, step, &a->eval[0], e);
		if (!rc)
			rc = trainee_step(&t, step, &a->loss[step], &a->norm[step], e);
	}
	if (!rc)
		rc = trainee_eval(&t, STEPS, &a->eval[1], e);
	if (!rc)
		rc = trainee_gather(&t, &c->whole, false, c->params, e);
	trainee_close(&t);
	return rc;
}

static void training_open(const struct tiny *model, const struct job *job, struct training *c)
{
	struct model_shape s;
	struct err e = ERR_INIT;
	*c = (struct training){ .model = model, .job = *job };
	shape_of_job(job, &s);
	assert_int_equal(trainee_whole(&s, &c->whole, &e), 0);
	c->accounts = world_shared(WORLD_MAX * sizeof *c->accounts);
	c->params = world_shared((size_t)c->whole.elements * sizeof *c->params);
}

static void course_close(struct training *c)
{
	world_unshared(c->accounts, WORLD_MAX * sizeof *c->accounts);
	world_unshared(c->params, (size_t)c->whole.elements * sizeof *c->params);
	catalogue_free(&c->whole);
}

static double off(double got, double want)
{
	return fabs(got - want) / fabs(want);
}

/* NaN propagates. */
static void raise(double *most, double x)
{
	if (!(x <= *most))
		*most = x;
}

/* The gradient of a key bias is only rounding error, because a softmax ignores a shift. AdamW
 * scales it up to whole steps, but nothing else depends on it. */
static double params_off(const struct training *c, const struct training *alone)
{
	double diff = 0, size = 0;
	for (int i = 0; i < c->whole.n; i++) {
		const struct param *p = &c->whole.params[i];
		for (int64_t j = p->offset; p->role != PARAM_K_B && j < p->offset + p->count; j++) {
			double d = (double)c->params[j] - (double)alone->params[j];
			diff += d * d;
			size += (double)alone->params[j] * (double)alone->params[j];
		}
	}
	return sqrt(diff / size);
}

static double difference(const struct training *c, const struct training *alone)
{
	const struct rank_result *a = &c->accounts[0], *b = &alone->accounts[0];
	double most = params_off(c, alone);
	for (int i = 0; i < COUNT(a->eval); i++)
		raise(&most, off(a->eval[i], b->eval[i]));
	for (int i = 0; i < STEPS; i++) {
		raise(&most, off(a->loss[i], b->loss[i]));
		raise(&most, off(a->norm[i], b->norm[i]));
	}
	return most;
}

static bool all_ranks_agree(const struct training *c)
{
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	for (int r = 1; r < layout_world(&l); r++)
		if (memcmp(&c->accounts[r], &c->accounts[0], sizeof c->accounts[0]))
			return false;
	return true;
}

static void add_words(const char *const *from, const char **to, int *n)
{
	for (; *from; from++)
		to[(*n)++] = *from;
}

/* Returns the number of strategies that a cell combines. */
static int features(const struct job *j)
{
	const bool on[] = {
		j->parallel.tp > 1,
		j->parallel.cp > 1,
		j->parallel.dp > 1,
		j->parallel.pp > 1,
		j->parallel.ep > 1,
		j->parallel.sp,
		j->parallel.zero > 0,
		j->parallel.schedule != SCHEDULE_1F1B,
		j->recompute.mode != RECOMPUTE_NONE,
		j->offload.activations || j->offload.optimizer,
		j->precision.dtype != DTYPE_FP32,
		j->model.dropout > 0,
	};
	int n = 0;
	for (int i = 0; i < COUNT(on); i++)
		n += on[i];
	return n;
}

struct totals {
	int cells, products, wrong;
};

/* With 8 bits, the tolerance is the rounding of e4m3. Another order of sums changes some roundings
 * to bf16, and these sometimes change the rounding of an 8-bit operand. If tensors are split, each
 * piece also has its own range of numbers that are too small. */
static double tolerance_of(const struct job *job)
{
	if (job->precision.fp8 != FP8_OFF)
		return 0x1p-4;
	return job->precision.dtype == DTYPE_FP32 ? 1e-5 : 1e-2;
}

/* Runs one cell. Returns its error, or -1 if the job is refused. */
static double run_cell(const struct strategy *s, const struct column *col,
		       const struct training *alone, struct totals *t)
{
	const char *words[4 * WORDS] = { NULL };
	struct err e = ERR_INIT;
	struct job job;
	struct training c;
	int n = 0;
	add_words(s->math, words, &n);
	add_words(s->how, words, &n);
	add_words(col->words, words, &n);
	if (trainee_job(s->model, words, &job, &e))
		return -1;
	training_open(s->model, &job, &c);
	struct layout l = layout_of(&job, (int)job.parallel.dp);
	double d = world_run(layout_world(&l), train_rank, &c) ? NAN : difference(&c, alone);
	if (!(d <= tolerance_of(&job)) || !all_ranks_agree(&c)) {
		t->wrong++;
		print_error("  %s, %s: off by %.1e\n", s->name, col->name, d);
	}
	t->cells++;
	t->products += features(&job) >= 3;
	course_close(&c);
	return d;
}

/* The losses differ from those without 8 bits, but only a little. */
static bool near_bf16(const struct strategy *s, const struct training *alone)
{
	const char *words[2 * WORDS] = { NULL };
	struct err e = ERR_INIT;
	struct training c;
	struct job job;
	int n = 0;
	add_words(s->math, words, &n);
	words[n++] = "precision.fp8=off";
	words[n++] = "precision.fp8_scaling=current";
	if (trainee_job(s->model, words, &job, &e))
		fail_msg("%s", e.text);
	training_open(s->model, &job, &c);
	assert_int_equal(world_run(1, train_rank, &c), 0);
	const struct rank_result *a = &alone->accounts[0], *b = &c.accounts[0];
	double d = difference(alone, &c);
	printf("%-32s first loss %.1e, first norm %.1e, all %.1e from without 8 bits\n", s->name,
	       off(a->loss[0], b->loss[0]), off(a->norm[0], b->norm[0]), d);
	bool near = d > 0 && d < 0.25 && off(a->loss[0], b->loss[0]) < 0x1p-6 &&
		    off(a->norm[0], b->norm[0]) < 0x1p-4;
	course_close(&c);
	return near;
}

static void run_row(const struct strategy *s, bool all, struct totals *t)
{
	struct training alone;
	struct job job;
	struct err e = ERR_INIT;
	if (trainee_job(s->model, s->math, &job, &e))
		fail_msg("%s", e.text);
	training_open(s->model, &job, &alone);
	assert_int_equal(world_run(1, train_rank, &alone), 0);
	assert_true(alone.accounts[0].loss[STEPS - 1] < alone.accounts[0].loss[0]); /* it learns */
	assert_true(job.precision.fp8 == FP8_OFF || near_bf16(s, &alone));
	printf("%-32s", s->name);
	for (int i = 0; i < COUNT(columns); i++) {
		bool runs = all || cell_runs((int)(s - strategies), i);
		double d = runs ? run_cell(s, &columns[i], &alone, t) : -1;
		if (d < 0)
			printf(" %12s", runs ? "·" : "");
		else
			printf(" %12.1e", d);
		fflush(stdout);
	}
	printf("\n");
	course_close(&alone);
}

static void every_strategy_computes_what_one_process_does(void **state)
{
	const char *only = *state;
	struct totals t = { 0 };
	printf("%-32s", "relative difference");
	for (int i = 0; i < COUNT(columns); i++)
		printf(" %12s", columns[i].name);
	printf("\n");
	for (int i = 0; i < COUNT(strategies); i++)
		if (strstr(strategies[i].name, only))
			run_row(&strategies[i], *only, &t);
	printf("%d cells, %d of them products of three or more strategies, %d wrong\n", t.cells,
	       t.products, t.wrong);
	assert_int_equal(t.wrong, 0);
	assert_true(*only || t.cells >= 120);
	assert_true(*only || t.products >= 30);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(every_strategy_computes_what_one_process_does,
					  argc > 1 ? argv[1] : ""),
	};
	return cmocka_run_group_tests_name("strategies against one process", tests, NULL, NULL);
}
