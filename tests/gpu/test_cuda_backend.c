/*
 * The CUDA backend's memory, streams, graphs and errors, over the doubles of tests/gpu: what
 * kernels/ops.h promises of a backend on a device. The doubles run copies and ops late, in a random
 * order within what streams and events allow.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_CUDA

#include "tests/gpu/cuda_backend.h"
#include "tests/gpu/doubles/runtime.h"

#include <dlfcn.h>

enum { N = 1000 };

/* --- Calls of the runtime that fail on demand --------------------------------------------- */

/* The library finds these functions before those of the double. */

static cudaError_t fail_sync, fail_memset, fail_pinned, fail_event, fail_capture;
static int things_before, waits;
static void *waited_for; /* the stream whose waits count */

static void *real_of(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name);
	assert_non_null(f);
	return f;
}

cudaError_t cudaStreamSynchronize(cudaStream_t s)
{
	cudaError_t (*real)(cudaStream_t);
	*(void **)(void *)&real = real_of("cudaStreamSynchronize");
	cudaError_t rc = real(s);
	waits += s == waited_for;
	return fail_sync != cudaSuccess ? fail_sync : rc;
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t s)
{
	cudaError_t (*real)(void *, int, size_t, cudaStream_t);
	*(void **)(void *)&real = real_of("cudaMemsetAsync");
	return fail_memset != cudaSuccess ? fail_memset : real(p, value, bytes, s);
}

cudaError_t cudaHostAlloc(void **p, size_t bytes, unsigned flags)
{
	cudaError_t (*real)(void **, size_t, unsigned);
	*(void **)(void *)&real = real_of("cudaHostAlloc");
	return fail_pinned != cudaSuccess ? fail_pinned : real(p, bytes, flags);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	cudaError_t (*real)(cudaEvent_t);
	*(void **)(void *)&real = real_of("cudaEventSynchronize");
	return fail_event != cudaSuccess ? fail_event : real(event);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
	cudaError_t (*real)(cudaStream_t, enum cudaStreamCaptureMode);
	*(void **)(void *)&real = real_of("cudaStreamBeginCapture");
	return fail_capture != cudaSuccess ? fail_capture : real(stream, mode);
}

/* The double does not know the errors of broken devices. */
const char *cudaGetErrorString(cudaError_t rc)
{
	return rc == cudaErrorMemoryAllocation ? "out of memory" : "broken";
}

const char *cudaGetErrorName(cudaError_t rc)
{
	return rc == cudaErrorIllegalAddress ? "cudaErrorIllegalAddress" : "another";
}

static int setup(void **state)
{
	(void)state;
	fail_sync = fail_memset = fail_pinned = fail_event = fail_capture = cudaSuccess;
	things_before = double_open_things();
	return 0;
}

/* After any test, nothing of the device may be open. */
static int teardown(void **state)
{
	(void)state;
	double_set_memory(0);
	return double_open_things() == things_before ? 0 : -1;
}

/* --- Opening ------------------------------------------------------------------------------ */

static void it_reports_its_name_and_instruction_set(void **state)
{
	(void)state;
	static const char *const names[] = { "cuda", "cuda:bf16", "cuda:fp16" };
	for (int i = 0; i < 3; i++) {
		struct backend *k = open_backend(names[i]);
		assert_string_equal(backend_ops(k)->name, names[i]);
		assert_int_equal(backend_width(k), i ? 2 : 4);
		assert_false(backend_on_host(k));
		assert_non_null(backend_stream(k));
		backend_close(k);
	}
}

static void it_has_every_op(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda:bf16");
	assert_null(backend_missing_op(backend_ops(k)));
	backend_close(k);
}

static void a_missing_device_is_reported_by_its_index(void **state)
{
	(void)state;
	struct backend *k = NULL;
	struct err e = ERR_INIT;
	assert_int_equal(backend_open_device("cuda", 1, 99, &k, &e), -1);
	assert_int_equal(e.code, ERR_NOTFOUND);
	assert_non_null(strstr(e.text, "99"));
	assert_non_null(strstr(e.text, "CUDA_VISIBLE_DEVICES"));
	assert_null(k);
}

static void it_does_not_open_without_memory_for_scratch_and_workspace(void **state)
{
	(void)state;
	struct backend *k = NULL;
	struct err e = ERR_INIT;
	double_set_memory((size_t)80 << 20); /* less than scratch and workspace */
	assert_int_equal(backend_open("cuda", 1, &k, &e), -1);
	assert_int_equal(e.code, ERR_NOMEM);
	assert_non_null(strstr(e.text, "batch.micro"));
	double_set_memory(0);
	fail_pinned = cudaErrorMemoryAllocation;
	assert_int_equal(backend_open("cuda", 1, &k, &e), -1);
	assert_non_null(strstr(e.text, "pinned"));
}

/* --- Memory ------------------------------------------------------------------------------- */

static void memory_is_zeroed_aligned_and_counted(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda");
	const size_t own = backend_peak(k),
		     sizes[] = { 0, 1, 4097, (size_t)2 << 20, ((size_t)70 << 20) + 3 };
	size_t total = 0;
	char *p[5], byte;
	for (int round = 0; round < 2; round++) {
		for (int i = 0; i < 5; i++) {
			p[i] = backend_alloc(k, sizes[i]);
			assert_non_null(p[i]);
			assert_int_equal((uintptr_t)p[i] % 256, 0);
			total += round ? 0 : sizes[i];
			for (size_t at = 0; at < sizes[i]; at += sizes[i] / 7 + 1) {
				assert_int_equal(backend_get(k, &byte, p[i] + at, 1, NULL), 0);
				assert_int_equal(byte, 0);
				backend_put(k, p[i] + at, "x", 1);
			}
		}
		for (int i = 4; i >= 0; i--)
			backend_free(k, p[i]);
	}
	assert_int_equal(backend_peak(k), own + total);
	backend_close(k);
}

/* Blocks freed in any order become one again, or the last request would find no room. */
static void freed_neighbours_are_joined(void **state)
{
	(void)state;
	enum { PARTS = 48 }; /* more than what is left in the workspace's chunk */
	static const size_t part = (size_t)1 << 20;
	struct backend *k = open_backend("cuda");
	size_t room = (size_t)256 << 20;
	double_set_memory(room);
	void *p[PARTS];
	for (int i = 0; i < PARTS; i++)
		assert_non_null(p[i] = backend_alloc(k, part));
	for (int i = 0; i < PARTS; i++)
		backend_free(k, p[(i * 13 + 5) % PARTS]);
	void *whole = backend_alloc(k, PARTS * part);
	assert_non_null(whole);
	assert_null(backend_alloc(k, room));
	assert_null(backend_alloc(k, SIZE_MAX / 4));
	assert_int_equal(backend_sync(k, NULL),
			 0); /* a refused allocation is no error of the device */
	backend_free(k, whole);
	/* frees an empty chunk first */
	assert_non_null(backend_alloc(k, (size_t)120 << 20));
	backend_close(k);
}

/* --- In the order of the ops -------------------------------------------------------------- */

static void the_source_of_a_put_may_change_at_once(void **state)
{
	(void)state;
	enum { TURNS = 3000 };
	struct backend *k = open_backend("cuda");
	float *p = backend_alloc(k, N * sizeof *p), *sum = backend_alloc(k, N * sizeof *sum);
	for (int i = 1; i <= TURNS; i++) { /* more of them than the ring marks */
		put_all(k, p, (float)(i % 7), N);
		backend_ops(k)->accumulate(k, sum, p, N);
	}
	check_all(k, sum, TURNS / 7 * 21.0f + 1 + 2 + 3 + 4, N);
	backend_close(k);
}

static void a_put_larger_than_the_ring_arrives_whole(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda");
	const size_t count = ((size_t)90 << 20) / sizeof(int32_t) + 11;
	int32_t *host = malloc(count * sizeof *host), *p = backend_alloc(k, count * sizeof *p);
	assert_non_null(host);
	for (size_t i = 0; i < count; i++)
		host[i] = (int32_t)i;
	backend_put(k, p, host, count * sizeof *p);
	memset(host, 0, count * sizeof *host);
	assert_int_equal(backend_get(k, host, p, count * sizeof *p, NULL), 0);
	for (size_t i = 0; i < count; i++)
		if (host[i] != (int32_t)i)
			fail_msg("element %zu is %d", i, host[i]);
	free(host);
	backend_close(k);
}

static void copies_and_zeroing_run_in_the_order_of_ops(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda");
	float *p = backend_alloc(k, N * sizeof *p), *q = backend_alloc(k, N * sizeof *q);
	put_all(k, p, 3, N);
	backend_copy(k, q, p, N * sizeof *p);
	backend_zero(k, p, N * sizeof *p);
	backend_ops(k)->accumulate(k, p, q, N);
	backend_zero(k, q, N / 2 * sizeof *q);
	check_all(k, p, 3, N);
	check_all(k, q, 0, N / 2);
	check_all(k, q + N / 2, 3, N / 2);
	backend_close(k);
}

static void backend_sync_waits_for_ops(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda");
	waited_for = backend_stream(k);
	waits = 0;
	assert_int_equal(backend_sync(k, NULL), 0);
	assert_int_equal(waits, 1);
	backend_close(k);
	waited_for = NULL;
}

/* --- Side copies -------------------------------------------------------------------------- */

/* Offloads an activation, uses its memory for others, and brings it back, in more rounds than there
 * are marks. */
static void side_copies_begin_after_queued_ops_and_can_be_waited_for(void **state)
{
	(void)state;
	enum { ROUNDS = 100 };
	struct backend *k = open_backend("cuda");
	float *p = backend_alloc(k, N * sizeof *p), *one = backend_alloc(k, N * sizeof *one),
	      *host = backend_host_alloc(k, N * sizeof *host);
	assert_non_null(host);
	put_all(k, one, 1, N);
	for (int i = 0; i < ROUNDS; i++) {
		backend_ops(k)->accumulate(k, p, one, N);
		uint64_t out = backend_side_copy(k, host, p, N * sizeof *p);
		backend_side_wait(k, out);
		put_all(k, p, -5, N);
		uint64_t in = backend_side_copy(k, p, host, N * sizeof *p);
		backend_side_wait(k, in);
	}
	check_all(k, p, ROUNDS, N);
	uint64_t out = backend_side_copy(k, host, p, N * sizeof *p);
	assert_int_equal(backend_side_await(k, out, NULL), 0);
	assert_true(host[0] == ROUNDS && host[N - 1] == ROUNDS);
	backend_host_free(k, host);
	backend_close(k);
}

/* By then an old ticket's mark may be a later copy's. */
static void an_old_ticket_can_be_waited_for(void **state)
{
	(void)state;
	enum { COPIES = 150 };
	struct backend *k = open_backend("cuda");
	float *p = backend_alloc(k, N * sizeof *p), *host = backend_host_alloc(k, N * sizeof *host);
	put_all(k, p, 2, N);
	uint64_t first = backend_side_copy(k, host, p, N * sizeof *p);
	for (int i = 0; i < COPIES; i++)
		backend_side_copy(k, host, p, sizeof *p);
	backend_side_wait(k, first);
	assert_int_equal(backend_sync(k, NULL), 0);
	assert_true(host[N - 1] == 2);
	backend_host_free(k, host);
	backend_close(k);
}

/* The copy must not read the next owner's zeros. */
static void memory_is_not_reused_before_a_side_copy_has_read_it(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda");
	for (int i = 0; i < 20; i++) {
		float *p = backend_alloc(k, N * sizeof *p),
		      *host = backend_host_alloc(k, N * sizeof *host);
		put_all(k, p, 7, N);
		backend_side_copy(k, host, p, N * sizeof *p);
		backend_free(k, p);
		p = backend_alloc(k, N * sizeof *p);
		put_all(k, p, 1, N);
		assert_int_equal(backend_sync(k, NULL), 0);
		assert_true(host[0] == 7 && host[N - 1] == 7);
		backend_host_free(k, host);
		backend_free(k, p);
	}
	backend_close(k);
}

/* --- Graphs ------------------------------------------------------------------------------- */

static void a_graph_runs_when_it_is_replayed_and_not_before(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda");
	struct backend_graph *t;
	float *sum = backend_alloc(k, N * sizeof *sum), *x = backend_alloc(k, N * sizeof *x),
	      *y = backend_alloc(k, N * sizeof *y);
	put_all(k, x, 2, N);
	assert_true(backend_graph_begin(k));
	backend_copy(k, y, x, N * sizeof *x);
	backend_ops(k)->accumulate(k, y, x, N);
	backend_ops(k)->accumulate(k, sum, y, N);
	backend_zero(k, y, N * sizeof *y);
	assert_int_equal(backend_graph_end(k, &t, NULL), 0);
	check_all(k, sum, 0, N);
	for (int i = 0; i < 5; i++)
		backend_graph_replay(k, t);
	check_all(k, sum, 20, N);
	put_all(k, x, 1, N);
	backend_graph_replay(k, t);
	check_all(k, sum, 22, N);
	check_all(k, y, 0, N);
	backend_graph_free(k, t);
	backend_close(k);
}

static void products_can_be_recorded(void **state)
{
	(void)state;
	enum { EDGE = 64 };
	struct backend *k = open_backend("cuda:bf16");
	const size_t bytes = EDGE * EDGE * backend_width(k);
	struct backend_graph *t;
	char *x = backend_alloc(k, bytes), *w = backend_alloc(k, bytes),
	     *y = backend_alloc(k, bytes), once[EDGE * EDGE * 2], again[EDGE * EDGE * 2];
	float *ones = backend_alloc(k, EDGE * EDGE * sizeof *ones),
	      *dw = backend_alloc(k, EDGE * EDGE * sizeof *dw);
	put_all(k, ones, 1, EDGE * EDGE);
	backend_ops(k)->fp32_to_storage(k, x, ones, EDGE * EDGE, NULL, 0);
	backend_ops(k)->fp32_to_storage(k, w, ones, EDGE * EDGE, NULL, 0);
	for (int recorded = 0; recorded < 2; recorded++) {
		assert_true(!recorded || backend_graph_begin(k));
		backend_ops(k)->linear_fwd(k, y, x, w, NULL, EDGE, EDGE, EDGE);
		backend_ops(k)->linear_bwd_weight(k, dw, ones, x, y, EDGE, EDGE, EDGE, true);
		assert_true(!recorded || backend_graph_end(k, &t, NULL) == 0);
		assert_int_equal(backend_get(k, once, y, bytes, NULL), 0);
	}
	backend_zero(k, y, bytes);
	backend_graph_replay(k, t);
	assert_int_equal(backend_get(k, again, y, bytes, NULL), 0);
	assert_memory_equal(once, again, bytes);
	check_all(k, dw, 2 * EDGE * EDGE, EDGE * EDGE);
	backend_graph_free(k, t);
	backend_close(k);
}

/* A call that cannot be recorded spoils the graph, but not the backend. */
static void a_graph_that_fails_leaves_the_backend_as_it_was(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda");
	struct backend_graph *t = NULL;
	struct err e = ERR_INIT;
	float *p = backend_alloc(k, N * sizeof *p), *x = backend_alloc(k, N * sizeof *x), back;
	put_all(k, x, 1, N);
	assert_true(backend_graph_begin(k));
	backend_ops(k)->accumulate(k, p, x, N);
	backend_put(k, p, &(float){ 9 }, sizeof *p);
	assert_int_equal(backend_get(k, &back, p, sizeof back, &e), -1);
	assert_non_null(strstr(e.text, "while a graph is recorded"));
	assert_int_equal(backend_sync(k, &e), -1);
	assert_int_equal(backend_graph_end(k, &t, &e), -1);
	assert_non_null(strstr(e.text, "backend_put"));
	assert_null(t);
	check_all(k, p, 0, N);
	backend_ops(k)->accumulate(k, p, x, N);
	check_all(k, p, 1, N);
	backend_close(k);
}

/* --- Errors ------------------------------------------------------------------------------- */

static void an_error_of_the_device_is_reported_and_stays(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda");
	struct err first = ERR_INIT, second = ERR_INIT;
	float *p = backend_alloc(k, N * sizeof *p), back;
	backend_ops(k)->accumulate(k, p, p, N);
	fail_sync = cudaErrorIllegalAddress;
	assert_int_equal(backend_sync(k, &first), -1);
	fail_sync = cudaSuccess;
	assert_non_null(strstr(first.text, "CUDA device 0"));
	assert_non_null(strstr(first.text, "accumulate"));
	assert_non_null(strstr(first.text, "cudaErrorIllegalAddress"));
	assert_non_null(strstr(first.text, "CUDA_LAUNCH_BLOCKING"));
	backend_ops(k)->accumulate(k, p, p, N);
	assert_int_equal(backend_get(k, &back, p, sizeof back, &second), -1);
	assert_string_equal(first.text, second.text);
	assert_false(backend_graph_begin(k));
	backend_close(k);
}

static void a_failure_names_the_last_op_wherever_it_shows(void **state)
{
	(void)state;
	for (int at = 0; at < 2; at++) {
		struct backend *k = open_backend("cuda");
		struct err e = ERR_INIT;
		float *p = backend_alloc(k, N * sizeof *p),
		      *here = backend_host_alloc(k, sizeof *here);
		backend_ops(k)->accumulate(k, p, p, N);
		uint64_t ticket = backend_side_copy(k, here, p, sizeof *here);
		fail_event = at ? cudaErrorECCUncorrectable : cudaSuccess;
		fail_capture = cudaErrorECCUncorrectable;
		if (at)
			assert_int_equal(backend_side_await(k, ticket, &e), -1);
		assert_false(backend_graph_begin(k));
		fail_event = fail_capture = cudaSuccess;
		assert_int_equal(backend_get(k, NULL, NULL, 0, &e), -1);
		assert_int_equal(e.code, ERR_DEVICE);
		assert_non_null(strstr(e.text, "queued up to accumulate"));
		backend_host_free(k, here);
		backend_close(k);
	}
}

static void a_device_that_does_not_record_has_not_failed(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda");
	fail_capture = cudaErrorNotSupported;
	assert_false(backend_graph_begin(k));
	fail_capture = cudaSuccess;
	assert_int_equal(backend_sync(k, NULL), 0);
	backend_close(k);
}

static void the_first_call_that_failed_is_reported_by_name(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda");
	struct err e = ERR_INIT;
	float *p = backend_alloc(k, N * sizeof *p);
	fail_memset = cudaErrorECCUncorrectable;
	backend_zero(k, p, sizeof *p);
	fail_memset = cudaErrorInvalidValue;
	backend_zero(k, p, sizeof *p);
	fail_memset = cudaSuccess;
	assert_int_equal(backend_sync(k, &e), -1);
	assert_non_null(strstr(e.text, "backend_zero"));
	assert_non_null(strstr(e.text, "drain the node"));
	backend_close(k);
}

/* --- Tallies ------------------------------------------------------------------------------ */

static void a_tally_is_that_of_the_host(void **state)
{
	(void)state;
	static const int counts[] = { 0, 1, 255, 257, 9001 };
	enum { MOST = 9001 };
	static uint32_t x[MOST];
	struct backend *k = open_backend("cuda:bf16");
	struct tally *at = backend_alloc(k, sizeof *at), got;
	void *there = backend_alloc(k, sizeof x);
	for (uint32_t i = 0; i < MOST; i++)
		x[i] = i * 2654435761u;
	backend_put(k, there, x, sizeof x);
	for (int i = 0; i < 5; i++)
		for (enum number_format f = NUMBER_FP32; f <= NUMBER_FP16; f++) {
			struct tally expected = { .sum = 1, .weighted = 2, .bad = 3 };
			backend_put(k, at, &expected, sizeof expected);
			backend_tally(k, at, there, counts[i], f, 77);
			backend_tally_host(&expected, x, counts[i], f, 77, 1);
			assert_int_equal(backend_get(k, &got, at, sizeof got, NULL), 0);
			assert_memory_equal(&got, &expected, sizeof got);
		}
	assert_int_equal(backend_format(k), NUMBER_BF16);
	backend_free(k, there);
	backend_free(k, at);
	backend_close(k);
}

int main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		TEST(it_reports_its_name_and_instruction_set),
		TEST(it_has_every_op),
		TEST(a_missing_device_is_reported_by_its_index),
		TEST(it_does_not_open_without_memory_for_scratch_and_workspace),
		TEST(memory_is_zeroed_aligned_and_counted),
		TEST(freed_neighbours_are_joined),
		TEST(the_source_of_a_put_may_change_at_once),
		TEST(a_put_larger_than_the_ring_arrives_whole),
		TEST(copies_and_zeroing_run_in_the_order_of_ops),
		TEST(backend_sync_waits_for_ops),
		TEST(side_copies_begin_after_queued_ops_and_can_be_waited_for),
		TEST(an_old_ticket_can_be_waited_for),
		TEST(memory_is_not_reused_before_a_side_copy_has_read_it),
		TEST(a_graph_runs_when_it_is_replayed_and_not_before),
		TEST(products_can_be_recorded),
		TEST(a_graph_that_fails_leaves_the_backend_as_it_was),
		TEST(an_error_of_the_device_is_reported_and_stays),
		TEST(a_failure_names_the_last_op_wherever_it_shows),
		TEST(a_device_that_does_not_record_has_not_failed),
		TEST(the_first_call_that_failed_is_reported_by_name),
		TEST(a_tally_is_that_of_the_host),
	};
	return cmocka_run_group_tests_name("the CUDA backend over doubles", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("the CUDA backend over doubles")

#endif
