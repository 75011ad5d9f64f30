/*
 * Attention by cuDNN, over a double that runs the operation graphs as they are described: results
 * against the reference, which calls go to cuDNN and which to muster's own kernels, plans,
 * workspace, and failures of the library, which MUSTER_DOUBLE_CUDNN (doubles/cudnn.h) chooses.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_CUDA
#include "kernels/cuda/dnn_attention.h"
#endif

#ifdef HAVE_CUDNN

#include "base/buf.h"
#include "base/choices.h"
#include "tests/gpu/attention_rig.h"
#include "tests/gpu/doubles/runtime.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* --- Forward ------------------------------------------------------------------------------ */

static void forward_by_cudnn_agrees_with_the_reference(void **state)
{
	(void)state;
	const struct attn_shape shapes[] = {
		attention_shape(2, 48, 3, 3, 16),  attention_shape(1, 33, 4, 2, 8),
		attention_shape(3, 17, 4, 1, 64),  attention_shape(1, 2, 2, 2, 128),
		attention_shape(2, 20, 2, 1, 256),
	};
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		assert_int_equal(attention_once("cuda:bf16", &shapes[i]), 1);
}

/* As in context parallelism: pieces of the same place, and keys that are all before. */
static void pieces_of_sequences_are_masked_where_they_meet(void **state)
{
	(void)state;
	struct attn_shape same = attention_shape(2, 24, 2, 2, 16), past = same, overlap = same;
	same.q_first = same.k_first = 48;
	past.q_first = 24;
	past.k_first = 0;
	overlap.q_first = 8;
	overlap.k_len = 24;
	same.seq = past.seq = overlap.seq = 96;
	assert_int_equal(attention_once("cuda:bf16", &same), 1);
	assert_int_equal(attention_once("cuda:bf16", &past), 1);
	assert_int_equal(attention_once("cuda:bf16", &overlap), 0);
}

static void what_cudnn_does_not_compute_has_own_kernels(void **state)
{
	(void)state;
	struct attn_shape wide = attention_shape(1, 12, 2, 2, 258 - 2),
			  odd = attention_shape(1, 12, 2, 2, 12),
			  one = attention_shape(1, 12, 2, 2, 16);
	one.q_len = 1;
	one.q_first = 11;
	assert_int_equal(attention_once("cuda:bf16", &odd), 0);
	assert_int_equal(attention_once("cuda:bf16", &one), 0);
	assert_int_equal(attention_once("cuda:bf16", &wide), 1);
}

/* By the fixed rule: own kernels skip what other documents hide, cuDNN's do not. */
static void documents_that_were_not_measured_have_own_kernels(void **state)
{
	(void)state;
	struct attn_shape s = attention_shape(1, 12, 2, 2, 16);
	struct attention_rig r;
	int before = double_cudnn.forward;
	attention_open(&r, "cuda:bf16", &s);
	attention_give_documents(&r, 5, 1);
	attention_forward(&r);
	attention_check_forward(&r);
	attention_close(&r);
	assert_int_equal(double_cudnn.forward, before);
}

static void a_shape_is_planned_once(void **state)
{
	(void)state;
	struct attn_shape s = attention_shape(2, 24, 2, 1, 16);
	struct attention_rig r;
	int plans = double_cudnn.plans, runs = double_cudnn.forward;
	attention_open(&r, "cuda:bf16", &s);
	for (int i = 0; i < 3; i++)
		attention_forward(&r);
	assert_int_equal(double_cudnn.plans, plans + 1);
	r.s.q_len = r.s.k_len = 20;
	attention_forward(&r);
	assert_int_equal(double_cudnn.plans, plans + 2);
	assert_int_equal(double_cudnn.forward, runs + 4);
	assert_int_equal(backend_sync(r.k, NULL), 0);
	attention_close(&r);
}

/* A recorded graph may use a plan that exists, and makes none. */
static void a_recorded_graph_repeats_cudnn(void **state)
{
	(void)state;
	struct attn_shape s = attention_shape(2, 24, 2, 1, 16);
	struct backend_graph *graph;
	struct attention_rig r;
	attention_open(&r, "cuda:bf16", &s);
	int plans = double_cudnn.plans, runs = double_cudnn.forward;
	assert_true(backend_graph_begin(r.k));
	attention_forward(&r); /* own kernels */
	assert_int_equal(backend_graph_end(r.k, &graph, NULL), 0);
	assert_int_equal(double_cudnn.plans, plans);
	backend_graph_free(r.k, graph);
	attention_forward(&r);
	assert_true(backend_graph_begin(r.k));
	attention_forward(&r);
	assert_int_equal(backend_graph_end(r.k, &graph, NULL), 0);
	assert_int_equal(double_cudnn.plans, plans + 1);
	assert_int_equal(double_cudnn.forward, runs + 2);
	backend_zero(r.k, r.at[O], (size_t)r.count[O] * 2);
	backend_graph_replay(r.k, graph);
	attention_check_forward(&r);
	backend_graph_free(r.k, graph);
	attention_close(&r);
}

/* --- Failures ----------------------------------------------------------------------------- */

static void cudnn_that_fails_leaves_own_kernels(void **state)
{
	(void)state;
	static const char *const words[] = { "refuses", "fails", "handle", "descriptor", "wide" };
	struct attn_shape s = attention_shape(2, 24, 2, 1, 16);
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		setenv("MUSTER_DOUBLE_CUDNN", words[i], 1);
		assert_int_equal(attention_once("cuda:bf16", &s), 0);
		assert_int_equal(double_cudnn.open_descriptors, 0);
	}
	unsetenv("MUSTER_DOUBLE_CUDNN");
	assert_int_equal(attention_once("cuda:bf16", &s), 1);
}

/* Otherwise nobody would see why attention is slow. */
static void a_failure_is_reported_once(void **state)
{
	(void)state;
	static const char *const words[] = { "refuses", "fails", "handle", "descriptor", "" },
				 *const reports[] = { "no deterministic engine",
						      "cuDNN failed in attention_fwd",
						      "cannot use the device", "cuDNN refuses",
						      NULL };
	struct attn_shape s = attention_shape(1, 8, 1, 1, 8);
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		struct attention_rig r;
		setenv("MUSTER_DOUBLE_CUDNN", words[i], 1);
		attention_open(&r, "cuda:bf16", &s);
		attention_forward(&r);
		attention_forward(&r);
		const char *notice = backend_notice(r.k);
		if (reports[i])
			assert_true(notice && strstr(notice, reports[i]));
		else
			assert_null(notice);
		assert_null(backend_notice(r.k));
		attention_check_forward(&r);
		attention_close(&r);
	}
}

/* The device may still run it, and graphs that were recorded have it. */
static void a_plan_that_failed_is_kept_until_the_end(void **state)
{
	(void)state;
	struct attn_shape s = attention_shape(2, 24, 2, 1, 16);
	struct backend_graph *graph;
	struct attention_rig r;
	attention_open(&r, "cuda:bf16", &s);
	attention_forward(&r);
	assert_true(backend_graph_begin(r.k));
	attention_forward(&r);
	assert_int_equal(backend_graph_end(r.k, &graph, NULL), 0);
	int open = double_cudnn.open_descriptors, runs = attention_ran();
	setenv("MUSTER_DOUBLE_CUDNN", "fails", 1);
	attention_forward(&r);
	assert_int_equal(double_cudnn.open_descriptors, open);
	unsetenv("MUSTER_DOUBLE_CUDNN");
	attention_forward(&r); /* own kernels from now on */
	assert_int_equal(attention_ran(), runs);
	backend_zero(r.k, r.at[O], (size_t)r.count[O] * 2);
	backend_graph_replay(r.k, graph);
	attention_check_forward(&r);
	backend_graph_free(r.k, graph);
	attention_close(&r);
}

/* Without a wait before: the double checks (doubles/cudnn.h). */
static void closing_waits_for_the_device(void **state)
{
	(void)state;
	struct attn_shape s = attention_shape(2, 24, 2, 1, 16);
	struct attention_rig r;
	attention_open(&r, "cuda:bf16", &s);
	for (int i = 0; i < 8; i++)
		attention_forward(&r);
	attention_close(&r);
}

/* In a process of its own, since a library is loaded once. */
static void an_old_cudnn_is_refused_by_its_version(void **state)
{
	(void)state;
	pid_t child = fork();
	if (child == 0) {
		const struct dnn *dnn;
		struct err e = ERR_INIT;
		setenv("MUSTER_DOUBLE_CUDNN", "old", 1);
		bool refused = dnn_load(&dnn, &e) < 0 && e.code == ERR_UNSUPPORTED &&
			       strstr(e.text, "9.10.1") && strstr(e.text, "9.15.1");
		_exit(refused ? 0 : 1);
	}
	int status;
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
}

/* --- Backward: the graph itself, whatever the backend would choose ------------------------- */

enum { TENSORS = 16 };

/* at: NULL for tensors that the graph does not have. */
static void run_plan(const struct dnn *dnn, cudnnHandle_t handle, const struct dnn_plan *plan,
		     const int64_t ids[TENSORS], void *const at[TENSORS], void *workspace)
{
	int64_t used[TENSORS];
	void *where[TENSORS];
	int n = 0;
	for (int i = 0; i < TENSORS; i++)
		if (at[i]) {
			used[n] = ids[i];
			where[n++] = at[i];
		}
	assert_int_equal(dnn_plan_run(dnn, handle, plan, used, where, n, workspace),
			 CUDNN_STATUS_SUCCESS);
}

/* Runs the pieces of a backward pass on a stream. Returns their number. */
static int run_backward(struct attention_rig *r, struct attention_piece piece, bool any_order)
{
	static const int64_t ids[] = { DNN_Q,     DNN_K,      DNN_V,      DNN_O,
				       DNN_STATS, DNN_SCALE,  DNN_MASKED, DNN_DOUT,
				       DNN_DQ,    DNN_DK,     DNN_DV,     DNN_SUM,
				       DNN_ONE,   DNN_STARTS, DNN_HIDDEN, DNN_DQ_SUMS };
	const struct attn_shape *s = &r->s;
	const struct dnn *dnn;
	struct dnn_graph *g = calloc(1, sizeof *g);
	struct dnn_attention a = { s, piece, true, CUDNN_DATA_BFLOAT16, any_order };
	struct dnn_plan plan;
	struct err e = ERR_INIT;
	cudnnHandle_t handle;
	float scale = (float)(1 / sqrt(s->dim)), masked = -INFINITY, one = 1,
	      hidden = DNN_HIDDEN_SCORE;
	int pieces = 0;
	assert_int_equal(dnn_load(&dnn, &e), 0);
	assert_int_equal(dnn->Create(&handle), CUDNN_STATUS_SUCCESS);
	assert_int_equal(dnn->SetStream(handle, backend_stream(r->k)), CUDNN_STATUS_SUCCESS);
	dnn_graph_init(g, dnn);
	dnn_attention_bwd(g, &a);
	if (dnn_plan_make(g, handle, ATTENTION_ROOM_MOST, any_order, &plan, &e))
		fail_msg("%s", e.text);
	const int64_t queries = piece.batch * piece.heads * s->q_len,
		      sums = (4 * queries + 15) / 16 * 16,
		      dq = any_order ? 4 * queries * s->dim : 0;
	assert_true(plan.workspace + sums + dq <=
		    attention_room(&piece, s->q_len, s->k_len, s->dim, any_order));
	char *workspace = backend_alloc(r->k, (size_t)(plan.workspace + sums + dq));
	for (int64_t b = 0; b < s->batch; b += piece.batch)
		for (int v = 0; v < s->kv_heads; v += piece.kv_heads, pieces++) {
			int64_t head = (int64_t)v * (s->heads / s->kv_heads);
			int64_t q = b * s->q_batch + head * s->dim,
				kv = b * s->kv_batch + (int64_t)v * s->dim,
				o = b * s->o_batch + head * s->dim;
			void *at[] = { attention_device(r, QKV, q),
				       attention_device(r, QKV, attention_key_at(s) + kv),
				       attention_device(r, QKV, attention_value_at(s) + kv),
				       attention_device(r, O, o),
				       r->device_lse + (b * s->heads + head) * s->q_len,
				       &scale,
				       &masked,
				       attention_device(r, DOUT, o),
				       attention_device(r, DQKV, q),
				       attention_device(r, DQKV, attention_key_at(s) + kv),
				       attention_device(r, DQKV, attention_value_at(s) + kv),
				       workspace + plan.workspace,
				       &one,
				       s->starts ? r->device_starts + b * s->starts_batch : NULL,
				       s->starts ? &hidden : NULL,
				       any_order ? workspace + plan.workspace + sums : NULL };
			if (dq) /* the sums are added to what is there */
				backend_zero(r->k, workspace + plan.workspace + sums, (size_t)dq);
			run_plan(dnn, handle, &plan, ids, at, workspace);
		}
	assert_int_equal(backend_sync(r->k, NULL), 0);
	backend_free(r->k, workspace);
	dnn_graph_fini(g);
	free(g);
	dnn->Destroy(handle);
	return pieces;
}

static void check_backward(const struct attn_shape *s, struct attention_piece piece, int pieces,
			   bool documents, bool any_order)
{
	struct attention_rig r;
	attention_open(&r, "cuda:bf16", s);
	if (documents)
		attention_give_documents(&r, 9, 3);
	attention_forward(&r);
	attention_reference_forward(&r);
	assert_int_equal(run_backward(&r, piece, any_order), pieces);
	attention_check_gradients(&r);
	attention_close(&r);
}

static void backward_by_cudnn_agrees_with_the_reference(void **state)
{
	(void)state;
	const struct attn_shape whole = attention_shape(2, 24, 3, 3, 16),
				grouped = attention_shape(2, 33, 4, 2, 8);
	for (int i = 0; i < 4; i++) {
		bool documents = i % 2, any_order = i / 2;
		check_backward(&whole, (struct attention_piece){ 2, 3, 3 }, 1, documents,
			       any_order);
		check_backward(&grouped, (struct attention_piece){ 2, 4, 2 }, 1, documents,
			       any_order);
		check_backward(&whole, (struct attention_piece){ 1, 3, 3 }, 2, documents,
			       any_order);
		check_backward(&grouped, (struct attention_piece){ 1, 2, 1 }, 4, documents,
			       any_order);
	}
}

static void an_engine_whose_results_vary_is_refused_unless_they_may(void **state)
{
	(void)state;
	const struct attn_shape s = attention_shape(1, 24, 2, 2, 16);
	struct dnn_attention a = { &s, { 1, 2, 2 }, true, CUDNN_DATA_BFLOAT16, false };
	struct dnn_graph *g = calloc(1, sizeof *g);
	struct dnn_plan plan;
	const struct dnn *dnn;
	cudnnHandle_t handle;
	for (int i = 0; i < 3; i++) {
		const bool varies = i > 0, any_order = i > 1;
		struct err e = ERR_INIT;
		if (varies)
			setenv("MUSTER_DOUBLE_CUDNN", "varies", 1);
		a.any_order = any_order;
		assert_int_equal(dnn_load(&dnn, &e), 0);
		assert_int_equal(dnn->Create(&handle), CUDNN_STATUS_SUCCESS);
		dnn_graph_init(g, dnn);
		dnn_attention_bwd(g, &a);
		int rc = dnn_plan_make(g, handle, ATTENTION_ROOM_MOST, any_order, &plan, &e);
		assert_int_equal(rc, varies && !any_order ? -1 : 0);
		assert_true(rc ? strstr(e.text, "deterministic") != NULL
			       : plan.engine == (any_order ? 5 : 6));
		dnn_graph_fini(g);
		dnn->Destroy(handle);
	}
	free(g);
}

/* --- Pieces ------------------------------------------------------------------------------- */

static void a_pass_is_split_into_equal_pieces_that_fit(void **state)
{
	(void)state;
	static const struct {
		int64_t batch;
		int heads, kv_heads;
		int64_t len;
		int dim;
		struct attention_piece piece;
		bool any_order;
	} rows[] = {
		{ 32, 12, 12, 1024, 64, { 32, 12, 12 }, false }, /* GPT-2 124M: 770 MiB */
		{ 8, 32, 8, 2048, 64, { 2, 32, 8 }, false },     /* LLaMA 1B: 2.2 GB as a whole */
		{ 1, 32, 8, 8192, 128, { 1, 4, 1 }, false }, /* a long sequence: groups of heads */
		{ 6, 32, 32, 4096, 64, { 1, 16, 16 }, false }, /* equal parts of 32 */
		{ 1, 32, 4, 32768, 128, { 0, 0, 0 }, false },  /* one group needs 17 GB */
		{ 1, 32, 4, 32768, 128, { 1, 16, 2 }, true },  /* dq twice, dk, dv: 1.6 GB */
		{ 8, 32, 8, 2048, 64, { 8, 32, 8 }, true },    /* 405 MB */
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct attention_piece p = attention_piece_of(rows[i].batch, rows[i].heads,
							      rows[i].kv_heads, rows[i].len,
							      rows[i].len, rows[i].dim,
							      rows[i].any_order);
		assert_int_equal(p.batch, rows[i].piece.batch);
		assert_int_equal(p.heads, rows[i].piece.heads);
		assert_int_equal(p.kv_heads, rows[i].piece.kv_heads);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(forward_by_cudnn_agrees_with_the_reference,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(pieces_of_sequences_are_masked_where_they_meet,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(what_cudnn_does_not_compute_has_own_kernels,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(documents_that_were_not_measured_have_own_kernels,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(a_shape_is_planned_once, attention_setup,
						attention_teardown),
		cmocka_unit_test_setup_teardown(a_recorded_graph_repeats_cudnn, attention_setup,
						attention_teardown),
		cmocka_unit_test_setup_teardown(cudnn_that_fails_leaves_own_kernels,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(a_failure_is_reported_once, attention_setup,
						attention_teardown),
		cmocka_unit_test_setup_teardown(a_plan_that_failed_is_kept_until_the_end,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(closing_waits_for_the_device, attention_setup,
						attention_teardown),
		cmocka_unit_test_setup_teardown(an_old_cudnn_is_refused_by_its_version,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(backward_by_cudnn_agrees_with_the_reference,
						attention_setup, attention_teardown),
		cmocka_unit_test_setup_teardown(
			an_engine_whose_results_vary_is_refused_unless_they_may, attention_setup,
			attention_teardown),
		cmocka_unit_test(a_pass_is_split_into_equal_pieces_that_fit),
	};
	return cmocka_run_group_tests_name("attention by cuDNN", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("attention by cuDNN")

#endif
