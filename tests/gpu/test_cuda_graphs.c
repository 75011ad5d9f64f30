/*
 * Recorded passes with the collectives of NCCL in them: training over the emulator and doubles, with a
 * device per rank. With graphs and without, a step has the same bits; with them the host queues much less.
 */
#include "tests/gpu/doubles/runtime.h"
#include "tests/unit/agent/trainee.h"
#include "tests/unit/agent/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#ifdef HAVE_NCCL

enum { STEPS = 6, WORDS = 12 };

static const struct tiny
	gpt2 = { "gpt2", FAMILY_GPT2, 2, 16, 2, 2, 8, 32, 61, 8, TIE_YES, 1, 4, 0.1 },
	llama = { "llama", FAMILY_LLAMA, 2, 16, 4, 2, 4, 20, 61, 8, TIE_NO, 1, 4, 0.1 };

#define BF16 "precision.dtype=bf16", "optimizer.lr=1e-3"

/* most: of what the host queues in a step with graphs, as a share of a step without. */
struct cell {
	const char *name;
	const struct tiny *model;
	const char *words[WORDS];
	double most;
};

/* clang-format off */
static const struct cell cells[] = {
	{ "one rank", &gpt2, { BF16 }, 0.5 },
	{ "tp 2", &gpt2, { BF16, "parallel.tp=2" }, 0.5 },
	{ "tp 2, fp16, another scale", &gpt2, { "precision.dtype=fp16", "precision.loss_scale=1024", "optimizer.lr=1e-3", "parallel.tp=2" }, 0.5 },
	{ "tp 2, sp", &llama, { BF16, "parallel.tp=2", "parallel.sp=yes" }, 0.5 },
	{ "dp 2", &gpt2, { BF16, "parallel.dp=2" }, 0.5 },
	{ "dp 2, zero 1", &gpt2, { BF16, "parallel.dp=2", "parallel.zero=1" }, 0.5 },
	{ "tp 2, dp 2, zero 1", &llama, { BF16, "parallel.tp=2", "parallel.dp=2", "parallel.zero=1" }, 0.5 },
};
/* clang-format on */

struct course {
	const struct tiny *model;
	struct job job;
	bool scales;
	double loss[STEPS], norm[STEPS], eval[STEPS];
	struct double_queued queued; /* in the last step */
};

static struct double_queued less(struct double_queued a, struct double_queued b)
{
	return (struct double_queued){ a.work - b.work, a.events - b.events, a.others - b.others,
				       a.graphs - b.graphs };
}

static int attend(struct comm *world, void *arg, struct err *e)
{
	struct course *c = arg;
	struct trainee t;
	trainee_device = comm_rank(world);
	int rc = trainee_open(c->model, &c->job, world, "cuda", 1, &t, e);
	for (int step = 0; !rc && step < STEPS; step++) {
		/* All ranks record their passes again. */
		if (c->scales && step == STEPS / 2)
			t.job.precision.loss_scale /= 2;
		struct double_queued before = double_queued();
		double loss, norm, eval;
		rc = trainee_step(&t, step, &loss, &norm, e);
		struct double_queued queued = less(double_queued(), before);
		/* Evaluations come between recorded passes. */
		if (!rc && step % 2)
			rc = trainee_eval(&t, step, &eval, e);
		if (!rc && comm_rank(world) == 0) {
			c->loss[step] = loss;
			c->norm[step] = norm;
			c->eval[step] = step % 2 ? eval : 0;
			c->queued = queued;
		}
	}
	trainee_close(&t);
	return rc;
}

static struct course *course_of(const struct cell *cell, const char *more)
{
	const char *words[WORDS + 3] = { NULL };
	struct err e = ERR_INIT;
	struct course *c = world_shared(sizeof *c);
	int n = 0;
	while (cell->words[n]) {
		words[n] = cell->words[n];
		n++;
	}
	words[n++] = "job.device=cuda";
	words[n] = more;
	c->model = cell->model;
	c->scales = !!strstr(cell->name, "scale");
	if (trainee_job(cell->model, words, &c->job, &e))
		fail_msg("%s: %s", cell->name, e.text);
	return c;
}

static void go(struct course *c)
{
	struct layout l = layout_of(&c->job, (int)c->job.parallel.dp);
	assert_int_equal(world_run(layout_world(&l), attend, c), 0);
}

static bool same_bits(const struct course *a, const struct course *b)
{
	return !memcmp(a->loss, b->loss, sizeof a->loss) &&
	       !memcmp(a->norm, b->norm, sizeof a->norm) &&
	       !memcmp(a->eval, b->eval, sizeof a->eval);
}

static int64_t all_of(const struct double_queued *q)
{
	return q->work + q->events + q->others + q->graphs;
}

static void print_queued(const char *name, const struct double_queued *q)
{
	printf("    %-32s %5lld calls: work %5lld, events %4lld, NCCL %3lld, graphs %2lld\n", name,
	       (long long)all_of(q), (long long)q->work, (long long)q->events, (long long)q->others,
	       (long long)q->graphs);
	fflush(stdout);
}

static void graphs_change_no_bits_and_save_calls(void **state)
{
	const char *only = *state;
	int wrong = 0;
	for (size_t i = 0; i < sizeof cells / sizeof *cells; i++) {
		if (!strstr(cells[i].name, only))
			continue;
		struct course *with = course_of(&cells[i], NULL),
			      *without = course_of(&cells[i], "job.graphs=no");
		go(without);
		go(with);
		print_queued(cells[i].name, &without->queued);
		print_queued("  with graphs", &with->queued);
		bool same = same_bits(with, without),
		     few = (double)all_of(&with->queued) <=
			   cells[i].most * (double)all_of(&without->queued);
		if (!same || !few || !with->queued.graphs || without->queued.graphs)
			print_message("%s: %s bits, %s calls\n", cells[i].name,
				      same ? "the same" : "other", few ? "few" : "too many");
		wrong += !same || !few || !with->queued.graphs || without->queued.graphs;
		world_unshared(with, sizeof *with);
		world_unshared(without, sizeof *without);
	}
	assert_int_equal(wrong, 0);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_prestate(graphs_change_no_bits_and_save_calls,
					  argc > 1 ? argv[1] : ""),
	};
	setenv("MUSTER_EMULATE_GUARD", "1", 0);
	return cmocka_run_group_tests_name("recorded passes on emulated devices", tests, NULL,
					   NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT("cuda_runtime_api.h of CUDA 12 or newer, or nccl.h, was",
		"recorded passes on emulated devices")

#endif
