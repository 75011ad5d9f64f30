/* How the CUDA backend chooses between algorithms of products, over a double of cuBLASLt whose
 * algorithms take as long as a test says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_CUDA

#include "base/buf.h"
#include "base/choices.h"
#include "base/file.h"
#include "tests/gpu/cuda_backend.h"
#include "tests/gpu/doubles/blaslt.h"
#include "tests/gpu/doubles/runtime.h"

#include <stdio.h>
#include <unistd.h>

static int things_before;

/* The first is good, the third is best, the last is worst. */
static const double usual_seconds[BLAS_ALGORITHMS] = { 10e-6, 12e-6, 7e-6,  9e-6,  20e-6, 30e-6,
						       11e-6, 13e-6, 14e-6, 15e-6, 16e-6, 40e-6 };
enum { FIRST = 0, BEST = 2, SECOND = 3 };

static int setup(void **state)
{
	(void)state;
	double_blas_refuses = double_blas_apart = false;
	double_blas = (struct double_blas){ .algorithms = BLAS_ALGORITHMS };
	memcpy(double_blas.seconds, usual_seconds, sizeof usual_seconds);
	double_virtual_clock = true;
	double_kernel_seconds = 1e-6;
	things_before = double_open_things();
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	double_virtual_clock = false;
	double_blas = (struct double_blas){ .algorithms = 1 };
	return double_open_things() == things_before ? 0 : -1;
}

enum { EDGE = 64, CELLS = EDGE * EDGE };

/* Operands that no sum makes exact. */
struct scene {
	struct backend *k;
	void *x, *w, *y, *pre;
	float *dw, *sums;
};

static void put_numbers(struct backend *k, void *to, int seed)
{
	uint16_t bits[CELLS];
	for (int i = 0; i < CELLS; i++) /* bf16 between 0.5 and 2 */
		bits[i] = (uint16_t)(0x3f00 + (i * 37 + seed * 11) % 0x100);
	backend_put(k, to, bits, sizeof bits);
}

static struct scene open_scene(enum choices_mode mode)
{
	struct scene s = { .k = open_backend("cuda:bf16") };
	void **arrays[] = { &s.x, &s.w, &s.y, &s.pre };
	for (int i = 0; i < 4; i++)
		*arrays[i] = backend_alloc(s.k, CELLS * sizeof(uint16_t));
	s.dw = backend_alloc(s.k, CELLS * sizeof *s.dw);
	s.sums = backend_alloc(s.k, EDGE * sizeof *s.sums);
	put_numbers(s.k, s.x, 1);
	put_numbers(s.k, s.w, 2);
	choices_set_mode(backend_choices(s.k), mode);
	return s;
}

static void forward(const struct scene *s)
{
	backend_ops(s->k)->linear_fwd(s->k, s->y, s->x, s->w, NULL, EDGE, EDGE, EDGE);
}

static void gelu_forward(const struct scene *s)
{
	backend_ops(s->k)->linear_gelu_fwd(s->k, s->y, s->pre, s->x, s->w, NULL, EDGE, EDGE, EDGE);
}

static void weight_gradient(const struct scene *s, float *sums)
{
	backend_ops(s->k)->linear_bwd_weight(s->k, s->dw, sums, s->x, s->w, EDGE, EDGE, EDGE, true);
}

static void get_y(const struct scene *s, uint16_t y[CELLS])
{
	assert_int_equal(backend_get(s->k, y, s->y, CELLS * sizeof *y, NULL), 0);
}

/* The results of forward() by one algorithm. */
static void result_of(int algorithm, uint16_t y[CELLS])
{
	const int algorithms = double_blas.algorithms;
	struct scene s = open_scene(CHOICES_FIXED);
	double_blas.algorithms = algorithm + 1;
	double_blas.refused = (1u << algorithm) - 1;
	forward(&s);
	assert_int_equal(double_blas.ran, algorithm);
	get_y(&s, y);
	double_blas.refused = 0;
	double_blas.algorithms = algorithms;
	backend_close(s.k);
}

/* The algorithm of the last call, after `call` ran once more. */
static int algorithm_of(const struct scene *s, void (*call)(const struct scene *s))
{
	const int before = double_blas.runs;
	call(s);
	assert_int_equal(backend_sync(s->k, NULL), 0);
	assert_int_equal(double_blas.runs, before + 1);
	return double_blas.ran;
}

static void the_fastest_algorithm_is_chosen_and_kept(void **state)
{
	(void)state;
	uint16_t best[CELLS], y[CELLS];
	result_of(BEST, best);
	struct scene s = open_scene(CHOICES_MEASURED);
	forward(&s);
	get_y(&s, y);
	assert_int_equal(double_blas.ran, BEST);
	assert_memory_equal(y, best, sizeof y);
	const int asked = double_blas.asked, checks = double_blas.checks;
	assert_int_equal(algorithm_of(&s, forward), BEST);
	/* the table of plans had it */
	assert_int_equal(double_blas.asked, asked);
	assert_int_equal(double_blas.checks, checks);
	backend_close(s.k);
}

/* Two runs of each, and at most five turns of at most twenty runs of those that are close. */
static void the_runs_of_a_measurement_are_bounded(void **state)
{
	(void)state;
	const int close = 3; /* 7, 9; not 10 us */
	int runs = 0;
	/* If this process stands still for half a second, no turn begins; then measure again. */
	for (int i = 0; i < 10 && runs <= 2 * BLAS_ALGORITHMS + 1; i++) {
		struct scene s = open_scene(CHOICES_MEASURED);
		const int before = double_blas.runs;
		forward(&s);
		runs = double_blas.runs - before;
		backend_close(s.k);
	}
	assert_true(runs > 2 * BLAS_ALGORITHMS + 1);
	assert_true(runs <= 2 * BLAS_ALGORITHMS + 5 * 20 * close + 1);
}

/* Without a mode that measures, as with job.deterministic, the library's first runs. */
static void nothing_is_measured_in_the_fixed_mode(void **state)
{
	(void)state;
	struct scene s = open_scene(CHOICES_FIXED);
	assert_int_equal(algorithm_of(&s, forward), FIRST);
	gelu_forward(&s);
	weight_gradient(&s, s.sums);
	assert_int_equal(backend_sync(s.k, NULL), 0);
	assert_int_equal(double_blas.runs, 3);
	backend_close(s.k);
}

/* The first algorithm stays unless another one is faster by more than a hundredth. */
static void a_tie_is_the_librarys(void **state)
{
	(void)state;
	for (int i = 0; i < BLAS_ALGORITHMS; i++)
		double_blas.seconds[i] = i == BEST ? 9.95e-6 : 10e-6;
	struct scene s = open_scene(CHOICES_MEASURED);
	forward(&s);
	assert_int_equal(algorithm_of(&s, forward), FIRST);
	backend_close(s.k);
}

/* A gradient is the same whether it was measured or not, also where it had a value before. */
static void measuring_adds_nothing_to_a_gradient(void **state)
{
	(void)state;
	float dw[2][CELLS], sums[2][EDGE];
	for (int measured = 0; measured < 2; measured++) {
		struct scene s = open_scene(measured ? CHOICES_PROPOSED : CHOICES_FIXED);
		put_all(s.k, s.dw, 0.25f, CELLS);
		put_all(s.k, s.sums, 0.5f, EDGE);
		weight_gradient(&s, s.sums);
		weight_gradient(&s, NULL);
		assert_int_equal(backend_get(s.k, dw[measured], s.dw, sizeof dw[0], NULL), 0);
		assert_int_equal(backend_get(s.k, sums[measured], s.sums, sizeof sums[0], NULL), 0);
		assert_true(measured ? double_blas.runs > 20 : double_blas.runs == 2);
		backend_close(s.k);
	}
	assert_memory_equal(dw[0], dw[1], sizeof dw[0]);
	assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
}

/* The first micro-batch sets its gradients, and they are measured where they are. */
static void a_gradient_that_is_set_is_measured_in_place(void **state)
{
	(void)state;
	float dw[2][CELLS], sums[2][EDGE];
	for (int measured = 0; measured < 2; measured++) {
		struct scene s = open_scene(measured ? CHOICES_PROPOSED : CHOICES_FIXED);
		double_blas.runs = 0;
		put_all(s.k, s.dw, 0.25f, CELLS);
		put_all(s.k, s.sums, 0.5f, EDGE);
		backend_ops(s.k)->linear_bwd_weight(s.k, s.dw, s.sums, s.x, s.w, EDGE, EDGE, EDGE,
						    false);
		assert_int_equal(backend_get(s.k, dw[measured], s.dw, sizeof dw[0], NULL), 0);
		assert_int_equal(backend_get(s.k, sums[measured], s.sums, sizeof sums[0], NULL), 0);
		assert_true(measured ? double_blas.runs > 20 : double_blas.runs == 1);
		backend_close(s.k);
	}
	assert_memory_equal(dw[0], dw[1], sizeof dw[0]);
	assert_memory_equal(sums[0], sums[1], sizeof sums[0]);
}

/* The scratch that takes the sums is aligned better than the gradient (doubles/blaslt.c checks). */
static void gradients_off_their_alignment_are_measured(void **state)
{
	(void)state;
	enum { OFF = 16, ROWS = 32 };
	struct scene s = open_scene(CHOICES_MEASURED);
	backend_ops(s.k)->linear_bwd_weight(s.k, s.dw + OFF, s.sums + OFF, s.x, s.w, EDGE, ROWS,
					    ROWS, true);
	assert_int_equal(backend_sync(s.k, NULL), 0);
	assert_true(double_blas.runs > BLAS_ALGORITHMS);
	backend_close(s.k);
}

/* The whole time counts: an epilogue that costs more than the separate kernel is left out. */
static void an_epilogue_is_used_if_it_is_faster_than_an_op(void **state)
{
	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		double_blas.epilogue = slow ? 2e-6 : 0.5e-6; /* a kernel takes 1e-6 */
		struct scene s = open_scene(CHOICES_MEASURED);
		gelu_forward(&s);
		const char *key, *note;
		assert_true(choices_at(backend_choices(s.k), 0, &key, &note));
		assert_non_null(strstr(key, " gelu"));
		assert_non_null(strstr(note, slow ? "epilogue 9.0 us" : "epilogue 7.5 us"));
		assert_non_null(strstr(note, "separately 8.0 us"));
		assert_int_equal(algorithm_of(&s, gelu_forward), BEST);
		backend_close(s.k);
	}
}

/* Otherwise the separate product would run by the library's first algorithm, which was not the one
 * that won. */
static void the_product_before_a_separate_op_is_proposed_too(void **state)
{
	(void)state;
	double_blas.epilogue = 2e-6;
	struct scene s = open_scene(CHOICES_PROPOSED);
	struct buf text = BUF_INIT;
	gelu_forward(&s);
	choices_write(backend_choices(s.k), &text);
	choices_agree(backend_choices(s.k), text.data, text.len);
	assert_int_equal(algorithm_of(&s, gelu_forward), BEST);
	buf_fini(&text);
	backend_close(s.k);
}

/* What was measured counts for longer than the one use in which an algorithm is refused. */
static void a_refusal_does_not_replace_a_proposal(void **state)
{
	(void)state;
	struct buf text = BUF_INIT;
	struct scene s = open_scene(CHOICES_PROPOSED);
	double_blas.refused = 1u << FIRST;
	forward(&s);
	assert_int_equal(double_blas.ran, 1); /* the library's second */
	choices_write(backend_choices(s.k), &text);
	choices_agree(backend_choices(s.k), text.data, text.len);
	assert_int_equal(algorithm_of(&s, forward), BEST);
	buf_fini(&text);
	backend_close(s.k);
}

static void the_machine_has_the_librarys_version(void **state)
{
	(void)state;
	struct scene s = open_scene(CHOICES_FIXED);
	char version[32];
	snprintf(version, sizeof version, "cublaslt %d", CUBLAS_VERSION);
	assert_non_null(strstr(choices_machine(backend_choices(s.k)), version));
	backend_close(s.k);
}

/* Which of the two runs is seen by the time that a call takes. */
static void the_epilogue_that_was_chosen_runs(void **state)
{
	(void)state;
	for (int slow = 0; slow < 2; slow++) {
		double_blas.epilogue = slow ? 2e-6 : 0.5e-6;
		struct scene s = open_scene(CHOICES_MEASURED);
		cudaEvent_t from, to;
		float ms;
		gelu_forward(&s);
		gelu_forward(&s);
		cudaEventCreate(&from);
		cudaEventCreate(&to);
		cudaEventRecord(from, backend_stream(s.k));
		gelu_forward(&s);
		cudaEventRecord(to, backend_stream(s.k));
		cudaEventSynchronize(to);
		assert_int_equal(cudaEventElapsedTime(&ms, from, to), cudaSuccess);
		assert_true(ms > (slow ? 7.9e-3f : 7.4e-3f) && ms < (slow ? 8.1e-3f : 7.6e-3f));
		cudaEventDestroy(from);
		cudaEventDestroy(to);
		backend_close(s.k);
	}
}

/* A process that has the choices of another one measures nothing. */
static void the_next_process_measures_nothing(void **state)
{
	(void)state;
	char folder[] = "/tmp/test_cuda_choices.XXXXXX", path[64];
	assert_non_null(mkdtemp(folder));
	snprintf(path, sizeof path, "%s/choices", folder);
	struct scene s = open_scene(CHOICES_MEASURED);
	forward(&s);
	gelu_forward(&s);
	weight_gradient(&s, s.sums);
	weight_gradient(&s, NULL);
	assert_int_equal(choices_save(backend_choices(s.k), path, NULL), 0);
	backend_close(s.k);
	s = open_scene(CHOICES_MEASURED);
	assert_int_equal(choices_load(backend_choices(s.k), path, NULL), 0);
	assert_int_equal(algorithm_of(&s, forward), BEST);
	assert_int_equal(algorithm_of(&s, gelu_forward), BEST);
	backend_close(s.k);
	s = open_scene(CHOICES_PROPOSED); /* as the first step of a run */
	assert_int_equal(choices_load(backend_choices(s.k), path, NULL), 0);
	assert_int_equal(algorithm_of(&s, forward), FIRST);
	assert_int_equal(algorithm_of(&s, gelu_forward), FIRST);
	backend_close(s.k);
	file_remove_tree(folder);
}

/* Whatever a file says, an algorithm runs only if the library supports it. */
static void a_choice_that_the_library_does_not_know_is_not_used(void **state)
{
	(void)state;
	struct scene s = open_scene(CHOICES_MEASURED), t = open_scene(CHOICES_FIXED);
	struct choices *from = backend_choices(s.k), *to = backend_choices(t.k);
	unsigned char value[CHOICES_VALUE];
	const char *key, *note;
	size_t length;
	forward(&s);
	assert_true(choices_at(from, 0, &key, &note));
	assert_true(choices_find(from, key, value, sizeof value, &length));
	value[1 + sizeof(uint64_t)] ^= 0xff; /* of the problem (doubles/blaslt.c) */
	choices_set_mode(to, CHOICES_MEASURED);
	choices_put(to, key, value, length);
	choices_set_mode(to, CHOICES_FIXED);
	forward(&t);
	assert_int_equal(backend_sync(t.k, NULL), 0);
	assert_int_equal(double_blas.ran, FIRST);
	backend_close(s.k);
	backend_close(t.k);
}

/* Each rank finds another algorithm fastest; after they agreed, all use the first rank's. Until
 * then all use the library's first. */
static void ranks_use_the_same_algorithm(void **state)
{
	(void)state;
	enum { RANKS = 3 };
	struct scene s[RANKS];
	uint16_t y[RANKS][CELLS];
	struct buf text = BUF_INIT;
	for (int r = 0; r < RANKS; r++) {
		s[r] = open_scene(CHOICES_PROPOSED);
		for (int i = 0; i < BLAS_ALGORITHMS; i++)
			double_blas.seconds[i] = i == r + 1 ? 5e-6 : 10e-6;
		forward(&s[r]);
		assert_int_equal(double_blas.ran, FIRST);
		const int runs = double_blas.runs;
		forward(&s[r]); /* is not measured again */
		assert_int_equal(double_blas.runs, runs + 1);
		get_y(&s[r], y[r]);
		assert_memory_equal(y[r], y[0], sizeof y[0]);
	}
	choices_write(backend_choices(s[0].k), &text);
	for (int r = 0; r < RANKS; r++) {
		choices_agree(backend_choices(s[r].k), text.data, text.len);
		assert_int_equal(algorithm_of(&s[r], forward), 1);
		get_y(&s[r], y[r]);
		assert_memory_equal(y[r], y[0], sizeof y[0]);
		gelu_forward(&s[r]); /* a product that is new after it is not measured */
	}
	for (int r = 0; r < RANKS; r++)
		backend_close(s[r].k);
	buf_fini(&text);
}

static void an_algorithm_that_is_refused_at_launch_is_replaced(void **state)
{
	(void)state;
	uint16_t y[CELLS], expected[CELLS];
	result_of(SECOND, expected);
	struct scene s = open_scene(CHOICES_MEASURED);
	forward(&s);
	double_blas.refused = 1u << BEST | 1u << 0 | 1u << 1;
	forward(&s);
	get_y(&s, y);
	assert_int_equal(double_blas.ran, SECOND);
	assert_memory_equal(y, expected, sizeof y);
	const int asked = double_blas.asked;
	assert_int_equal(algorithm_of(&s, forward), SECOND); /* the refusal is remembered */
	assert_int_equal(double_blas.asked, asked);
	backend_close(s.k);
}

/* Nothing else is left than our own kernel, for any mode. */
static void products_of_which_all_algorithms_are_refused_use_the_fallback(void **state)
{
	(void)state;
	static const enum choices_mode modes[] = { CHOICES_FIXED, CHOICES_MEASURED,
						   CHOICES_PROPOSED };
	for (int i = 0; i < 3; i++) {
		struct scene s = open_scene(modes[i]);
		float dw[CELLS];
		const int before = double_blas.runs;
		put_all(s.k, s.dw, 1, CELLS);
		double_blas.refused = (1u << BLAS_ALGORITHMS) - 1;
		weight_gradient(&s, NULL);
		assert_int_equal(backend_get(s.k, dw, s.dw, sizeof dw, NULL), 0);
		for (int at = 0; at < CELLS; at++)
			assert_true(dw[at] > 1 + EDGE * 0.25f && dw[at] < 1 + EDGE * 4);
		assert_int_equal(double_blas.runs, before);
		double_blas.refused = 0;
		backend_close(s.k);
	}
}

static void nothing_is_measured_while_a_graph_is_recorded(void **state)
{
	(void)state;
	struct scene s = open_scene(CHOICES_MEASURED);
	struct backend_graph *graph;
	assert_int_equal(backend_sync(s.k, NULL), 0);
	for (int i = 1; i <= 5; i++) {
		assert_true(backend_graph_begin(s.k));
		forward(&s);
		assert_int_equal(backend_graph_end(s.k, &graph, NULL), 0);
		assert_int_equal(double_blas.runs, i);
		backend_graph_replay(s.k, graph);
		assert_int_equal(backend_sync(s.k, NULL), 0);
		assert_int_equal(double_blas.runs, i);
		backend_graph_free(s.k, graph);
	}
	forward(&s);
	assert_int_equal(algorithm_of(&s, forward), BEST);
	backend_close(s.k);
}

/* Zeros are faster than numbers. */
static void zeros_are_not_measured(void **state)
{
	(void)state;
	struct scene s = open_scene(CHOICES_MEASURED);
	backend_zero(s.k, s.x, CELLS * sizeof(uint16_t));
	forward(&s);
	assert_int_equal(double_blas.runs, 1);
	put_numbers(s.k, s.x, 1);
	forward(&s);
	assert_true(double_blas.runs > BLAS_ALGORITHMS);
	assert_int_equal(algorithm_of(&s, forward), BEST);
	backend_close(s.k);
}

/* Not at every use: looking waits for the device. */
static void operands_that_stay_zero_are_looked_at_a_few_times(void **state)
{
	(void)state;
	struct scene s = open_scene(CHOICES_MEASURED);
	backend_zero(s.k, s.x, CELLS * sizeof(uint16_t));
	for (int i = 0; i < 4; i++)
		forward(&s);
	put_numbers(s.k, s.x, 1);
	assert_int_equal(algorithm_of(&s, forward), FIRST);
	backend_close(s.k);
}

/* The sizes of experts' groups change with every batch. */
static void groups_of_experts_are_not_measured(void **state)
{
	(void)state;
	enum { ROWS = 2048, BYTES = ROWS * 8 * 2 };
	struct scene s = open_scene(CHOICES_MEASURED);
	const int64_t rows[] = { ROWS };
	char *x = backend_alloc(s.k, BYTES), *y = backend_alloc(s.k, BYTES);
	for (int at = 0; at < BYTES; at += CELLS * 2)
		put_numbers(s.k, x + at, 3);
	backend_ops(s.k)->grouped_fwd(s.k, y, x, s.w, 64, rows, 0, 1, 8, 8);
	assert_int_equal(backend_sync(s.k, NULL), 0);
	assert_int_equal(double_blas.runs, 1);
	backend_close(s.k);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(the_fastest_algorithm_is_chosen_and_kept),
		TEST(the_runs_of_a_measurement_are_bounded),
		TEST(nothing_is_measured_in_the_fixed_mode),
		TEST(a_tie_is_the_librarys),
		TEST(measuring_adds_nothing_to_a_gradient),
		TEST(a_gradient_that_is_set_is_measured_in_place),
		TEST(gradients_off_their_alignment_are_measured),
		TEST(an_epilogue_is_used_if_it_is_faster_than_an_op),
		TEST(the_product_before_a_separate_op_is_proposed_too),
		TEST(a_refusal_does_not_replace_a_proposal),
		TEST(the_machine_has_the_librarys_version),
		TEST(the_epilogue_that_was_chosen_runs),
		TEST(the_next_process_measures_nothing),
		TEST(a_choice_that_the_library_does_not_know_is_not_used),
		TEST(ranks_use_the_same_algorithm),
		TEST(an_algorithm_that_is_refused_at_launch_is_replaced),
		TEST(products_of_which_all_algorithms_are_refused_use_the_fallback),
		TEST(nothing_is_measured_while_a_graph_is_recorded),
		TEST(zeros_are_not_measured),
		TEST(operands_that_stay_zero_are_looked_at_a_few_times),
		TEST(groups_of_experts_are_not_measured),
	};
	return cmocka_run_group_tests_name("choices of the CUDA backend", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("choices of the CUDA backend")

#endif
