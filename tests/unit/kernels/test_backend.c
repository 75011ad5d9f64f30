/* Tests backends, except what their ops compute: names, the table of ops, memory and its account,
 * and the rate of products. */
#include "kernels/backend.h"
#include "kernels/cpu/blas.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void unknown_backends_and_thread_counts_are_refused(void **state)
{
	(void)state;
	struct backend *k = NULL;
	struct err e = ERR_INIT;
	assert_int_equal(backend_open("cuba", 1, &k, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_non_null(strstr(e.text, "cuba"));
	assert_int_equal(backend_open("cpu", 0, &k, &e), -1);
	assert_non_null(strstr(e.text, "0 threads"));
	assert_int_equal(backend_open("cpu", 1 << 20, &k, &e), -1);
	assert_int_equal(backend_open("cpu:fp15", 1, &k, &e), -1);
	assert_non_null(strstr(e.text, "cpu:fp15"));
	assert_int_equal(backend_open("cpu:", 1, &k, &e), -1);
	assert_int_equal(backend_open("cp:bf16", 1, &k, &e), -1);
	assert_int_equal(backend_open("reference64:bf16", 1, &k, &e), -1);
	assert_non_null(strstr(e.text, "reference64:bf16"));
	assert_null(k);
	backend_close(NULL);
}

static void a_backend_has_its_name_and_threads(void **state)
{
	(void)state;
	const char *names[] = { "reference", "cpu", "reference:fp16", "cpu:bf16" };
	for (int i = 0; i < 4; i++) {
		struct backend *k;
		assert_int_equal(backend_open(names[i], 3, &k, NULL), 0);
		assert_string_equal(backend_ops(k)->name, names[i]);
		assert_int_equal(backend_threads(k), 3);
		assert_int_equal(backend_width(k), strchr(names[i], ':') ? 2 : 4);
		backend_close(k);
	}
	assert_true(cpu_blas_name()[0]);
}

static void every_backend_has_every_op(void **state)
{
	(void)state;
	const char *names[] = { "reference", "reference64", "cpu", "cpu:bf16", "cpu:fp16" };
	for (int i = 0; i < 5; i++) {
		struct backend *k;
		assert_int_equal(backend_open(names[i], 1, &k, NULL), 0);
		assert_null(backend_missing_op(backend_ops(k)));
		backend_close(k);
	}
}

static void a_missing_op_is_reported_by_its_name(void **state)
{
	(void)state;
	struct backend *k;
	assert_int_equal(backend_open("reference", 1, &k, NULL), 0);
	struct ops o = *backend_ops(k);
#define OP(op, operands, form, parameters) \
	o.op = NULL; \
	assert_string_equal(backend_missing_op(&o), #op); \
	o.op = backend_ops(k)->op;
#include "kernels/ops_table.h"
	assert_null(backend_missing_op(&o));
	backend_close(k);
}

/* --- Tallies --- */

static struct tally tally_of(struct backend *k, const void *x, int64_t n, enum number_format format,
			     uint64_t first)
{
	struct tally t = { 0 };
	backend_tally(k, &t, x, n, format, first);
	return t;
}

static void a_tally_is_that_of_plain_sums_for_any_number_of_threads(void **state)
{
	(void)state;
	enum { N = 150001 };
	static uint32_t x[N];
	uint32_t next = 1;
	for (int i = 0; i < N; i++)
		x[i] = next = next * 1664525u + 1013904223u;
	for (int half = 0; half < 2; half++) {
		struct tally expected = { 0 };
		for (int i = 0; i < N; i++) {
			uint64_t bits = half ? ((uint16_t *)x)[i] : x[i],
				 mask = half ? 0x7c00 : 0x7f800000;
			expected.sum += bits;
			expected.weighted += bits * (uint64_t)(i + 1);
			expected.bad += (bits & mask) == mask;
		}
		for (int threads = 1; threads <= 3; threads++) {
			struct backend *k;
			assert_int_equal(backend_open("cpu", threads, &k, NULL), 0);
			struct tally t = tally_of(k, x, N, half ? NUMBER_FP16 : NUMBER_FP32, 0);
			assert_memory_equal(&t, &expected, sizeof t);
			backend_close(k);
		}
	}
}

static void tallies_of_parts_add_up(void **state)
{
	(void)state;
	float x[100];
	struct backend *k;
	assert_int_equal(backend_open("cpu", 2, &k, NULL), 0);
	for (int i = 0; i < 100; i++)
		x[i] = (float)i / 7;
	struct tally whole = tally_of(k, x, 100, NUMBER_FP32, 0),
		     parts = tally_of(k, x, 33, NUMBER_FP32, 0);
	backend_tally(k, &parts, x + 33, 67, NUMBER_FP32, 33);
	backend_tally(k, &parts, x, 0, NUMBER_FP32, 100);
	assert_memory_equal(&whole, &parts, sizeof whole);
	backend_close(k);
}

static void a_tally_shows_each_flipped_bit_and_each_swap(void **state)
{
	(void)state;
	uint32_t x[16];
	struct backend *k;
	assert_int_equal(backend_open("cpu", 1, &k, NULL), 0);
	for (uint32_t i = 0; i < 16; i++)
		x[i] = 0x3f800000 + i * i;
	const struct tally was = tally_of(k, x, 16, NUMBER_FP32, 0);
	for (int bit = 0; bit < 16 * 32; bit++) {
		x[bit / 32] ^= 1u << bit % 32;
		struct tally t = tally_of(k, x, 16, NUMBER_FP32, 0);
		assert_true(t.sum != was.sum);
		x[bit / 32] ^= 1u << bit % 32;
	}
	uint32_t swapped = x[3];
	x[3] = x[4];
	x[4] = swapped;
	struct tally t = tally_of(k, x, 16, NUMBER_FP32, 0);
	assert_true(t.sum == was.sum && t.weighted != was.weighted);
	backend_close(k);
}

static void a_tally_counts_nan_and_infinity_in_each_format(void **state)
{
	(void)state;
	static const uint32_t words[] = { 0,          0x80000000, 0x7f7fffff, 0x7f800000,
					  0xff800000, 0x7fc00000, 0xffffffff, 1 };
	static const uint16_t bf16[] = { 0, 0x7f7f, 0x7f80, 0xff80, 0x7fc0, 0x7c00 },
			      fp16[] = { 0, 0x7bff, 0x7c00, 0xfc00, 0x7e00, 0x7f7f };
	struct backend *k;
	assert_int_equal(backend_open("cpu", 1, &k, NULL), 0);
	assert_int_equal(tally_of(k, words, 8, NUMBER_FP32, 0).bad, 4);
	assert_int_equal(tally_of(k, bf16, 6, NUMBER_BF16, 0).bad, 3);
	assert_int_equal(tally_of(k, fp16, 6, NUMBER_FP16, 0).bad, 4);
	backend_close(k);
}

static void a_backend_knows_its_format_and_its_instruction_set(void **state)
{
	(void)state;
	static const struct {
		const char *name;
		enum number_format format;
	} rows[] = { { "cpu", NUMBER_FP32 },
		     { "cpu:bf16", NUMBER_BF16 },
		     { "reference:fp16", NUMBER_FP16 } };
	for (int i = 0; i < 3; i++) {
		struct backend *k;
		assert_int_equal(backend_open(rows[i].name, 1, &k, NULL), 0);
		assert_int_equal(backend_format(k), rows[i].format);
		assert_true(backend_isa(k)[0]);
		backend_close(k);
	}
}

/* A device backend may leave out the ops that are composed of others. A host backend may also
 * leave out the ops that all host backends share. */
static void only_ops_with_a_shared_form_may_be_left_out(void **state)
{
	(void)state;
	for (int host = 0; host < 2; host++) {
		struct ops o = { .name = "none" };
		backend_fill_shared(&o, host);
#define OP(op, operands, form, parameters) \
	assert_int_equal(o.op != NULL, OP_##form == OP_COMPOSED || (host && OP_##form == OP_HOST));
#include "kernels/ops_table.h"
	}
}

/* With storage of 2 bytes, an op without stored operands uses the fp32 backend's form. */
static void storage_types_share_the_ops_without_stored_operands(void **state)
{
	(void)state;
	struct backend *wide, *k;
	assert_int_equal(backend_open("reference", 1, &wide, NULL), 0);
	assert_int_equal(backend_open("reference:bf16", 1, &k, NULL), 0);
#define OP(op, operands, form, parameters) \
	if (OP_##operands == OP_FP32 || OP_##form != OP_OWN) \
		assert_true(backend_ops(k)->op == backend_ops(wide)->op); \
	else \
		assert_true(backend_ops(k)->op != backend_ops(wide)->op);
#include "kernels/ops_table.h"
	backend_close(k);
	backend_close(wide);
}

static void memory_is_zeroed_aligned_and_counted(void **state)
{
	(void)state;
	struct backend *k;
	assert_int_equal(backend_open("cpu", 1, &k, NULL), 0);
	const size_t sizes[] = { 0, 1, 4097, (size_t)2 << 20, ((size_t)5 << 20) + 3 };
	size_t total = 0;
	void *p[5];
	for (int i = 0; i < 5; i++) {
		p[i] = backend_alloc(k, sizes[i]);
		assert_non_null(p[i]);
		assert_int_equal((uintptr_t)p[i] % 64, 0);
		for (size_t j = 0; j < sizes[i]; j++)
			assert_int_equal(((char *)p[i])[j], 0);
		memset(p[i], 1, sizes[i]);
		total += sizes[i];
	}
	assert_int_equal(backend_peak(k), total);
	backend_free(k, p[4]);
	backend_free(k, p[1]);
	backend_free(k, NULL);
	p[1] = backend_alloc(k, 1);
	assert_int_equal(*(char *)p[1], 0);
	assert_int_equal(backend_peak(k), total);
	backend_close(k); /* frees the rest */
}

static void storage_of_2_bytes_counts_its_scratch(void **state)
{
	(void)state;
	struct backend *k;
	assert_int_equal(backend_open("cpu:bf16", 3, &k, NULL), 0);
	assert_int_equal(backend_peak(k), 3 * (size_t)BACKEND_LOW_PRECISION_LANE);
	assert_non_null(backend_alloc(k, 1000));
	assert_int_equal(backend_peak(k), 3 * (size_t)BACKEND_LOW_PRECISION_LANE + 1000);
	backend_close(k);
}

static void an_allocation_that_is_too_large_returns_null(void **state)
{
	(void)state;
	struct backend *k;
	assert_int_equal(backend_open("cpu", 1, &k, NULL), 0);
	assert_null(backend_alloc(k, SIZE_MAX));
	assert_null(backend_alloc(k, SIZE_MAX / 4));
	assert_int_equal(backend_peak(k), 0);
	backend_close(k);
}

static void copies_on_the_host_are_complete_when_they_return(void **state)
{
	(void)state;
	struct backend *k;
	const char text[] = "sixteen letters";
	char back[sizeof text];
	assert_int_equal(backend_open("reference", 1, &k, NULL), 0);
	char *p = backend_alloc(k, 2 * sizeof text), *host = backend_host_alloc(k, sizeof text);
	assert_true(backend_on_host(k) && !backend_stream(k));
	backend_put(k, p, text, sizeof text);
	backend_copy(k, p + sizeof text, p, sizeof text);
	uint64_t copied = backend_side_copy(k, host, p + sizeof text, sizeof text);
	backend_side_wait(k, copied);
	assert_int_equal(backend_side_await(k, copied, NULL), 0);
	assert_string_equal(host, text);
	backend_zero(k, p, sizeof text);
	assert_int_equal(backend_get(k, back, p, sizeof back, NULL), 0);
	assert_int_equal(back[0], 0);
	assert_int_equal(backend_sync(k, NULL), 0);
	backend_host_free(k, host);
	backend_close(k);
}

static void the_host_records_no_graphs(void **state)
{
	(void)state;
	struct backend *k;
	struct backend_graph *graph = NULL;
	struct err e = ERR_INIT;
	assert_int_equal(backend_open("cpu", 1, &k, NULL), 0);
	assert_false(backend_graph_begin(k));
	assert_int_equal(backend_graph_end(k, &graph, &e), -1);
	assert_int_equal(e.code, ERR_INTERNAL);
	backend_graph_free(k, graph);
	backend_close(k);
}

/* There is no library next to this program. */
static void cuda_without_its_library_fails_with_a_remedy(void **state)
{
	(void)state;
	struct backend *k = NULL;
	struct err e = ERR_INIT;
	assert_int_equal(backend_open_device("cuda:bf16", 1, 3, &k, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.text, "libmuster-cuda.so"));
	assert_non_null(strstr(e.text, "device = cpu"));
	assert_int_equal(backend_open("cuda:fp15", 1, &k, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	assert_null(k);
}

static void products_have_a_rate(void **state)
{
	(void)state;
	struct backend *k;
	assert_int_equal(backend_open("cpu", 2, &k, NULL), 0);
	assert_true(backend_gemm_flops(k, 64, 0) > 0);
	assert_true(backend_gemm_flops(k, (int64_t)1 << 30, 0) == 0);
	backend_close(k);
	assert_int_equal(backend_open("cpu:fp16", 2, &k, NULL), 0);
	assert_true(backend_gemm_flops(k, 64, 0) > 0);
	backend_close(k);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_tally_is_that_of_plain_sums_for_any_number_of_threads),
		cmocka_unit_test(tallies_of_parts_add_up),
		cmocka_unit_test(a_tally_shows_each_flipped_bit_and_each_swap),
		cmocka_unit_test(a_tally_counts_nan_and_infinity_in_each_format),
		cmocka_unit_test(a_backend_knows_its_format_and_its_instruction_set),
		cmocka_unit_test(unknown_backends_and_thread_counts_are_refused),
		cmocka_unit_test(a_backend_has_its_name_and_threads),
		cmocka_unit_test(every_backend_has_every_op),
		cmocka_unit_test(a_missing_op_is_reported_by_its_name),
		cmocka_unit_test(only_ops_with_a_shared_form_may_be_left_out),
		cmocka_unit_test(storage_types_share_the_ops_without_stored_operands),
		cmocka_unit_test(memory_is_zeroed_aligned_and_counted),
		cmocka_unit_test(storage_of_2_bytes_counts_its_scratch),
		cmocka_unit_test(an_allocation_that_is_too_large_returns_null),
		cmocka_unit_test(copies_on_the_host_are_complete_when_they_return),
		cmocka_unit_test(the_host_records_no_graphs),
		cmocka_unit_test(cuda_without_its_library_fails_with_a_remedy),
		cmocka_unit_test(products_have_a_rate),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
