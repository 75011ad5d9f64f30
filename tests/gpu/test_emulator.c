/*
 * Tests the emulator of a GPU (tests/gpu/emulator) and the doubles below it. What lanes exchange has
 * the layout of the PTX ISA. Kernels and streams without needed synchronization fail for some random
 * order, and never fail with it. Misuse is reported by name. Memory, graphs and cuBLASLt's double
 * behave as documented.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_CUDA

#include "tests/gpu/doubles/runtime.h"
#include "tests/gpu/emulator/scenes.h"
#include "tests/unit/patience.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ORDERS = 200 };

/* --- Fragments: each element is looked for by its place in the matrix --------------------- */

static void matrices_load_as_the_isa_defines(void **state)
{
	uint16_t rows[32][8];
	uint32_t out[32][4];
	(void)state;
	for (int i = 0; i < 32 * 8; i++)
		rows[i / 8][i % 8] = (uint16_t)(1000 + i);
	for (int transposed = 0; transposed < 2; transposed++) {
		fragments_ldmatrix(rows, transposed, out);
		for (int m = 0; m < 4; m++)
			for (int i = 0; i < 8; i++)
				for (int j = 0; j < 8; j++) {
					int lane = transposed ? 4 * j + i / 2 : 4 * i + j / 2,
					    half = transposed ? i % 2 : j % 2;
					assert_int_equal(out[lane][m] >> 16 * half & 0xffff,
							 rows[8 * m + i][j]);
				}
	}
}

/* A small integer in 2 bytes; 1 is 0x3f80 in bf16, 0x3c00 in fp16. */
static uint32_t small_number(bool bf16, int x)
{
	static const uint16_t bf[] = { 0, 0x3f80, 0x4000, 0x4040, 0x4080 },
			      fp[] = { 0, 0x3c00, 0x4000, 0x4200, 0x4400 };
	return (uint32_t)(bf16 ? bf : fp)[abs(x)] | (x < 0 ? 0x8000u : 0);
}

static void products_have_the_layout_of_the_isa(void **state)
{
	(void)state;
	for (int bf16 = 0; bf16 < 2; bf16++) {
		uint32_t a[32][4] = { 0 }, b[32][2] = { 0 };
		int x[16][16], y[16][8];
		float d[32][4];
		for (int i = 0; i < 16; i++)
			for (int k = 0; k < 16; k++) {
				int lane = i % 8 * 4 + k % 8 / 2,
				    element = k % 2 + 2 * (i / 8) + 4 * (k / 8);
				x[i][k] = (i * 7 + k * 3) % 9 - 4;
				a[lane][element / 2] |= small_number(bf16, x[i][k])
							<< 16 * (element % 2);
			}
		for (int k = 0; k < 16; k++)
			for (int j = 0; j < 8; j++) {
				int lane = j * 4 + k % 8 / 2, element = k % 2 + 2 * (k / 8);
				y[k][j] = (k * 5 + j) % 7 - 3;
				b[lane][element / 2] |= small_number(bf16, y[k][j])
							<< 16 * (element % 2);
			}
		for (int l = 0; l < 32; l++)
			for (int e = 0; e < 4; e++)
				d[l][e] = (float)(l + 100 * e);
		fragments_mma(bf16, a, b, d);
		for (int i = 0; i < 16; i++)
			for (int j = 0; j < 8; j++) {
				int lane = i % 8 * 4 + j / 2, element = j % 2 + 2 * (i / 8),
				    sum = lane + 100 * element;
				for (int k = 0; k < 16; k++)
					sum += x[i][k] * y[k][j];
				assert_int_equal((int)d[lane][element], sum);
			}
	}
}

/* CUDA C++ Programming Guide, "Warp shuffle functions". */
static int shuffled(enum shuffle kind, int lane, int by, int width)
{
	int begin = lane / width * width, at = lane % width;
	switch (kind) {
	case SHUFFLE:
		return begin + by % width;
	case SHUFFLE_UP:
		return at >= by ? lane - by : lane;
	case SHUFFLE_DOWN:
		return at + by < width ? lane + by : lane;
	default:
		return (at ^ by) < width     ? begin + (at ^ by)
		       : (lane ^ by) < begin ? lane ^ by
					     : lane;
	}
}

static void shuffles_are_as_documented(void **state)
{
	(void)state;
	for (int width = 2; width <= 32; width *= 2)
		for (int by = 0; by < 32; by++)
			for (int kind = SHUFFLE; kind <= SHUFFLE_XOR; kind++) {
				int out[32];
				fragments_shuffle((enum shuffle)kind, by, width, out);
				for (int l = 0; l < 32; l++)
					if (out[l] != shuffled((enum shuffle)kind, l, by, width))
						fail_msg("shuffle %d by %d of width %d: lane %d "
							 "has lane %d's",
							 kind, by, width, l, out[l]);
			}
}

/* --- Dice --------------------------------------------------------------------------------- */

static void missing_synchronization_is_detected(void **state)
{
	(void)state;
	for (int i = 0; i < race_scene_count; i++) {
		int wrong = 0;
		for (int n = 0; n < ORDERS; n++) {
			unsetenv("MUSTER_EMULATE_RACES");
			if (!race_scenes[i].run(true))
				fail_msg("with %s: wrong in order %d", race_scenes[i].name, n);
			setenv("MUSTER_EMULATE_RACES", "0", 1);
			wrong += !race_scenes[i].run(false);
		}
		if (wrong < ORDERS / 20)
			fail_msg("without %s: wrong in %d of %d orders", race_scenes[i].name, wrong,
				 ORDERS);
	}
	unsetenv("MUSTER_EMULATE_RACES");
}

/* --- Misuse ------------------------------------------------------------------------------- */

/* Runs `run` in a process: returns how it ended, and its output in `said`. */
static int end_of(void (*run)(void), char *said, size_t size)
{
	int ends[2], status = 0;
	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		dup2(ends[1], STDERR_FILENO);
		alarm(PATIENCE_S);
		run();
		_exit(0);
	}
	close(ends[1]);
	FILE *words = fdopen(ends[0], "r");
	assert_non_null(words);
	said[fread(said, 1, size - 1, words)] = '\0';
	fclose(words);
	waitpid(pid, &status, 0);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

static void misuse_is_reported_by_name(void **state)
{
	(void)state;
	for (int i = 0; i < misuse_scene_count; i++) {
		char said[1024];
		int rc = end_of(misuse_scenes[i].run, said, sizeof said);
		if (rc != -SIGABRT || strncmp(said, "misuse: ", 8) ||
		    !strstr(said, misuse_scenes[i].text))
			fail_msg("\"%s\": ended with %d: %s", misuse_scenes[i].text, rc, said);
	}
}

static const struct race_scene *raced;

static void race_once(void)
{
	raced->run(false);
}

/* In every order. */
static void races_are_reported_with_their_threads(void **state)
{
	(void)state;
	for (int i = 0; i < race_scene_count; i++) {
		char said[1024];
		raced = &race_scenes[i];
		if (raced->seen && (end_of(race_once, said, sizeof said) != -SIGABRT ||
				    !strstr(said, "with nothing in between that orders them")))
			fail_msg("without %s: %s", raced->name, said);
	}
}

/* --- Memory ------------------------------------------------------------------------------- */

static void memory_is_as_large_as_configured(void **state)
{
	size_t left, all;
	void *a, *b;
	(void)state;
	double_set_memory(1 << 20);
	assert_int_equal(cudaMalloc(&a, 600 << 10), cudaSuccess);
	assert_int_equal(cudaMemGetInfo(&left, &all), cudaSuccess);
	assert_int_equal(all, 1 << 20);
	assert_int_equal(left, 424 << 10);
	assert_int_equal(cudaMalloc(&b, 500 << 10), cudaErrorMemoryAllocation);
	assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
	assert_int_equal(cudaGetLastError(), cudaSuccess);
	assert_int_equal(cudaFree(a), cudaSuccess);
	assert_int_equal(cudaMalloc(&b, 500 << 10), cudaSuccess);
	assert_int_equal(cudaFree(b), cudaSuccess);
	double_set_memory(0);
}

/* --- Graphs ------------------------------------------------------------------------------- */

enum { COUNT = 70 };

struct two {
	cudaStream_t s[2];
	cudaEvent_t fork, join;
	float *x, *host;
};

static void open_two(struct two *t)
{
	for (int i = 0; i < 2; i++)
		assert_int_equal(cudaStreamCreateWithFlags(&t->s[i], cudaStreamNonBlocking),
				 cudaSuccess);
	assert_int_equal(cudaEventCreateWithFlags(&t->fork, cudaEventDisableTiming), cudaSuccess);
	assert_int_equal(cudaEventCreateWithFlags(&t->join, cudaEventDisableTiming), cudaSuccess);
	assert_int_equal(cudaMalloc((void **)&t->x, COUNT * sizeof *t->x), cudaSuccess);
	assert_int_equal(cudaMallocHost((void **)&t->host, COUNT * sizeof *t->host), cudaSuccess);
}

static void close_two(struct two *t)
{
	for (int i = 0; i < 2; i++)
		assert_int_equal(cudaStreamDestroy(t->s[i]), cudaSuccess);
	cudaEventDestroy(t->fork);
	cudaEventDestroy(t->join);
	cudaFree(t->x);
	cudaFreeHost(t->host);
	assert_int_equal(double_open_things(), 0);
}

/* x += 1 on the first stream and += 2 on the second, which begins and ends inside the first one's
 * capture. */
static void capture_two(struct two *t, bool joined)
{
	scenes_add(t->s[0], t->x, COUNT, 1);
	cudaEventRecord(t->fork, t->s[0]);
	cudaStreamWaitEvent(t->s[1], t->fork, 0);
	scenes_add(t->s[1], t->x, COUNT, 2);
	cudaEventRecord(t->join, t->s[1]);
	if (joined)
		cudaStreamWaitEvent(t->s[0], t->join, 0);
	cudaMemcpyAsync(t->host, t->x, COUNT * sizeof *t->x, cudaMemcpyDeviceToHost, t->s[0]);
}

static void graphs_replay_what_was_captured(void **state)
{
	struct two t;
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	(void)state;
	open_two(&t);
	cudaMemsetAsync(t.x, 0, COUNT * sizeof *t.x, t.s[0]);
	assert_int_equal(cudaStreamBeginCapture(t.s[0], cudaStreamCaptureModeThreadLocal),
			 cudaSuccess);
	capture_two(&t, true);
	assert_int_equal(cudaStreamEndCapture(t.s[0], &graph), cudaSuccess);
	assert_int_equal(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
	assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
	for (int n = 1; n <= 50; n++) {
		assert_int_equal(cudaGraphLaunch(exec, t.s[0]), cudaSuccess);
		assert_int_equal(cudaStreamSynchronize(t.s[0]), cudaSuccess);
		for (int i = 0; i < COUNT; i++)
			assert_true(t.host[i] == 3.0f * (float)n);
	}
	assert_int_equal(cudaGraphExecDestroy(exec), cudaSuccess);
	close_two(&t);
}

static void captures_are_refused_as_documented(void **state)
{
	struct two t;
	cudaGraph_t graph;
	void *p;
	(void)state;
	open_two(&t);
	cudaStreamBeginCapture(t.s[0], cudaStreamCaptureModeThreadLocal);
	capture_two(&t, false);
	assert_int_equal(cudaStreamEndCapture(t.s[0], &graph), cudaErrorStreamCaptureUnjoined);
	cudaStreamBeginCapture(t.s[0], cudaStreamCaptureModeThreadLocal);
	assert_int_equal(cudaStreamSynchronize(t.s[0]), cudaErrorStreamCaptureUnsupported);
	assert_int_equal(cudaStreamEndCapture(t.s[0], &graph), cudaErrorStreamCaptureInvalidated);
	cudaStreamBeginCapture(t.s[0], cudaStreamCaptureModeThreadLocal);
	assert_int_equal(cudaMalloc(&p, 1), cudaErrorStreamCaptureUnsupported);
	assert_int_equal(cudaStreamEndCapture(t.s[0], &graph), cudaErrorStreamCaptureInvalidated);
	cudaEventRecord(t.fork, t.s[1]);
	cudaStreamBeginCapture(t.s[0], cudaStreamCaptureModeRelaxed);
	assert_int_equal(cudaStreamWaitEvent(t.s[0], t.fork, 0), cudaErrorStreamCaptureIsolation);
	assert_int_equal(cudaStreamEndCapture(t.s[0], &graph), cudaErrorStreamCaptureInvalidated);
	assert_int_equal(cudaStreamEndCapture(t.s[0], &graph), cudaErrorIllegalState);
	assert_int_equal(cudaDeviceSynchronize(), cudaSuccess);
	close_two(&t);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(matrices_load_as_the_isa_defines),
		cmocka_unit_test(products_have_the_layout_of_the_isa),
		cmocka_unit_test(shuffles_are_as_documented),
		cmocka_unit_test(memory_is_as_large_as_configured),
		cmocka_unit_test(missing_synchronization_is_detected),
		cmocka_unit_test(races_are_reported_with_their_threads),
		cmocka_unit_test(misuse_is_reported_by_name),
		cmocka_unit_test(graphs_replay_what_was_captured),
		cmocka_unit_test(captures_are_refused_as_documented),
	};
	return cmocka_run_group_tests_name("the emulator of a GPU", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("the emulator of a GPU")

#endif
