/*
 * Training with algorithms of products that are chosen by measurement (agree_choices.h), over the
 * emulator and cuBLASLt's double, whose clock says which is fastest. Ranks use the same ones, and a
 * run keeps its own.
 */
#include "base/file.h"
#include "tests/gpu/cuda_course.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#ifdef HAVE_CUDA

#include "kernels/cuda/dnn.h"

enum { FEW = 6 };

static const struct tiny gpt2 = {
	"gpt2", FAMILY_GPT2, 2, 16, 2, 2, 8, 32, 61, 8, TIE_YES, 1, 2, 0.1
};

/* The double's algorithms 0, 1, 2, 3 add 64, 32, 16, 8 products at a time: the tiny model's sums
 * differ between some. */
static const struct cell chosen = { "chosen",           &gpt2, FEW, 0, { "model.dropout=0.1" },
				    { "parallel.tp=2" } };

/* Each stage has one of two equal layers. All rows are multiples of 256 bytes, so that the products
 * of both stages have the same alignments, and so the same keys. */
static const struct tiny aligned = { "aligned", FAMILY_GPT2, 2, 64,      2, 2, 32,
				     128,       61,          8, TIE_YES, 1, 2, 0.1 };
static const struct cell staged = { "staged", &aligned, FEW, 0, { NULL }, { "parallel.pp=2" } };

/* Folders for one test: of runs, and the user's cache. */
struct places {
	char top[64], runs[3][80], cache[80];
};

static struct places make_places(void)
{
	struct places p = { .top = "/tmp/muster-train-choices-XXXXXX" };
	assert_non_null(mkdtemp(p.top));
	for (int i = 0; i < 3; i++) {
		snprintf(p.runs[i], sizeof p.runs[i], "%s/run%d", p.top, i);
		assert_int_equal(file_make_dirs(p.runs[i], NULL), 0);
	}
	snprintf(p.cache, sizeof p.cache, "%s/cache", p.top);
	setenv("XDG_CACHE_HOME", p.cache, 1);
	return p;
}

static struct course *with_speeds(const struct cell *cell, const char *run_dir, int fastest,
				  int elsewhere)
{
	struct course *c = course_of(cell, "cuda", NULL);
	c->run_dir = run_dir;
	c->fastest[0] = fastest;
	c->fastest[1] = elsewhere;
	return c;
}

static struct course *run_cell(const struct cell *cell, const char *run_dir, int fastest,
			       int elsewhere)
{
	struct course *c = with_speeds(cell, run_dir, fastest, elsewhere);
	course_go(c);
	return c;
}

static struct course *run_chosen(const char *run_dir, int fastest, int elsewhere)
{
	return run_cell(&chosen, run_dir, fastest, elsewhere);
}

/* The second half of a run that was stopped after its first half. */
static struct course *run_halves(const struct cell *cell, const struct places *p,
				 const char *run_dir, int fastest, int elsewhere)
{
	struct course *first = with_speeds(cell, run_dir, fastest, elsewhere),
		      *rest = with_speeds(cell, run_dir, fastest, elsewhere);
	first->dir = rest->dir = p->top;
	first->to = rest->from = FEW / 2;
	course_go(first);
	file_remove_tree(p->cache);
	course_go(rest);
	course_drop(first);
	return rest;
}

/* If a rank used its own choice, the losses would differ from those with equal ranks. */
static void ranks_that_measure_differently_use_the_same_algorithms(void **state)
{
	(void)state;
	struct places p = make_places();
	struct course *differ = run_chosen(p.runs[0], 3, 0);
	file_remove_tree(p.cache);
	struct course *alike = run_chosen(p.runs[1], 3, 3);
	file_remove_tree(p.cache);
	struct course *other = run_chosen(p.runs[2], 0, 0);
	assert_true(course_same_bits(differ, alike, 0));
	assert_false(course_same_bits(differ, other, 0));
	assert_true(differ->loss[0] == other->loss[0]); /* the first step is the library's */
	file_remove_tree(p.top);
	course_drop(differ);
	course_drop(alike);
	course_drop(other);
}

/* Whatever is fastest when the run continues, or begins again. */
static void a_run_keeps_its_choices(void **state)
{
	(void)state;
	struct places p = make_places();
	struct course *whole = run_chosen(p.runs[0], 3, 3);
	file_remove_tree(p.cache);
	struct course *again = run_chosen(p.runs[0], 0, 1);
	assert_true(course_same_bits(whole, again, 0));
	assert_true(again->products < whole->products / 2);
	struct course *rest = run_halves(&chosen, &p, p.runs[1], 3, 3);
	assert_true(course_same_bits(whole, rest, FEW / 2));
	file_remove_tree(p.top);
	course_drop(whole);
	course_drop(again);
	course_drop(rest);
}

/* Stages have the same layers: where they measure differently, all take the first stage's choice,
 * also when the run continues. */
static void stages_that_measure_differently_use_the_same_algorithms(void **state)
{
	(void)state;
	struct places p = make_places();
	struct course *differ = run_cell(&staged, p.runs[0], 3, 0);
	file_remove_tree(p.cache);
	struct course *rest = run_halves(&staged, &p, p.runs[1], 3, 0);
	assert_true(course_same_bits(differ, rest, FEW / 2));
	file_remove_tree(p.cache);
	struct course *other = run_cell(&staged, p.runs[2], 0, 0);
	assert_false(course_same_bits(differ, other, 0));
	file_remove_tree(p.top);
	course_drop(differ);
	course_drop(rest);
	course_drop(other);
}

static void a_new_run_takes_what_an_earlier_one_measured(void **state)
{
	(void)state;
	struct places p = make_places();
	struct course *one = run_chosen(p.runs[0], 3, 3), *next = run_chosen(p.runs[1], 0, 0);
	assert_true(course_same_bits(one, next, 0));
	assert_true(next->products < one->products / 2);
	file_remove_tree(p.top);
	course_drop(one);
	course_drop(next);
}

static bool file_has(const char *path, const char *text)
{
	char line[1024];
	bool has = false;
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	while (fgets(line, sizeof line, f))
		has |= strstr(line, text) != NULL;
	fclose(f);
	return has;
}

#ifdef HAVE_CUDNN

/* Heads of 8, which cuDNN computes. */
static const struct cell attended = { "attended", &gpt2,    FEW,
				      0,          { NULL }, { "precision.dtype=bf16" } };

/* The plan counts cuDNN's workspace. */
static void a_run_whose_attention_is_cudnns_fits_its_plan_and_continues(void **state)
{
	(void)state;
	struct places p = make_places();
	struct course *whole = run_cell(&attended, p.runs[0], 3, 3);
	assert_true(whole->by_cudnn > 0);
	if (whole->taken > whole->predicted)
		fail_msg("%.0f bytes were taken, %.0f predicted", whole->taken, whole->predicted);
	file_remove_tree(p.cache);
	struct course *rest = run_halves(&attended, &p, p.runs[1], 3, 3);
	assert_true(rest->by_cudnn > 0);
	assert_true(course_same_bits(whole, rest, FEW / 2));
	file_remove_tree(p.top);
	course_drop(whole);
	course_drop(rest);
}

static struct course *run_attended(const struct places *p, const char *more)
{
	struct course *c = course_of(&attended, "cuda", more);
	c->run_dir = p->runs[0];
	course_go(c);
	return c;
}

/* Where the job's key has changed, only attention is measured again, and each has its own choices. */
static void sums_in_any_order_are_chosen_when_a_run_may_have_them(void **state)
{
	(void)state;
	struct places p = make_places();
	char ours[128];
	snprintf(ours, sizeof ours, "%s/choices", p.runs[0]);
	struct course *before = run_attended(&p, NULL),
		      *measures = run_attended(&p, "job.deterministic=any-order"),
		      *keeps = run_attended(&p, "job.deterministic=any-order"),
		      *after = run_attended(&p, "job.deterministic=no");
	assert_int_equal(before->in_any_order, 0);
	assert_true(measures->in_any_order > 0 && keeps->in_any_order > 0);
	assert_true(measures->by_cudnn > keeps->by_cudnn);
	assert_int_equal(keeps->by_cudnn, keeps->in_any_order);
	assert_true(measures->products < before->products / 2);
	assert_true(file_has(ours, " any-order"));
	if (measures->taken > measures->predicted)
		fail_msg("%.0f bytes were taken, %.0f predicted", measures->taken,
			 measures->predicted);
	assert_false(course_same_bits(before, keeps, 0));
	assert_true(course_same_bits(before, after, 0));
	file_remove_tree(p.top);
	course_drop(before);
	course_drop(measures);
	course_drop(keeps);
	course_drop(after);
}

/* What was chosen for another version would never be found. */
static void a_run_with_a_new_library_chooses_again(void **state)
{
	(void)state;
	struct places p = make_places();
	struct course *old = run_cell(&attended, p.runs[0], 3, 3),
		      *kept = run_cell(&attended, p.runs[0], 3, 3);
	setenv("MUSTER_DOUBLE_CUDNN", "newer", 1);
	struct course *upgraded = run_cell(&attended, p.runs[0], 3, 3);
	unsetenv("MUSTER_DOUBLE_CUDNN");
	assert_true(kept->products < old->products / 2);
	assert_true(upgraded->products > old->products / 2);
	assert_true(upgraded->by_cudnn > kept->by_cudnn);
	file_remove_tree(p.top);
	course_drop(old);
	course_drop(kept);
	course_drop(upgraded);
}

#endif

/* Otherwise a run with another model, once it continues with that layout, would measure nothing. */
static void the_cache_does_not_say_what_a_run_agreed_on(void **state)
{
	(void)state;
	struct places p = make_places();
	char ours[128], cache[128];
	snprintf(ours, sizeof ours, "%s/choices", p.runs[0]);
	snprintf(cache, sizeof cache, "%s/muster/choices", p.cache);
	struct course *one = run_chosen(p.runs[0], 3, 3),
		      *shrunk = course_of(&chosen, "cuda", "parallel.tp=1");
	shrunk->run_dir = p.runs[0];
	course_go(shrunk);
	assert_true(file_has(ours, "agreed tp=2") && file_has(ours, "agreed tp=1"));
	assert_true(file_has(cache, "matmul "));
	assert_false(file_has(cache, "agreed"));
	file_remove_tree(p.top);
	course_drop(one);
	course_drop(shrunk);
}

static void damaged_or_missing_files_end_no_run(void **state)
{
	(void)state;
	struct places p = make_places();
	char path[128];
	snprintf(path, sizeof path, "%s/choices", p.runs[0]);
	assert_int_equal(file_replace(path, "muster-choices 1\nnoise\n", 23, NULL), 0);
	assert_int_equal(file_replace(p.cache, "not a folder", 12, NULL), 0);
	struct course *one = run_chosen(p.runs[0], 3, 3);
	file_remove_tree(p.top);
	struct course *nowhere = run_chosen("/proc/no/folder", 3, 3);
	assert_true(course_same_bits(one, nowhere, 0));
	file_remove_tree(p.top); /* the cache was made again */
	course_drop(one);
	course_drop(nowhere);
}

static void a_deterministic_job_measures_nothing(void **state)
{
	(void)state;
	struct places p = make_places();
	struct course *once = course_of(&chosen, "cuda", "job.deterministic=yes"),
		      *again = course_of(&chosen, "cuda", "job.deterministic=yes"),
		      *never = course_of(&chosen, "cuda", NULL);
	once->run_dir = p.runs[0];
	once->fastest[0] = once->fastest[1] = 3;
	again->run_dir = p.runs[0];
	course_go(once);
	course_go(again);
	course_go(never);
	assert_true(course_same_bits(once, again, 0));
	assert_true(course_same_bits(once, never, 0));
	assert_int_equal(once->products, never->products);
	assert_int_equal(access(p.cache, F_OK), -1);
	file_remove_tree(p.top);
	course_drop(once);
	course_drop(again);
	course_drop(never);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(ranks_that_measure_differently_use_the_same_algorithms),
		cmocka_unit_test(a_run_keeps_its_choices),
		cmocka_unit_test(stages_that_measure_differently_use_the_same_algorithms),
#ifdef HAVE_CUDNN
		cmocka_unit_test(a_run_whose_attention_is_cudnns_fits_its_plan_and_continues),
		cmocka_unit_test(sums_in_any_order_are_chosen_when_a_run_may_have_them),
		cmocka_unit_test(a_run_with_a_new_library_chooses_again),
#endif
		cmocka_unit_test(a_new_run_takes_what_an_earlier_one_measured),
		cmocka_unit_test(the_cache_does_not_say_what_a_run_agreed_on),
		cmocka_unit_test(damaged_or_missing_files_end_no_run),
		cmocka_unit_test(a_deterministic_job_measures_nothing),
	};
	setenv("MUSTER_EMULATE_GUARD", "1", 0);
	return cmocka_run_group_tests_name("measured choices in training", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("measured choices in training")

#endif
