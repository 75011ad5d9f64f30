/*
 * Attention by cuDNN or by muster's own kernels, whichever is faster: when a shape is measured, which
 * way is taken then, what ranks agree on, and the same for packed documents. The double of cuDNN
 * takes as long as a test says.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_CUDA
#include "kernels/cuda/dnn.h"
#endif

#ifdef HAVE_CUDNN

#include "base/attention_room.h"
#include "base/buf.h"
#include "base/choices.h"
#include "tests/gpu/attention_rig.h"
#include "tests/gpu/cuda_backend.h"
#include "tests/gpu/doubles/runtime.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Choices ------------------------------------------------------------------------------ */

static void the_faster_way_is_measured_once_and_kept(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	const char *key, *note;
	struct attention_rig r;
	attention_measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	assert_true(attention_both_passes(&r) > 2);
	int plans = double_cudnn.plans;
	assert_int_equal(attention_both_passes(&r), 2);
	assert_int_equal(double_cudnn.plans, plans);
	assert_true(choices_at(backend_choices(r.k), 0, &key, &note));
	assert_non_null(strstr(key, "attention fwd bf16 causal b=2 q=40 k=40 heads=4/2 dim=16"));
	assert_non_null(strstr(note, "cuDNN 100.0 us, engine 2"));
	assert_true(choices_at(backend_choices(r.k), 1, &key, &note));
	assert_non_null(strstr(key, "attention bwd"));
	assert_non_null(strstr(note, "cuDNN 100.0 us, engine 6"));
	attention_close(&r);

	attention_measure_with(&r, &s, CHOICES_MEASURED, 1e-5, 1e-2);
	attention_both_passes(&r);
	assert_int_equal(attention_both_passes(&r), 0);
	attention_close(&r);
}

/* Opens a rig whose backend may add in any order, where cuDNN takes `any` seconds for that. */
static void measure_any_order(struct attention_rig *r, const struct attn_shape *s, double own,
			      double dnn, double any)
{
	attention_measure_with(r, s, CHOICES_MEASURED, own, dnn);
	double_cudnn_any_seconds = any;
	backend_allow_any_order(r->k, true);
}

/* What dq is after a backward pass; the caller frees it. */
static uint16_t *backward_bits(struct attention_rig *r)
{
	const size_t bytes = (size_t)r->count[DQKV] * sizeof(uint16_t);
	uint16_t *bits = malloc(bytes);
	attention_backward(r, false);
	assert_int_equal(backend_get(r->k, bits, r->at[DQKV], bytes, NULL), 0);
	return bits;
}

static bool same_bits_twice(struct attention_rig *r)
{
	uint16_t *first = backward_bits(r), *second = backward_bits(r);
	bool same = !memcmp(first, second, (size_t)r->count[DQKV] * sizeof *first);
	free(first);
	free(second);
	return same;
}

static void sums_in_any_order_are_chosen_only_if_faster(void **state)
{
	(void)state;
	static const struct {
		double own, dnn, any;
		bool by_cudnn, in_any_order;
	} rows[] = {
		{ 1e-3, 1e-4, 9e-5, true, true },
		{ 1e-3, 1e-4, 9.9e-5, true, false }, /* the same bits each time are worth 1 % */
		{ 1e-3, 1e-4, 2e-4, true, false },
		{ 1e-5, 1e-2, 1e-2, false, false },
		{ 1e-5, 1e-2, 1e-6, true, true },
	};
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct attention_rig r;
		measure_any_order(&r, &s, rows[i].own, rows[i].dnn, rows[i].any);
		attention_both_passes(&r);
		int backward = double_cudnn.backward, any = double_cudnn.any_order;
		attention_both_passes(&r);
		assert_int_equal(double_cudnn.backward - backward, rows[i].by_cudnn);
		assert_int_equal(double_cudnn.any_order - any, rows[i].in_any_order);
		assert_int_equal(same_bits_twice(&r), !rows[i].in_any_order);
		attention_check_gradients(&r);
		attention_close(&r);
	}
}

/* A choice that was made with sums in any order does not count without them, nor the other way
 * round; the forward pass has one choice. */
static void sums_in_any_order_have_a_choice_of_their_own(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	const char *key, *note;
	struct attention_rig r;
	measure_any_order(&r, &s, 1e-3, 1e-4, 1e-5);
	attention_both_passes(&r);
	assert_true(choices_at(backend_choices(r.k), 1, &key, &note));
	assert_non_null(strstr(key, " any-order"));
	assert_non_null(strstr(note, "cuDNN 100.0 us, engine 6"));
	assert_non_null(strstr(note, "cuDNN in any order 10.0 us, engine 5"));
	assert_false(choices_at(backend_choices(r.k), 2, &key, &note));
	backend_allow_any_order(r.k, false);
	attention_both_passes(&r);
	assert_true(choices_at(backend_choices(r.k), 2, &key, &note));
	assert_null(strstr(key, "any-order"));
	int any = double_cudnn.any_order;
	assert_int_equal(attention_both_passes(&r), 2);
	assert_int_equal(double_cudnn.any_order, any);
	/* from a file that someone else wrote */
	char name[CHOICES_TEXT];
	snprintf(name, sizeof name, "%s", key);
	choices_put(backend_choices(r.k), name, "cudnn-any", 9);
	attention_both_passes(&r);
	assert_int_equal(double_cudnn.any_order, any);
	backend_allow_any_order(r.k, true);
	attention_both_passes(&r);
	assert_int_equal(double_cudnn.any_order, any + 1);
	attention_close(&r);
}

/* Where the ordered form has no engine; so it is on compute capability 10.x. */
static void sums_in_any_order_serve_where_ordered_ones_cannot(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	struct attention_rig r;
	setenv("MUSTER_DOUBLE_CUDNN", "varies", 1);
	measure_any_order(&r, &s, 1e-3, 1e-4, 1e-4);
	attention_both_passes(&r);
	int any = double_cudnn.any_order;
	attention_both_passes(&r);
	assert_int_equal(double_cudnn.any_order, any + 1);
	assert_null(backend_notice(r.k));
	attention_close(&r);
}

/* One workspace, of the larger form: what the planner counts. */
static void both_forms_share_a_workspace(void **state)
{
	(void)state;
	const struct attn_shape shapes[] = {
		attention_shape(2, 256, 2, 1, 16), /* the ordered form needs more */
		attention_shape(4, 24, 2, 2, 128), /* the other one does */
	};
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
		const struct attn_shape *s = &shapes[i];
		const struct attention_piece p = { s->batch, s->heads, s->kv_heads };
		const int64_t ordered = attention_room(&p, s->q_len, s->k_len, s->dim, false),
			      any = attention_room(&p, s->q_len, s->k_len, s->dim, true);
		assert_int_equal(ordered > any, i == 0);
		struct attention_rig r;
		measure_any_order(&r, s, 1e-3, 1e-4, 1e-5);
		attention_forward(&r);
		size_t before = backend_peak(r.k);
		attention_check_forward(&r);
		attention_backward(&r, false);
		assert_true(backend_peak(r.k) - before <= (size_t)(ordered > any ? ordered : any));
		attention_close(&r);
	}
}

/* Proposals change nothing until the ranks agree. */
static void ranks_use_what_they_agreed_on(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	struct buf text = BUF_INIT;
	struct attention_rig r, other;
	attention_measure_with(&r, &s, CHOICES_PROPOSED, 1e-3, 1e-4);
	attention_both_passes(&r);
	assert_int_equal(attention_both_passes(&r), 1); /* the fixed rule */
	choices_write(backend_choices(r.k), &text);
	attention_measure_with(&other, &s, CHOICES_FIXED, 1e-5, 1e-2);
	assert_int_equal(attention_both_passes(&other), 1);
	choices_agree(backend_choices(r.k), text.data, text.len);
	choices_agree(backend_choices(other.k), text.data, text.len);
	assert_int_equal(attention_both_passes(&r), 2);
	assert_int_equal(attention_both_passes(&other), 2);
	buf_fini(&text);
	attention_close(&other);
	attention_close(&r);
}

static void a_gradient_that_is_added_has_own_kernels(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	struct attention_rig r;
	attention_measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	attention_both_passes(&r);
	int before = attention_ran();
	attention_backward(&r, true);
	assert_int_equal(attention_ran(), before);
	for (int64_t i = 0; i < r.count[DQKV]; i++)
		r.host[DQKV][i] *= 2;
	assert_true(attention_error(&r, DQKV) < 1e-2);
	attention_close(&r);
}

/* The library loses its plan in the middle of the contest, or has none. */
static void what_fails_while_it_is_measured_is_not_chosen(void **state)
{
	(void)state;
	static const char *const words[] = { "fails", "varies", "wide" };
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	struct attention_rig r;
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		setenv("MUSTER_DOUBLE_CUDNN", words[i], 1);
		attention_measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
		int backward = double_cudnn.backward;
		attention_both_passes(&r);
		assert_int_equal(double_cudnn.backward, backward);
		attention_close(&r);
	}
}

/* What follows the workspace is aligned, whatever its size. */
static void a_workspace_may_have_any_size(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	struct attention_rig r;
	setenv("MUSTER_DOUBLE_CUDNN", "uneven", 1);
	attention_measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	attention_both_passes(&r);
	assert_int_equal(attention_both_passes(&r), 2);
	attention_close(&r);
}

/* With zeros, both ways take another time than with numbers. */
static void zeros_are_not_measured(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	const char *key, *note;
	struct attention_rig r;
	attention_measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	backend_zero(r.k, r.at[QKV], (size_t)r.count[QKV] * 2);
	attention_forward(&r);
	assert_false(choices_at(backend_choices(r.k), 0, &key, &note));
	attention_put(&r, QKV);
	attention_forward(&r);
	assert_true(choices_at(backend_choices(r.k), 0, &key, &note));
	attention_check_forward(&r);
	attention_close(&r);
}

/* As with context parallelism: the last of 4 pieces of a longer array, behind which are zeros. What
 * is beyond a piece's rows belongs to others. */
static void a_piece_of_a_sequence_is_looked_at_where_it_is(void **state)
{
	(void)state;
	enum { LEN = 8, PIECES = 4 };
	struct attn_shape s = attention_shape(1, LEN * PIECES, 2, 2, 16);
	const int64_t last = s.q_row * LEN * (PIECES - 1);
	const char *key, *note;
	struct attention_rig r;
	s.q_batch = s.kv_batch = s.q_row * LEN * PIECES * 2; /* half of it is zeros */
	attention_measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	backend_zero(r.k, attention_device(&r, QKV, last + s.q_row * LEN),
		     (size_t)(s.q_batch / 2) * 2);
	s.q_len = s.k_len = LEN;
	backend_ops(r.k)->attention_fwd(r.k, r.at[O], r.device_lse, attention_device(&r, QKV, last),
					attention_device(&r, QKV, last + attention_key_at(&s)),
					attention_device(&r, QKV, last + attention_value_at(&s)),
					&s);
	assert_true(choices_at(backend_choices(r.k), 0, &key, &note));
	attention_close(&r);
}

/* The kept way is taken again when another one is put in its place (tests/gpu/kernels.c). */
static void a_choice_that_is_replaced_is_used_at_once(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	const char *key, *note, *const ways[] = { "own", "cudnn" };
	char name[CHOICES_TEXT];
	struct attention_rig r;
	attention_measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	attention_forward(&r);
	assert_true(choices_at(backend_choices(r.k), 0, &key, &note));
	snprintf(name, sizeof name, "%s", key);
	for (int i = 0; i < 4; i++) {
		int before = attention_ran();
		choices_put(backend_choices(r.k), name, ways[i % 2], strlen(ways[i % 2]));
		attention_forward(&r);
		assert_int_equal(attention_ran() - before, i % 2);
	}
	attention_close(&r);
}

/* An upgrade changes the machine, so that its choices are made again. */
static void the_machine_has_the_librarys_version(void **state)
{
	(void)state;
	struct backend *k = open_backend("cuda:bf16"), *single = open_backend("cuda");
	char version[32];
	snprintf(version, sizeof version, "cudnn %d", CUDNN_VERSION);
	assert_non_null(strstr(choices_machine(backend_choices(k)), version));
	assert_non_null(strstr(choices_machine(backend_choices(single)), "cudnn 0"));
	backend_close(k);
	backend_close(single);
}

/* Until the way is measured, the fixed rule holds: forward by cuDNN. */
static void a_way_that_a_later_use_measured_is_used_at_once(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	struct attention_rig r;
	attention_measure_with(&r, &s, CHOICES_MEASURED, 1e-5, 1e-2);
	int before = attention_ran();
	backend_zero(r.k, r.at[QKV], (size_t)r.count[QKV] * 2);
	attention_forward(&r);
	assert_int_equal(attention_ran(), before + 1);
	attention_put(&r, QKV);
	attention_forward(&r);
	attention_check_forward(&r);
	before = attention_ran();
	attention_forward(&r);
	attention_check_forward(&r);
	assert_int_equal(attention_ran(), before);
	attention_close(&r);
}

/* --- Documents ---------------------------------------------------------------------------- */

static void documents_by_cudnn_agree_with_the_reference(void **state)
{
	(void)state;
	const struct {
		struct attn_shape s;
		int64_t longest;
	} rows[] = {
		{ attention_shape(2, 48, 3, 3, 16), 7 }, /* several per tile */
		{ attention_shape(2, 33, 4, 2, 8), 30 }, /* and heads that share keys */
		{ attention_shape(3, 40, 4, 1, 16), 1 }, /* each token is one */
		{ attention_shape(1, 70, 2, 1, 16),
		  4 }, /* their first tiles have only hidden keys */
		{ attention_shape(2, 20, 2, 2, 8), 10000 }, /* each sequence is one, or nearly so */
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct attention_rig r;
		attention_measure_with(&r, &rows[i].s, CHOICES_MEASURED, 1e-3, 1e-4);
		attention_give_documents(&r, rows[i].longest, (uint32_t)i);
		assert_true(attention_both_passes(&r) > 2);
		for (uint32_t again = 1; again < 3; again++) {
			attention_fill_starts(&r, rows[i].longest, again * 100);
			assert_int_equal(attention_both_passes(&r), 2);
		}
		attention_close(&r);
	}
}

/* The same sizes without documents are another choice. */
static void documents_are_a_choice_of_their_own(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	const char *key, *note;
	struct attention_rig r;
	attention_measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	attention_both_passes(&r);
	attention_give_documents(&r, 9, 4);
	double_kernel_seconds = 1e-6;
	attention_both_passes(&r);
	assert_int_equal(attention_both_passes(&r), 0);
	assert_true(choices_at(backend_choices(r.k), 2, &key, &note));
	assert_non_null(strstr(key, "attention fwd bf16 documents b=2 q=40"));
	assert_true(choices_at(backend_choices(r.k), 3, &key, &note));
	assert_non_null(strstr(key, "attention bwd bf16 documents b=2 q=40"));
	r.s.starts = NULL;
	free(r.starts);
	r.starts = NULL;
	assert_int_equal(attention_both_passes(&r), 2);
	attention_close(&r);
}

/* Other documents, and another number of them, in the same memory. */
static void a_recorded_graph_follows_the_documents(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(2, 40, 4, 2, 16);
	struct backend_graph *graph;
	struct attention_rig r;
	attention_measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	attention_give_documents(&r, 9, 4);
	attention_both_passes(&r);
	int before = attention_ran();
	assert_true(backend_graph_begin(r.k));
	attention_forward(&r);
	attention_backward(&r, false);
	assert_int_equal(backend_graph_end(r.k, &graph, NULL), 0);
	assert_int_equal(attention_ran(), before + 2);
	for (int longest = 1; longest < 60; longest += 20) {
		attention_fill_starts(&r, longest, 7);
		backend_graph_replay(r.k, graph);
		attention_check_forward(&r);
		attention_check_gradients(&r);
	}
	backend_graph_free(r.k, graph);
	attention_close(&r);
}

static void run_and_check(struct attention_rig *r, int by_cudnn)
{
	attention_both_passes(r);
	assert_int_equal(attention_both_passes(r), by_cudnn);
	attention_close(r);
}

/* Keys whose index is not their position, and devices whose engines have no such mask backward. */
static void documents_that_cudnn_does_not_compute_have_own_kernels(void **state)
{
	(void)state;
	struct attn_shape later = attention_shape(2, 24, 2, 2, 16), whole = later;
	struct attention_rig r;
	later.q_first = later.k_first = 5;
	later.seq = 48;
	attention_measure_with(&r, &later, CHOICES_MEASURED, 1e-3, 1e-4);
	attention_give_documents(&r, 9, 4);
	run_and_check(&r, 0);

	setenv("MUSTER_EMULATE_SM", "80", 1);
	attention_measure_with(&r, &whole, CHOICES_MEASURED, 1e-3, 1e-4);
	run_and_check(&r, 2);
	attention_measure_with(&r, &whole, CHOICES_MEASURED, 1e-3, 1e-4);
	attention_give_documents(&r, 9, 4);
	run_and_check(&r, 1);
	unsetenv("MUSTER_EMULATE_SM");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(the_faster_way_is_measured_once_and_kept,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(sums_in_any_order_are_chosen_only_if_faster,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(sums_in_any_order_have_a_choice_of_their_own,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(sums_in_any_order_serve_where_ordered_ones_cannot,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(both_forms_share_a_workspace, attention_setup,
						attention_teardown),
		cmocka_unit_test_setup_teardown(ranks_use_what_they_agreed_on, attention_setup,
						attention_teardown),
		cmocka_unit_test_setup_teardown(a_gradient_that_is_added_has_own_kernels,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(what_fails_while_it_is_measured_is_not_chosen,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(a_workspace_may_have_any_size, attention_setup,
						attention_teardown),
		cmocka_unit_test_setup_teardown(zeros_are_not_measured, attention_setup,
						attention_teardown),
		cmocka_unit_test_setup_teardown(a_piece_of_a_sequence_is_looked_at_where_it_is,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(a_choice_that_is_replaced_is_used_at_once,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(the_machine_has_the_librarys_version,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(a_way_that_a_later_use_measured_is_used_at_once,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(documents_by_cudnn_agree_with_the_reference,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(documents_are_a_choice_of_their_own,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(a_recorded_graph_follows_the_documents,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(
			documents_that_cudnn_does_not_compute_have_own_kernels, attention_setup,
			attention_teardown),
	};
	return cmocka_run_group_tests_name("the choice between cuDNN and own kernels", tests, NULL,
					   NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("the choice between cuDNN and own kernels")

#endif
