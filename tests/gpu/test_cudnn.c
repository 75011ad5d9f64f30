/*
 * The operation graphs of attention against the real cuDNN, without a GPU: the library takes the
 * properties of an H200 as text (CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION), finalizes tensors,
 * operations and graphs, and its heuristic lists the engines that support them on that device, with
 * their notes and workspace. A plan is generated and compiled, and only then handed to the driver,
 * whose stub refuses it. Whether plans can be loaded and run needs a GPU: make check-gpu.
 *
 * The library asks for CUDA's driver; the toolkit's stub of it suffices. Skipped by name where
 * either is missing, or where the library is not of the version whose sizes are known.
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

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

/* The keys are those of cuDNN 9.19. */
static const char h200[] =
	"{\"cudaDeviceId\":0,\"deviceVer\":900,\"driverVer\":13000,\"totalGlobalMem\":150000000000,"
	"\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
	"\"regsPerBlock\":65536,\"multiProcessorCount\":132,\"warpSize\":32,"
	"\"maxSharedMemoryPerBlock\":49152,\"maxSharedMemoryPerBlockOptin\":232448,"
	"\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
	"\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,"
	"\"isTccDriver\":0,\"supportCoopLaunch\":1,\"smClockRateKHz\":1980000,"
	"\"memClockRateKHz\":3201000,\"l2CacheSize\":62914560,\"deviceName\":\"NVIDIA H200\"}";

enum { KNOWN = 91900, CONFIGS = 8 };

#ifdef __SANITIZE_ADDRESS__
/* The library keeps what it compiled, in modules that it unloads. */
const char *__lsan_default_options(void);
const char *__lsan_default_options(void)
{
	return "detect_leaks=0";
}
#endif

static const struct dnn *dnn;
static cudnnBackendDescriptor_t device;

static cudnnBackendDescriptor_t create(cudnnBackendDescriptorType_t type)
{
	cudnnBackendDescriptor_t d;
	assert_int_equal(dnn->BackendCreateDescriptor(type, &d), CUDNN_STATUS_SUCCESS);
	return d;
}

static void set(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
		cudnnBackendAttributeType_t type, int64_t count, const void *value)
{
	assert_int_equal(dnn->BackendSetAttribute(d, name, type, count, value),
			 CUDNN_STATUS_SUCCESS);
}

/* The library and the device, or a skipped test. */
static void open_library(void)
{
	struct err e = ERR_INIT;
	if (device)
		return;
	if (!dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) &&
	    !dlopen(CUDA_STUB, RTLD_NOW | RTLD_GLOBAL)) {
		print_message("no driver of CUDA, nor the toolkit's stub of it\n");
		skip();
	}
	if (dnn_load(&dnn, &e) < 0) {
		print_message("%s\n", e.text);
		skip();
	}
	if (dnn->GetVersion() / 100 != KNOWN / 100) {
		print_message("cuDNN %zu is another version than 9.19\n", dnn->GetVersion());
		skip();
	}
	cudnnBackendDescriptor_t d = create(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
	set(d, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, sizeof h200 - 1, h200);
	assert_int_equal(dnn->BackendFinalize(d), CUDNN_STATUS_SUCCESS);
	device = d;
}

static bool noted(cudnnBackendDescriptor_t engine, cudnnBackendNumericalNote_t note)
{
	cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
	int64_t n = 0;
	dnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
				 CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &n,
				 notes);
	for (int64_t i = 0; i < n; i++)
		if (notes[i] == note)
			return true;
	return false;
}

static cudnnBackendDescriptor_t heuristic_of(const struct dnn_graph *g,
					     cudnnBackendDescriptor_t graph)
{
	const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
	cudnnBackendDescriptor_t h = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
	set(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->operation_count,
	    g->operations);
	assert_int_equal(dnn->BackendFinalize(graph), CUDNN_STATUS_SUCCESS);
	set(h, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &graph);
	set(h, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
	set(h, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
	return dnn->BackendFinalize(h) == CUDNN_STATUS_SUCCESS ? h : NULL;
}

/* Of the first engine that the heuristic lists; -1: it lists none. */
struct answer {
	int64_t engine, workspace;
	bool varies;
	cudnnStatus_t plan; /* of a plan, if one is asked for */
};

static cudnnStatus_t plan_of(cudnnBackendDescriptor_t config)
{
	cudnnBackendDescriptor_t plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
	set(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &device);
	set(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
	    &config);
	cudnnStatus_t rc = dnn->BackendFinalize(plan);
	dnn->BackendDestroyDescriptor(plan);
	return rc;
}

static struct answer answer_of(cudnnBackendDescriptor_t heuristic, bool planned)
{
	cudnnBackendDescriptor_t configs[CONFIGS], engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
	struct answer a = { .engine = -1, .workspace = -1 };
	int64_t count = 0, n = 0;
	for (int i = 0; i < CONFIGS; i++)
		configs[i] = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
	dnn->BackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
				 CUDNN_TYPE_BACKEND_DESCRIPTOR, CONFIGS, &count, configs);
	if (count > 0) {
		dnn->BackendGetAttribute(configs[0], CUDNN_ATTR_ENGINECFG_ENGINE,
					 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n, &engine);
		dnn->BackendGetAttribute(configs[0], CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE,
					 CUDNN_TYPE_INT64, 1, &n, &a.workspace);
		dnn->BackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64,
					 1, &n, &a.engine);
		a.varies = noted(engine, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
		if (planned)
			a.plan = plan_of(configs[0]);
	}
	for (int i = 0; i < CONFIGS; i++)
		dnn->BackendDestroyDescriptor(configs[i]);
	dnn->BackendDestroyDescriptor(engine);
	return a;
}

static struct answer ask_for(const struct dnn_attention *a, bool backward, bool planned)
{
	struct dnn_graph *g = calloc(1, sizeof *g);
	struct answer answer = { .engine = -1, .workspace = -1 };
	dnn_graph_init(g, dnn);
	if (backward)
		dnn_attention_bwd(g, a);
	else
		dnn_attention_fwd(g, a);
	assert_int_equal(g->rc, CUDNN_STATUS_SUCCESS);
	cudnnBackendDescriptor_t graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR),
				 heuristic = heuristic_of(g, graph);
	if (heuristic) {
		answer = answer_of(heuristic, planned);
		dnn->BackendDestroyDescriptor(heuristic);
	}
	dnn->BackendDestroyDescriptor(graph);
	dnn_graph_fini(g);
	free(g);
	return answer;
}

static struct answer ask(const struct dnn_attention *a, bool backward)
{
	return ask_for(a, backward, false);
}

/* The backward pass with sums in any order. */
static struct answer ask_any_order(struct dnn_attention a)
{
	a.any_order = true;
	return ask(&a, true);
}

/* Fused rows, as in training. */
static struct attn_shape shape(int64_t batch, int64_t len, int heads, int kv_heads, int dim)
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
				    .o_batch = (int64_t)heads * dim * len };
}

/* The same with documents. The graph holds no address. */
static struct attn_shape with_documents(struct attn_shape s)
{
	static const int32_t somewhere;
	s.starts = &somewhere;
	s.starts_batch = s.q_len;
	return s;
}

static const struct {
	int64_t batch, len;
	int heads, kv_heads, dim;
} sizes[] = {
	{ 32, 1024, 12, 12, 64 }, { 8, 2048, 32, 8, 64 }, { 8, 2048, 16, 4, 128 },
	{ 2, 100, 4, 2, 64 },     { 2, 129, 4, 4, 40 },   { 2, 256, 2, 2, 256 },
	{ 2, 37, 2, 1, 16 },
};
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void the_library_has_engines_for_both_passes(void **state)
{
	(void)state;
	static const cudnnDataType_t types[] = { CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF };
	open_library();
	for (int i = 0; i < SIZES * 4; i++) {
		int n = i / 4;
		struct attn_shape s = shape(sizes[n].batch, sizes[n].len, sizes[n].heads,
					    sizes[n].kv_heads, sizes[n].dim);
		struct dnn_attention a = {
			&s, { s.batch, s.heads, s.kv_heads }, i % 2 == 0, types[i / 2 % 2], false
		};
		struct answer fwd = ask(&a, false), bwd = ask(&a, true), any = ask_any_order(a);
		assert_true(fwd.engine >= 0 && !fwd.varies);
		assert_true(bwd.engine >= 0 && !bwd.varies);
		assert_int_equal(any.engine, bwd.engine);
	}
}

/* With the engines and the workspace of a causal mask alone, which the planner knows. */
static void documents_change_neither_engine_nor_workspace(void **state)
{
	(void)state;
	static const cudnnDataType_t types[] = { CUDNN_DATA_BFLOAT16, CUDNN_DATA_HALF };
	open_library();
	for (int i = 0; i < SIZES * 4; i++) {
		int n = i / 4;
		bool backward = i % 2;
		struct attn_shape plain = shape(sizes[n].batch, sizes[n].len, sizes[n].heads,
						sizes[n].kv_heads, sizes[n].dim),
				  s = with_documents(plain);
		struct attention_piece all = { s.batch, s.heads, s.kv_heads };
		struct dnn_attention without = { &plain, all, true, types[i / 2 % 2], false },
				     with = { &s, all, true, types[i / 2 % 2], false };
		struct answer a = ask(&without, backward), b = ask(&with, backward);
		assert_true(b.engine >= 0 && !b.varies);
		assert_int_equal(b.engine, a.engine);
		assert_int_equal(b.workspace, a.workspace);
		a = ask_any_order(without);
		b = ask_any_order(with);
		assert_int_equal(b.engine, a.engine);
		assert_int_equal(b.workspace, a.workspace);
	}
}

/* CUDA's driver is all that refuses the kernels. */
static void plans_with_documents_are_compiled(void **state)
{
	(void)state;
	struct attn_shape s = with_documents(shape(8, 2048, 16, 4, 128));
	struct dnn_attention a = { &s, { 2, 16, 4 }, true, CUDNN_DATA_BFLOAT16, false };
	open_library();
	for (int backward = 0; backward < 2; backward++) {
		cudnnStatus_t plan = ask_for(&a, backward, true).plan;
		assert_true(plan == CUDNN_STATUS_SUCCESS ||
			    plan == CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER);
	}
}

/* base/attention_room.h: with the sums, which are muster's, and at most 512 bytes. */
static void the_workspace_is_what_the_planner_expects(void **state)
{
	(void)state;
	open_library();
	for (int i = 0; i < 2 * SIZES; i++) {
		int n = i / 2;
		struct attn_shape s = shape(sizes[n].batch, sizes[n].len, sizes[n].heads,
					    sizes[n].kv_heads, sizes[n].dim);
		struct attention_piece piece = { s.batch, s.heads, s.kv_heads };
		if (i % 2)
			piece = (struct attention_piece){ 1, s.heads / s.kv_heads, 1 };
		struct dnn_attention a = { &s, piece, true, CUDNN_DATA_BFLOAT16, false };
		struct answer bwd = ask(&a, true);
		int64_t sums = 4 * piece.batch * piece.heads * s.q_len,
			room = attention_room(&piece, s.q_len, s.k_len, s.dim, false);
		assert_in_range(room - sums - bwd.workspace, 0, 512);
		int64_t dq = sums * s.dim, any = ask_any_order(a).workspace;
		room = attention_room(&piece, s.q_len, s.k_len, s.dim, true);
		/* dq in fp32 once more, of other engines, whose rows are a multiple of 8 */
		assert_in_range(room - sums - 2 * dq - any, 0,
				512 + 8 * 8 * sums / s.q_len * s.dim);
		assert_true(ask(&a, false).workspace <= 512);
	}
}

/* The graph without the pattern is not a graph of attention. */
static void another_pattern_is_not_recognized(void **state)
{
	(void)state;
	struct attn_shape s = shape(2, 128, 2, 2, 12);
	struct dnn_attention a = { &s, { 2, 2, 2 }, true, CUDNN_DATA_BFLOAT16, false };
	open_library();
	assert_int_equal(ask(&a, true).engine, -1);
	s = with_documents(s);
	assert_int_equal(ask(&a, true).engine, -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_library_has_engines_for_both_passes),
		cmocka_unit_test(documents_change_neither_engine_nor_workspace),
		cmocka_unit_test(plans_with_documents_are_compiled),
		cmocka_unit_test(the_workspace_is_what_the_planner_expects),
		cmocka_unit_test(another_pattern_is_not_recognized),
	};
	return cmocka_run_group_tests_name("cuDNN's engines for attention", tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT("the headers of CUDA 12 or newer and of cuDNN 9 were",
		"cuDNN's engines for attention")

#endif
