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
#include "tests/gpu/cuda_backend.h"
#include "tests/gpu/doubles/cudnn.h"
#include "tests/gpu/doubles/runtime.h"

#include <cuda_runtime_api.h>
#include <math.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static int things_before;

static int setup(void **state)
{
	(void)state;
	unsetenv("MUSTER_DOUBLE_CUDNN");
	unsetenv("MUSTER_EMULATE_SM");
	double_virtual_clock = false;
	things_before = double_open_things();
	return 0;
}

/* After any test, nothing may be open. */
static int teardown(void **state)
{
	(void)state;
	return double_open_things() == things_before && double_cudnn.handles == 0 &&
			       double_cudnn.open_descriptors == 0
		       ? 0
		       : -1;
}

/* --- Numbers ------------------------------------------------------------------------------ */

/* Of 5 bits, so that each storage type has them exactly. */
static float number(int64_t i, int seed)
{
	return (float)((i * 7 + i / 13 * 3 + seed * 5) % 17 - 8) / 8;
}

static uint16_t bf16_of(float x)
{
	uint32_t bits;
	memcpy(&bits, &x, sizeof bits);
	return (uint16_t)(bits >> 16);
}

static float of_bf16(uint16_t x)
{
	uint32_t bits = (uint32_t)x << 16;
	float out;
	memcpy(&out, &bits, sizeof out);
	return out;
}

static double relative_error(const float *a, const float *b, int64_t count)
{
	double difference = 0, size = 0;
	for (int64_t i = 0; i < count; i++) {
		difference += pow((double)a[i] - (double)b[i], 2);
		size += pow((double)b[i], 2);
	}
	return sqrt(difference / (size > 0 ? size : 1));
}

/* --- A call ------------------------------------------------------------------------------- */

enum { QKV, O, DOUT, DQKV, ARRAYS };

/* Fused rows [heads q | kv_heads k | kv_heads v], the reference's arrays, and the device's. */
struct rig {
	struct attn_shape s;
	int64_t count[ARRAYS], lses;
	struct backend *reference, *k;
	float *host[ARRAYS], *lse, *got;
	uint16_t *packed;
	void *at[ARRAYS];
	float *device_lse;
	int32_t *starts, *device_starts; /* NULL: no documents */
};

static struct attn_shape shape(int batch, int len, int heads, int kv_heads, int dim)
{
	int64_t row = (int64_t)(heads + 2 * kv_heads) * dim;
	return (struct attn_shape){ .batch = batch,
				    .q_len = len,
				    .k_len = len,
				    .heads = heads,
				    .kv_heads = kv_heads,
				    .dim = dim,
				    .q_row = row,
				    .q_batch = row * len,
				    .kv_row = row,
				    .kv_batch = row * len,
				    .o_batch = (int64_t)heads * dim * len,
				    .heads_all = heads,
				    .seq = len };
}

static void put_bf16(struct rig *r, int i)
{
	for (int64_t j = 0; j < r->count[i]; j++)
		r->packed[j] = bf16_of(r->host[i][j]);
	backend_put(r->k, r->at[i], r->packed, (size_t)r->count[i] * sizeof *r->packed);
}

static void open_rig(struct rig *r, const char *name, const struct attn_shape *s)
{
	*r = (struct rig){ .s = *s, .lses = s->batch * s->heads * s->q_len };
	r->count[QKV] = r->count[DQKV] = s->batch * s->q_batch;
	r->count[O] = r->count[DOUT] = s->batch * s->o_batch;
	r->k = open_backend(name);
	assert_int_equal(backend_open("reference", 1, &r->reference, NULL), 0);
	r->packed = calloc((size_t)r->count[QKV], sizeof *r->packed);
	r->got = calloc((size_t)r->count[QKV], sizeof *r->got);
	r->lse = calloc((size_t)r->lses, sizeof *r->lse);
	r->device_lse = backend_alloc(r->k, (size_t)r->lses * sizeof *r->lse);
	for (int i = 0; i < ARRAYS; i++) {
		r->host[i] = calloc((size_t)r->count[i], sizeof(float));
		r->at[i] = backend_alloc(r->k, (size_t)r->count[i] * sizeof(float));
		for (int64_t j = 0; j < r->count[i]; j++)
			r->host[i][j] = number(j, i);
	}
	for (int i = 0; i < ARRAYS; i++)
		put_bf16(r, i);
}

/* Between the starts of two sequences there is room. */
static int64_t starts_row(const struct attn_shape *s)
{
	return s->q_len + 3;
}

static void put_starts(struct rig *r)
{
	backend_put(r->k, r->device_starts, r->starts,
		    (size_t)(r->s.batch * starts_row(&r->s)) * sizeof *r->starts);
}

/* Documents of random lengths from 1 to `longest`. */
static void fill_starts(struct rig *r, int64_t longest, uint32_t seed)
{
	int64_t row = starts_row(&r->s);
	for (int64_t b = 0; b < r->s.batch; b++)
		for (int64_t t = 0, end = 0, start = 0; t < row; t++) {
			if (t == end) {
				seed = seed * 1664525 + 1013904223;
				start = t;
				end = t + 1 + (int64_t)((seed >> 8) % (uint64_t)longest);
			}
			r->starts[b * row + t] = (int32_t)start;
		}
	put_starts(r);
}

static void give_documents(struct rig *r, int64_t longest, uint32_t seed)
{
	size_t bytes = (size_t)(r->s.batch * starts_row(&r->s)) * sizeof *r->starts;
	r->starts = malloc(bytes);
	r->s.starts = r->device_starts = backend_alloc(r->k, bytes);
	r->s.starts_batch = starts_row(&r->s);
	fill_starts(r, longest, seed);
}

/* The reference's documents are in host memory. */
static struct attn_shape reference_shape(const struct rig *r)
{
	struct attn_shape s = r->s;
	s.starts = r->starts;
	return s;
}

static void close_rig(struct rig *r)
{
	backend_free(r->k, r->device_starts);
	free(r->starts);
	for (int i = 0; i < ARRAYS; i++) {
		free(r->host[i]);
		backend_free(r->k, r->at[i]);
	}
	backend_free(r->k, r->device_lse);
	free(r->packed);
	free(r->got);
	free(r->lse);
	backend_close(r->reference);
	backend_close(r->k);
}

static int64_t key_at(const struct attn_shape *s)
{
	return (int64_t)s->heads * s->dim;
}

static int64_t value_at(const struct attn_shape *s)
{
	return key_at(s) + (int64_t)s->kv_heads * s->dim;
}

static uint16_t *device(const struct rig *r, int i, int64_t element)
{
	return (uint16_t *)r->at[i] + element;
}

static void run_forward(struct rig *r)
{
	const struct attn_shape *s = &r->s;
	backend_ops(r->k)->attention_fwd(r->k, r->at[O], r->device_lse, r->at[QKV],
					 device(r, QKV, key_at(s)), device(r, QKV, value_at(s)), s);
}

static void reference_forward(struct rig *r)
{
	const struct attn_shape s = reference_shape(r);
	float *qkv = r->host[QKV];
	backend_ops(r->reference)
		->attention_fwd(r->reference, r->host[O], r->lse, qkv, qkv + key_at(&s),
				qkv + value_at(&s), &s);
}

static double array_error(struct rig *r, int i)
{
	assert_int_equal(backend_get(r->k, r->packed, r->at[i],
				     (size_t)r->count[i] * sizeof *r->packed, NULL),
			 0);
	for (int64_t j = 0; j < r->count[i]; j++)
		r->got[j] = of_bf16(r->packed[j]);
	return relative_error(r->got, r->host[i], r->count[i]);
}

static void check_forward(struct rig *r)
{
	reference_forward(r);
	assert_true(array_error(r, O) < 5e-3);
	assert_int_equal(
		backend_get(r->k, r->got, r->device_lse, (size_t)r->lses * sizeof(float), NULL), 0);
	assert_true(relative_error(r->got, r->lse, r->lses) < 1e-5);
}

static int ran(void)
{
	return double_cudnn.forward + double_cudnn.backward;
}

/* Returns how often cuDNN was called. */
static int forward(const char *name, const struct attn_shape *s)
{
	struct rig r;
	int before = double_cudnn.forward;
	open_rig(&r, name, s);
	run_forward(&r);
	check_forward(&r);
	close_rig(&r);
	return double_cudnn.forward - before;
}

/* --- Forward ------------------------------------------------------------------------------ */

static void forward_by_cudnn_agrees_with_the_reference(void **state)
{
	(void)state;
	const struct attn_shape shapes[] = {
		shape(2, 48, 3, 3, 16), shape(1, 33, 4, 2, 8),   shape(3, 17, 4, 1, 64),
		shape(1, 2, 2, 2, 128), shape(2, 20, 2, 1, 256),
	};
	for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
		assert_int_equal(forward("cuda:bf16", &shapes[i]), 1);
}

/* As in context parallelism: pieces of the same place, and keys that are all before. */
static void pieces_of_sequences_are_masked_where_they_meet(void **state)
{
	(void)state;
	struct attn_shape same = shape(2, 24, 2, 2, 16), past = same, overlap = same;
	same.q_first = same.k_first = 48;
	past.q_first = 24;
	past.k_first = 0;
	overlap.q_first = 8;
	overlap.k_len = 24;
	same.seq = past.seq = overlap.seq = 96;
	assert_int_equal(forward("cuda:bf16", &same), 1);
	assert_int_equal(forward("cuda:bf16", &past), 1);
	assert_int_equal(forward("cuda:bf16", &overlap), 0);
}

static void what_cudnn_does_not_compute_has_own_kernels(void **state)
{
	(void)state;
	struct attn_shape wide = shape(1, 12, 2, 2, 258 - 2), odd = shape(1, 12, 2, 2, 12),
			  one = shape(1, 12, 2, 2, 16);
	one.q_len = 1;
	one.q_first = 11;
	assert_int_equal(forward("cuda:bf16", &odd), 0);
	assert_int_equal(forward("cuda:bf16", &one), 0);
	assert_int_equal(forward("cuda:bf16", &wide), 1);
}

/* By the fixed rule: own kernels skip what other documents hide, cuDNN's do not. */
static void documents_that_were_not_measured_have_own_kernels(void **state)
{
	(void)state;
	struct attn_shape s = shape(1, 12, 2, 2, 16);
	struct rig r;
	int before = double_cudnn.forward;
	open_rig(&r, "cuda:bf16", &s);
	give_documents(&r, 5, 1);
	run_forward(&r);
	check_forward(&r);
	close_rig(&r);
	assert_int_equal(double_cudnn.forward, before);
}

static void a_shape_is_planned_once(void **state)
{
	(void)state;
	struct attn_shape s = shape(2, 24, 2, 1, 16);
	struct rig r;
	int plans = double_cudnn.plans, runs = double_cudnn.forward;
	open_rig(&r, "cuda:bf16", &s);
	for (int i = 0; i < 3; i++)
		run_forward(&r);
	assert_int_equal(double_cudnn.plans, plans + 1);
	r.s.q_len = r.s.k_len = 20;
	run_forward(&r);
	assert_int_equal(double_cudnn.plans, plans + 2);
	assert_int_equal(double_cudnn.forward, runs + 4);
	assert_int_equal(backend_sync(r.k, NULL), 0);
	close_rig(&r);
}

/* A recorded graph may use a plan that exists, and makes none. */
static void a_recorded_graph_repeats_cudnn(void **state)
{
	(void)state;
	struct attn_shape s = shape(2, 24, 2, 1, 16);
	struct backend_graph *graph;
	struct rig r;
	open_rig(&r, "cuda:bf16", &s);
	int plans = double_cudnn.plans, runs = double_cudnn.forward;
	assert_true(backend_graph_begin(r.k));
	run_forward(&r); /* own kernels */
	assert_int_equal(backend_graph_end(r.k, &graph, NULL), 0);
	assert_int_equal(double_cudnn.plans, plans);
	backend_graph_free(r.k, graph);
	run_forward(&r);
	assert_true(backend_graph_begin(r.k));
	run_forward(&r);
	assert_int_equal(backend_graph_end(r.k, &graph, NULL), 0);
	assert_int_equal(double_cudnn.plans, plans + 1);
	assert_int_equal(double_cudnn.forward, runs + 2);
	backend_zero(r.k, r.at[O], (size_t)r.count[O] * 2);
	backend_graph_replay(r.k, graph);
	check_forward(&r);
	backend_graph_free(r.k, graph);
	close_rig(&r);
}

/* --- Failures ----------------------------------------------------------------------------- */

static void cudnn_that_fails_leaves_own_kernels(void **state)
{
	(void)state;
	static const char *const words[] = { "refuses", "fails", "handle", "descriptor", "wide" };
	struct attn_shape s = shape(2, 24, 2, 1, 16);
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		setenv("MUSTER_DOUBLE_CUDNN", words[i], 1);
		assert_int_equal(forward("cuda:bf16", &s), 0);
		assert_int_equal(double_cudnn.open_descriptors, 0);
	}
	unsetenv("MUSTER_DOUBLE_CUDNN");
	assert_int_equal(forward("cuda:bf16", &s), 1);
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
	struct attn_shape s = shape(1, 8, 1, 1, 8);
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		struct rig r;
		setenv("MUSTER_DOUBLE_CUDNN", words[i], 1);
		open_rig(&r, "cuda:bf16", &s);
		run_forward(&r);
		run_forward(&r);
		const char *notice = backend_notice(r.k);
		if (reports[i])
			assert_true(notice && strstr(notice, reports[i]));
		else
			assert_null(notice);
		assert_null(backend_notice(r.k));
		check_forward(&r);
		close_rig(&r);
	}
}

/* The device may still run it, and graphs that were recorded have it. */
static void a_plan_that_failed_is_kept_until_the_end(void **state)
{
	(void)state;
	struct attn_shape s = shape(2, 24, 2, 1, 16);
	struct backend_graph *graph;
	struct rig r;
	open_rig(&r, "cuda:bf16", &s);
	run_forward(&r);
	assert_true(backend_graph_begin(r.k));
	run_forward(&r);
	assert_int_equal(backend_graph_end(r.k, &graph, NULL), 0);
	int open = double_cudnn.open_descriptors, runs = ran();
	setenv("MUSTER_DOUBLE_CUDNN", "fails", 1);
	run_forward(&r);
	assert_int_equal(double_cudnn.open_descriptors, open);
	unsetenv("MUSTER_DOUBLE_CUDNN");
	run_forward(&r); /* own kernels from now on */
	assert_int_equal(ran(), runs);
	backend_zero(r.k, r.at[O], (size_t)r.count[O] * 2);
	backend_graph_replay(r.k, graph);
	check_forward(&r);
	backend_graph_free(r.k, graph);
	close_rig(&r);
}

/* Without a wait before: the double checks (doubles/cudnn.h). */
static void closing_waits_for_the_device(void **state)
{
	(void)state;
	struct attn_shape s = shape(2, 24, 2, 1, 16);
	struct rig r;
	open_rig(&r, "cuda:bf16", &s);
	for (int i = 0; i < 8; i++)
		run_forward(&r);
	close_rig(&r);
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

/* Runs the pieces of a backward pass on a stream. Returns their number. */
static int run_backward(struct rig *r, struct attention_piece piece)
{
	static const int64_t ids[] = { DNN_Q,     DNN_K,      DNN_V,    DNN_O,      DNN_STATS,
				       DNN_SCALE, DNN_MASKED, DNN_DOUT, DNN_DQ,     DNN_DK,
				       DNN_DV,    DNN_SUM,    DNN_ONE,  DNN_STARTS, DNN_HIDDEN };
	const struct attn_shape *s = &r->s;
	const struct dnn *dnn;
	struct dnn_graph *g = calloc(1, sizeof *g);
	struct dnn_attention a = { s, piece, true, CUDNN_DATA_BFLOAT16 };
	struct dnn_plan plan;
	struct err e = ERR_INIT;
	cudnnHandle_t handle;
	float scale = (float)(1 / sqrt(s->dim)), masked = -INFINITY, one = 1,
	      hidden = DNN_HIDDEN_SCORE;
	int pieces = 0, tensors = s->starts ? 15 : 13;
	assert_int_equal(dnn_load(&dnn, &e), 0);
	assert_int_equal(dnn->Create(&handle), CUDNN_STATUS_SUCCESS);
	assert_int_equal(dnn->SetStream(handle, backend_stream(r->k)), CUDNN_STATUS_SUCCESS);
	dnn_graph_init(g, dnn);
	dnn_attention_bwd(g, &a);
	if (dnn_plan_make(g, handle, ATTENTION_ROOM_MOST, &plan, &e))
		fail_msg("%s", e.text);
	int64_t sums = 4 * piece.batch * piece.heads * s->q_len;
	assert_true(plan.workspace + sums <= attention_room(&piece, s->q_len, s->k_len, s->dim));
	char *workspace = backend_alloc(r->k, (size_t)(plan.workspace + sums));
	for (int64_t b = 0; b < s->batch; b += piece.batch)
		for (int v = 0; v < s->kv_heads; v += piece.kv_heads, pieces++) {
			int64_t head = (int64_t)v * (s->heads / s->kv_heads);
			int64_t q = b * s->q_batch + head * s->dim,
				kv = b * s->kv_batch + (int64_t)v * s->dim,
				o = b * s->o_batch + head * s->dim;
			void *at[] = { device(r, QKV, q),
				       device(r, QKV, key_at(s) + kv),
				       device(r, QKV, value_at(s) + kv),
				       device(r, O, o),
				       r->device_lse + (b * s->heads + head) * s->q_len,
				       &scale,
				       &masked,
				       device(r, DOUT, o),
				       device(r, DQKV, q),
				       device(r, DQKV, key_at(s) + kv),
				       device(r, DQKV, value_at(s) + kv),
				       workspace + plan.workspace,
				       &one,
				       r->device_starts + b * s->starts_batch,
				       &hidden };
			assert_int_equal(dnn_plan_run(dnn, handle, &plan, ids, at, tensors,
						      workspace),
					 CUDNN_STATUS_SUCCESS);
		}
	assert_int_equal(backend_sync(r->k, NULL), 0);
	backend_free(r->k, workspace);
	dnn_graph_fini(g);
	free(g);
	dnn->Destroy(handle);
	return pieces;
}

/* After check_forward or reference_forward. */
static void check_gradients(struct rig *r)
{
	const struct attn_shape s = reference_shape(r);
	float *qkv = r->host[QKV], *d = r->host[DQKV];
	backend_ops(r->reference)
		->attention_bwd(r->reference, d, d + key_at(&s), d + value_at(&s), r->host[DOUT],
				r->host[O], r->lse, qkv, qkv + key_at(&s), qkv + value_at(&s), &s,
				false);
	assert_true(array_error(r, DQKV) < 1e-2);
}

static void check_backward(const struct attn_shape *s, struct attention_piece piece, int pieces,
			   bool documents)
{
	struct rig r;
	open_rig(&r, "cuda:bf16", s);
	if (documents)
		give_documents(&r, 9, 3);
	run_forward(&r);
	reference_forward(&r);
	assert_int_equal(run_backward(&r, piece), pieces);
	check_gradients(&r);
	close_rig(&r);
}

static void backward_by_cudnn_agrees_with_the_reference(void **state)
{
	(void)state;
	const struct attn_shape whole = shape(2, 24, 3, 3, 16), grouped = shape(2, 33, 4, 2, 8);
	for (int documents = 0; documents < 2; documents++) {
		check_backward(&whole, (struct attention_piece){ 2, 3, 3 }, 1, documents);
		check_backward(&grouped, (struct attention_piece){ 2, 4, 2 }, 1, documents);
		check_backward(&whole, (struct attention_piece){ 1, 3, 3 }, 2, documents);
		check_backward(&grouped, (struct attention_piece){ 1, 2, 1 }, 4, documents);
	}
}

static void an_engine_whose_results_vary_is_refused(void **state)
{
	(void)state;
	const struct attn_shape s = shape(1, 24, 2, 2, 16);
	struct dnn_attention a = { &s, { 1, 2, 2 }, true, CUDNN_DATA_BFLOAT16 };
	struct dnn_graph *g = calloc(1, sizeof *g);
	struct dnn_plan plan;
	const struct dnn *dnn;
	cudnnHandle_t handle;
	for (int varies = 0; varies < 2; varies++) {
		struct err e = ERR_INIT;
		if (varies)
			setenv("MUSTER_DOUBLE_CUDNN", "varies", 1);
		assert_int_equal(dnn_load(&dnn, &e), 0);
		assert_int_equal(dnn->Create(&handle), CUDNN_STATUS_SUCCESS);
		dnn_graph_init(g, dnn);
		dnn_attention_bwd(g, &a);
		int rc = dnn_plan_make(g, handle, ATTENTION_ROOM_MOST, &plan, &e);
		assert_int_equal(rc, varies ? -1 : 0);
		assert_true(varies ? strstr(e.text, "deterministic") != NULL : plan.engine == 6);
		dnn_graph_fini(g);
		dnn->Destroy(handle);
	}
	free(g);
}

/* --- Choices ------------------------------------------------------------------------------ */

static void run_gradients(struct rig *r, bool add)
{
	const struct attn_shape *s = &r->s;
	backend_ops(r->k)->attention_bwd(r->k, r->at[DQKV], device(r, DQKV, key_at(s)),
					 device(r, DQKV, value_at(s)), r->at[DOUT], r->at[O],
					 r->device_lse, r->at[QKV], device(r, QKV, key_at(s)),
					 device(r, QKV, value_at(s)), s, add);
}

/* Both passes once; returns how often cuDNN ran. */
static int both_passes(struct rig *r)
{
	int before = ran();
	run_forward(r);
	check_forward(r);
	run_gradients(r, false);
	check_gradients(r);
	return ran() - before;
}

static void measure_with(struct rig *r, const struct attn_shape *s, enum choices_mode mode,
			 double own, double dnn)
{
	double_virtual_clock = true;
	double_kernel_seconds = own;
	double_cudnn_seconds = dnn;
	open_rig(r, "cuda:bf16", s);
	choices_set_mode(backend_choices(r->k), mode);
}

static void the_faster_way_is_measured_once_and_kept(void **state)
{
	(void)state;
	const struct attn_shape s = shape(2, 40, 4, 2, 16);
	const char *key, *note;
	struct rig r;
	measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	assert_true(both_passes(&r) > 2);
	int plans = double_cudnn.plans;
	assert_int_equal(both_passes(&r), 2);
	assert_int_equal(double_cudnn.plans, plans);
	assert_true(choices_at(backend_choices(r.k), 0, &key, &note));
	assert_non_null(strstr(key, "attention fwd bf16 causal b=2 q=40 k=40 heads=4/2 dim=16"));
	assert_non_null(strstr(note, "cuDNN 100.0 us, engine 2"));
	assert_true(choices_at(backend_choices(r.k), 1, &key, &note));
	assert_non_null(strstr(key, "attention bwd"));
	assert_non_null(strstr(note, "cuDNN 100.0 us, engine 6"));
	close_rig(&r);

	measure_with(&r, &s, CHOICES_MEASURED, 1e-5, 1e-2);
	both_passes(&r);
	assert_int_equal(both_passes(&r), 0);
	close_rig(&r);
}

/* Proposals change nothing until the ranks agree. */
static void ranks_use_what_they_agreed_on(void **state)
{
	(void)state;
	const struct attn_shape s = shape(2, 40, 4, 2, 16);
	struct buf text = BUF_INIT;
	struct rig r, other;
	measure_with(&r, &s, CHOICES_PROPOSED, 1e-3, 1e-4);
	both_passes(&r);
	assert_int_equal(both_passes(&r), 1); /* the fixed rule */
	choices_write(backend_choices(r.k), &text);
	measure_with(&other, &s, CHOICES_FIXED, 1e-5, 1e-2);
	assert_int_equal(both_passes(&other), 1);
	choices_agree(backend_choices(r.k), text.data, text.len);
	choices_agree(backend_choices(other.k), text.data, text.len);
	assert_int_equal(both_passes(&r), 2);
	assert_int_equal(both_passes(&other), 2);
	buf_fini(&text);
	close_rig(&other);
	close_rig(&r);
}

static void a_gradient_that_is_added_has_own_kernels(void **state)
{
	(void)state;
	const struct attn_shape s = shape(2, 40, 4, 2, 16);
	struct rig r;
	measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	both_passes(&r);
	int before = ran();
	run_gradients(&r, true);
	assert_int_equal(ran(), before);
	for (int64_t i = 0; i < r.count[DQKV]; i++)
		r.host[DQKV][i] *= 2;
	assert_true(array_error(&r, DQKV) < 1e-2);
	close_rig(&r);
}

/* The library loses its plan in the middle of the contest, or has none. */
static void what_fails_while_it_is_measured_is_not_chosen(void **state)
{
	(void)state;
	static const char *const words[] = { "fails", "varies", "wide" };
	const struct attn_shape s = shape(2, 40, 4, 2, 16);
	struct rig r;
	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
		setenv("MUSTER_DOUBLE_CUDNN", words[i], 1);
		measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
		int backward = double_cudnn.backward;
		both_passes(&r);
		assert_int_equal(double_cudnn.backward, backward);
		close_rig(&r);
	}
}

/* What follows the workspace is aligned, whatever its size. */
static void a_workspace_may_have_any_size(void **state)
{
	(void)state;
	const struct attn_shape s = shape(2, 40, 4, 2, 16);
	struct rig r;
	setenv("MUSTER_DOUBLE_CUDNN", "uneven", 1);
	measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	both_passes(&r);
	assert_int_equal(both_passes(&r), 2);
	close_rig(&r);
}

/* With zeros, both ways take another time than with numbers. */
static void zeros_are_not_measured(void **state)
{
	(void)state;
	const struct attn_shape s = shape(2, 40, 4, 2, 16);
	const char *key, *note;
	struct rig r;
	measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	backend_zero(r.k, r.at[QKV], (size_t)r.count[QKV] * 2);
	run_forward(&r);
	assert_false(choices_at(backend_choices(r.k), 0, &key, &note));
	put_bf16(&r, QKV);
	run_forward(&r);
	assert_true(choices_at(backend_choices(r.k), 0, &key, &note));
	check_forward(&r);
	close_rig(&r);
}

/* As with context parallelism: the last of 4 pieces of a longer array, behind which are zeros. What
 * is beyond a piece's rows belongs to others. */
static void a_piece_of_a_sequence_is_looked_at_where_it_is(void **state)
{
	(void)state;
	enum { LEN = 8, PIECES = 4 };
	struct attn_shape s = shape(1, LEN * PIECES, 2, 2, 16);
	const int64_t last = s.q_row * LEN * (PIECES - 1);
	const char *key, *note;
	struct rig r;
	s.q_batch = s.kv_batch = s.q_row * LEN * PIECES * 2; /* half of it is zeros */
	measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	backend_zero(r.k, device(&r, QKV, last + s.q_row * LEN), (size_t)(s.q_batch / 2) * 2);
	s.q_len = s.k_len = LEN;
	backend_ops(r.k)->attention_fwd(r.k, r.at[O], r.device_lse, device(&r, QKV, last),
					device(&r, QKV, last + key_at(&s)),
					device(&r, QKV, last + value_at(&s)), &s);
	assert_true(choices_at(backend_choices(r.k), 0, &key, &note));
	close_rig(&r);
}

/* The kept way is taken again when another one is put in its place (tests/gpu/kernels.c). */
static void a_choice_that_is_replaced_is_used_at_once(void **state)
{
	(void)state;
	const struct attn_shape s = shape(2, 40, 4, 2, 16);
	const char *key, *note, *const ways[] = { "own", "cudnn" };
	char name[CHOICES_TEXT];
	struct rig r;
	measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	run_forward(&r);
	assert_true(choices_at(backend_choices(r.k), 0, &key, &note));
	snprintf(name, sizeof name, "%s", key);
	for (int i = 0; i < 4; i++) {
		int before = ran();
		choices_put(backend_choices(r.k), name, ways[i % 2], strlen(ways[i % 2]));
		run_forward(&r);
		assert_int_equal(ran() - before, i % 2);
	}
	close_rig(&r);
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
	const struct attn_shape s = shape(2, 40, 4, 2, 16);
	struct rig r;
	measure_with(&r, &s, CHOICES_MEASURED, 1e-5, 1e-2);
	int before = ran();
	backend_zero(r.k, r.at[QKV], (size_t)r.count[QKV] * 2);
	run_forward(&r);
	assert_int_equal(ran(), before + 1);
	put_bf16(&r, QKV);
	run_forward(&r);
	check_forward(&r);
	before = ran();
	run_forward(&r);
	check_forward(&r);
	assert_int_equal(ran(), before);
	close_rig(&r);
}

/* --- Documents ---------------------------------------------------------------------------- */

static void documents_by_cudnn_agree_with_the_reference(void **state)
{
	(void)state;
	const struct {
		struct attn_shape s;
		int64_t longest;
	} rows[] = {
		{ shape(2, 48, 3, 3, 16), 7 },    /* several per tile */
		{ shape(2, 33, 4, 2, 8), 30 },    /* and heads that share keys */
		{ shape(3, 40, 4, 1, 16), 1 },    /* each token is one */
		{ shape(1, 70, 2, 1, 16), 4 },    /* their first tiles have only hidden keys */
		{ shape(2, 20, 2, 2, 8), 10000 }, /* each sequence is one, or nearly so */
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct rig r;
		measure_with(&r, &rows[i].s, CHOICES_MEASURED, 1e-3, 1e-4);
		give_documents(&r, rows[i].longest, (uint32_t)i);
		assert_true(both_passes(&r) > 2);
		for (uint32_t again = 1; again < 3; again++) {
			fill_starts(&r, rows[i].longest, again * 100);
			assert_int_equal(both_passes(&r), 2);
		}
		close_rig(&r);
	}
}

/* The same sizes without documents are another choice. */
static void documents_are_a_choice_of_their_own(void **state)
{
	(void)state;
	const struct attn_shape s = shape(2, 40, 4, 2, 16);
	const char *key, *note;
	struct rig r;
	measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	both_passes(&r);
	give_documents(&r, 9, 4);
	double_kernel_seconds = 1e-6;
	both_passes(&r);
	assert_int_equal(both_passes(&r), 0);
	assert_true(choices_at(backend_choices(r.k), 2, &key, &note));
	assert_non_null(strstr(key, "attention fwd bf16 documents b=2 q=40"));
	assert_true(choices_at(backend_choices(r.k), 3, &key, &note));
	assert_non_null(strstr(key, "attention bwd bf16 documents b=2 q=40"));
	r.s.starts = NULL;
	free(r.starts);
	r.starts = NULL;
	assert_int_equal(both_passes(&r), 2);
	close_rig(&r);
}

/* Other documents, and another number of them, in the same memory. */
static void a_recorded_graph_follows_the_documents(void **state)
{
	(void)state;
	const struct attn_shape s = shape(2, 40, 4, 2, 16);
	struct backend_graph *graph;
	struct rig r;
	measure_with(&r, &s, CHOICES_MEASURED, 1e-3, 1e-4);
	give_documents(&r, 9, 4);
	both_passes(&r);
	int before = ran();
	assert_true(backend_graph_begin(r.k));
	run_forward(&r);
	run_gradients(&r, false);
	assert_int_equal(backend_graph_end(r.k, &graph, NULL), 0);
	assert_int_equal(ran(), before + 2);
	for (int longest = 1; longest < 60; longest += 20) {
		fill_starts(&r, longest, 7);
		backend_graph_replay(r.k, graph);
		check_forward(&r);
		check_gradients(&r);
	}
	backend_graph_free(r.k, graph);
	close_rig(&r);
}

static void run_and_check(struct rig *r, int by_cudnn)
{
	both_passes(r);
	assert_int_equal(both_passes(r), by_cudnn);
	close_rig(r);
}

/* Keys whose index is not their position, and devices whose engines have no such mask backward. */
static void documents_that_cudnn_does_not_compute_have_own_kernels(void **state)
{
	(void)state;
	struct attn_shape later = shape(2, 24, 2, 2, 16), whole = later;
	struct rig r;
	later.q_first = later.k_first = 5;
	later.seq = 48;
	measure_with(&r, &later, CHOICES_MEASURED, 1e-3, 1e-4);
	give_documents(&r, 9, 4);
	run_and_check(&r, 0);

	setenv("MUSTER_EMULATE_SM", "80", 1);
	measure_with(&r, &whole, CHOICES_MEASURED, 1e-3, 1e-4);
	run_and_check(&r, 2);
	measure_with(&r, &whole, CHOICES_MEASURED, 1e-3, 1e-4);
	give_documents(&r, 9, 4);
	run_and_check(&r, 1);
	unsetenv("MUSTER_EMULATE_SM");
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
	} rows[] = {
		{ 32, 12, 12, 1024, 64, { 32, 12, 12 } }, /* GPT-2 124M: 770 MiB */
		{ 8, 32, 8, 2048, 64, { 2, 32, 8 } },     /* LLaMA 1B: 2.2 GB as a whole */
		{ 1, 32, 8, 8192, 128, { 1, 4, 1 } },     /* a long sequence: groups of heads */
		{ 6, 32, 32, 4096, 64, { 1, 16, 16 } },   /* equal parts of 32 */
		{ 1, 32, 4, 32768, 128, { 0, 0, 0 } },    /* one group needs 17 GB */
	};
	for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
		struct attention_piece p = attention_piece_of(rows[i].batch, rows[i].heads,
							      rows[i].kv_heads, rows[i].len,
							      rows[i].len, rows[i].dim);
		assert_int_equal(p.batch, rows[i].piece.batch);
		assert_int_equal(p.heads, rows[i].piece.heads);
		assert_int_equal(p.kv_heads, rows[i].piece.kv_heads);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(forward_by_cudnn_agrees_with_the_reference, setup,
						teardown),
		cmocka_unit_test_setup_teardown(pieces_of_sequences_are_masked_where_they_meet,
						setup, teardown),
		cmocka_unit_test_setup_teardown(what_cudnn_does_not_compute_has_own_kernels, setup,
						teardown),
		cmocka_unit_test_setup_teardown(documents_that_were_not_measured_have_own_kernels,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_shape_is_planned_once, setup, teardown),
		cmocka_unit_test_setup_teardown(a_recorded_graph_repeats_cudnn, setup, teardown),
		cmocka_unit_test_setup_teardown(cudnn_that_fails_leaves_own_kernels, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_failure_is_reported_once, setup, teardown),
		cmocka_unit_test_setup_teardown(a_plan_that_failed_is_kept_until_the_end, setup,
						teardown),
		cmocka_unit_test_setup_teardown(closing_waits_for_the_device, setup, teardown),
		cmocka_unit_test_setup_teardown(an_old_cudnn_is_refused_by_its_version, setup,
						teardown),
		cmocka_unit_test_setup_teardown(backward_by_cudnn_agrees_with_the_reference, setup,
						teardown),
		cmocka_unit_test_setup_teardown(an_engine_whose_results_vary_is_refused, setup,
						teardown),
		cmocka_unit_test_setup_teardown(the_faster_way_is_measured_once_and_kept, setup,
						teardown),
		cmocka_unit_test_setup_teardown(ranks_use_what_they_agreed_on, setup, teardown),
		cmocka_unit_test_setup_teardown(a_gradient_that_is_added_has_own_kernels, setup,
						teardown),
		cmocka_unit_test_setup_teardown(what_fails_while_it_is_measured_is_not_chosen,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_workspace_may_have_any_size, setup, teardown),
		cmocka_unit_test_setup_teardown(zeros_are_not_measured, setup, teardown),
		cmocka_unit_test_setup_teardown(a_piece_of_a_sequence_is_looked_at_where_it_is,
						setup, teardown),
		cmocka_unit_test_setup_teardown(a_choice_that_is_replaced_is_used_at_once, setup,
						teardown),
		cmocka_unit_test_setup_teardown(the_machine_has_the_librarys_version, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_way_that_a_later_use_measured_is_used_at_once,
						setup, teardown),
		cmocka_unit_test_setup_teardown(documents_by_cudnn_agree_with_the_reference, setup,
						teardown),
		cmocka_unit_test_setup_teardown(documents_are_a_choice_of_their_own, setup,
						teardown),
		cmocka_unit_test_setup_teardown(a_recorded_graph_follows_the_documents, setup,
						teardown),
		cmocka_unit_test_setup_teardown(
			documents_that_cudnn_does_not_compute_have_own_kernels, setup, teardown),
		cmocka_unit_test(a_pass_is_split_into_equal_pieces_that_fit),
	};
	return cmocka_run_group_tests_name("attention by cuDNN", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT_CUDA("attention by cuDNN")

#endif
