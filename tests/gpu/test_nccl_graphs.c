/*
 * Collectives and messages of NCCL inside graphs of the device (comm_graph_begin in
 * libcomm/comm.h), over doubles of CUDA's runtime and of NCCL. A replay gives what the calls give,
 * mixed with calls that are not recorded. It is numbered and noted like calls; a rank that is
 * missing is named in the time that calls have, and no graph is launched after the end of its
 * communicators.
 */
#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_NCCL

#include "libcomm/device/cuda/cuda.h"
#include "libcomm/device/native.h"
#include "tests/gpu/doubles/collectives.h"
#include "tests/gpu/doubles/runtime.h"
#include "tests/unit/libcomm/ranks.h"
#include "tests/unit/libcomm/ranks_hurry.h"

enum { COUNT = 100, LAUNCHES = 90, OPS = 8 /* of a step */, LAUNCHES_MAX = 4096 };

/* A rank's groups, stream and buffers, and its graph. */
struct scene {
	struct comm *all, *half, *early;
	cudaStream_t stream;
	int64_t *data, *parts, *whole; /* [COUNT], [COUNT / 4], [COUNT / 2] in device memory */
	int64_t *other;                /* [COUNT / 4], the parts of the other rank of the half */
	int64_t *same, *sum;           /* [COUNT], of `early`, from before the graph */
	int64_t *here;                 /* [COUNT], pinned */
	cudaGraphExec_t exec;
	struct comm_graph *graph;
	struct comm_request *open; /* when the recording has ended */
	struct comm_request *started;
	bool again; /* the graph was launched before */
};

static int open_scene(struct comm *world, struct scene *s)
{
	struct err e = ERR_INIT;
	int me = comm_rank(world);
	struct comm_device_options opt = { .device = muster_comm_cuda(),
					   .backend = "nccl",
					   .index = me };
	*s = (struct scene){ .all = NULL };
	RANK_CHECK(cudaSetDevice(me) == cudaSuccess &&
			   cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking) ==
				   cudaSuccess &&
			   cudaMalloc((void **)&s->data, COUNT * 8) == cudaSuccess &&
			   cudaMalloc((void **)&s->parts, COUNT * 8) == cudaSuccess &&
			   cudaMalloc((void **)&s->whole, COUNT * 8) == cudaSuccess &&
			   cudaMalloc((void **)&s->other, COUNT * 8) == cudaSuccess &&
			   cudaMalloc((void **)&s->same, COUNT * 8) == cudaSuccess &&
			   cudaMalloc((void **)&s->sum, COUNT * 8) == cudaSuccess &&
			   cudaMallocHost((void **)&s->here, COUNT * 8) == cudaSuccess,
		   "no device");
	RANK_CHECK(comm_on_device(world, &opt, "gpu", &s->all, &e) == 0, "%s", e.text);
	comm_stream(s->all, s->stream);
	RANK_CHECK(comm_split(s->all, me % 2, 0, "half", &s->half, &e) == 0 &&
			   comm_split(s->all, 0, 0, "early", &s->early, &e) == 0 &&
			   comm_graph_prepare(s->early, &e) == 0,
		   "%s", e.text);
	return 0;
}

static void close_scene(struct scene *s)
{
	if (s->exec)
		cudaGraphExecDestroy(s->exec);
	comm_graph_free(s->graph);
	comm_close(s->early);
	comm_close(s->half);
	comm_close(s->all);
	cudaStreamSynchronize(s->stream);
	cudaStreamDestroy(s->stream);
	cudaFree(s->data);
	cudaFree(s->parts);
	cudaFree(s->whole);
	cudaFree(s->other);
	cudaFree(s->same);
	cudaFree(s->sum);
	cudaFreeHost(s->here);
}

/* Sums the data over all, before the graph that waits for it. */
static int start_early(struct scene *s, struct err *e)
{
	return comm_all_reduce_start(s->early, s->same, s->sum, COUNT, COMM_I64, COMM_SUM,
				     &s->started, e);
}

static int wait_early(struct scene *s, struct err *e)
{
	struct comm_request *req = s->started;
	s->started = NULL;
	return comm_wait(req, e);
}

/* The last part of the calls, whose request stays open. */
static int start_last(struct scene *s, struct err *e)
{
	return comm_all_reduce_start(s->half, s->whole, s->whole, COUNT / 4, COMM_I64, COMM_SUM,
				     &s->open, e);
}

/* Exchanges the parts with the other rank of the half. */
static int start_exchange(struct scene *s, struct comm_request **req, struct err *e)
{
	int peer = 1 - comm_rank(s->half);
	const struct comm_p2p ops[] = {
		{ true, { s->parts }, COUNT / 4, COMM_I64, peer },
		{ false, { s->other }, COUNT / 4, COMM_I64, peer },
	};
	return comm_batch_send_recv_start(s->half, ops, 2, req, e);
}

/* Sums `data` over all; sums its quarters over the half into `parts`; gathers these into
 * `whole`, and the other rank's into `other`. */
static int calls(struct scene *s, struct err *e)
{
	struct comm_request *req, *message;
	if (comm_all_reduce(s->all, s->data, s->data, COUNT, COMM_I64, COMM_SUM, e) ||
	    comm_reduce_scatter_start(s->half, s->data, s->parts, COUNT / 4, COMM_I64, COMM_SUM,
				      &req, e))
		return -1;
	if (comm_wait(req, e) || wait_early(s, e))
		return -1;
	/* The early sum is this one. */
	cudaMemcpyAsync(s->here, s->sum, COUNT * 8, cudaMemcpyDeviceToHost, s->stream);
	if (start_exchange(s, &message, e) || comm_barrier(s->all, e) ||
	    comm_all_gather_start(s->half, s->parts, s->whole, COUNT / 4, COMM_I64, &req, e) ||
	    comm_all_reduce(s->all, s->data, s->data, COUNT, COMM_I64, COMM_MAX, e))
		return -1;
	return comm_wait(req, e) || comm_wait(message, e) || start_last(s, e) ? -1 : 0;
}

/* Step n's data of a rank. */
static int64_t element(int rank, int n, int i)
{
	return rank * 1000 + n * 7 + i;
}

static void fill(struct scene *s, int n)
{
	int64_t *mine;
	int me = comm_rank(s->all);
	cudaMallocHost((void **)&mine, COUNT * 8);
	for (int i = 0; i < COUNT; i++)
		mine[i] = element(me, n, i);
	cudaMemcpyAsync(s->data, mine, COUNT * 8, cudaMemcpyHostToDevice, s->stream);
	cudaMemcpyAsync(s->same, mine, COUNT * 8, cudaMemcpyHostToDevice, s->stream);
	cudaStreamSynchronize(s->stream);
	cudaFreeHost(mine);
}

static int check_results(struct scene *s, int n)
{
	int64_t whole[COUNT / 2], other[COUNT / 4];
	int first = (1 - comm_rank(s->half)) * COUNT / 4;
	cudaMemcpyAsync(other, s->other, sizeof other, cudaMemcpyDeviceToHost, s->stream);
	cudaMemcpyAsync(whole, s->whole, sizeof whole, cudaMemcpyDeviceToHost, s->stream);
	cudaStreamSynchronize(s->stream);
	for (int i = 0; i < COUNT; i++) {
		int64_t sum = 0;
		for (int r = 0; r < 4; r++)
			sum += element(r, n, i);
		RANK_CHECK(s->here[i] == sum, "step %d: sum %d is %lld, not %lld", n, i,
			   (long long)s->here[i], (long long)sum);
		bool others = i >= first && i < first + COUNT / 4;
		RANK_CHECK(!others || other[i - first] == 2 * sum,
			   "step %d: the other's part %d is %lld, not %lld", n, i,
			   (long long)(others ? other[i - first] : 0), (long long)(2 * sum));
		/* Sums of two halves, and once more of the first quarter. */
		int64_t part = 2 * sum * (i < COUNT / 4 ? 2 : 1);
		RANK_CHECK(i >= COUNT / 2 || whole[i] == part, "step %d: part %d is %lld, not %lld",
			   n, i, (long long)(i < COUNT / 2 ? whole[i] : 0), (long long)part);
	}
	return 0;
}

static int record(struct scene *s)
{
	struct err e = ERR_INIT;
	cudaGraph_t graph;
	RANK_CHECK(comm_graph_begin(&s->graph, &e) == 0, "%s", e.text);
	RANK_CHECK(cudaStreamBeginCapture(s->stream, cudaStreamCaptureModeThreadLocal) ==
			   cudaSuccess,
		   "no capture");
	RANK_CHECK(calls(s, &e) == 0 && comm_graph_end(s->graph, &e) == 0, "%s", e.text);
	cudaError_t rc = cudaStreamEndCapture(s->stream, &graph);
	RANK_CHECK(rc == cudaSuccess, "%s", cudaGetErrorName(rc));
	RANK_CHECK(cudaGraphInstantiate(&s->exec, graph, 0) == cudaSuccess, "no graph");
	cudaGraphDestroy(graph);
	return 0;
}

/* Announces a launch of the graph, and repeats its last call. The request of the recording stays
 * open. */
static int begin_launch(struct scene *s, struct err *e)
{
	struct comm_request *first = s->open;
	bool again = s->again;
	s->again = true;
	if (again && (comm_graph_repeat(s->graph, e) || wait_early(s, e) || start_last(s, e)))
		return -1;
	RANK_CHECK(!again || !s->open, "a repeated call returns a request");
	s->open = first;
	return comm_graph_launch(s->graph, e);
}

static int launch(struct scene *s, struct err *e)
{
	if (begin_launch(s, e))
		return -1;
	cudaGraphLaunch(s->exec, s->stream);
	return comm_graph_launched(s->graph, e);
}

static int run_steps(struct comm *world, struct scene *s)
{
	struct err e = ERR_INIT;
	for (int n = 0; n < LAUNCHES; n++) {
		fill(s, n);
		bool plain = n % 7 == 3;
		/* The recording has waited for the first one. */
		RANK_CHECK((!n || start_early(s, &e) == 0) &&
				   (plain ? calls(s, &e) : launch(s, &e)) == 0,
			   "step %d: %s", n, e.text);
		RANK_CHECK(plain == !!s->open || n == 0, "step %d: a request", n);
		RANK_CHECK(comm_wait(s->open, &e) == 0, "%s", e.text);
		s->open = NULL;
		if (check_results(s, n))
			return 1;
	}
	RANK_CHECK(comm_sync(s->all, &e) == 0 && comm_sync(s->half, &e) == 0, "%s", e.text);
	(void)world;
	return 0;
}

static int nothing_open(void)
{
	RANK_CHECK(double_open_comms() == 0 && double_open_things() == 0,
		   "%d communicators and %d other things are open", double_open_comms(),
		   double_open_things());
	return 0;
}

/* The calls that NCCL gets per launch of the graph, and those that the flight recorder has. */
static int check_counts(struct comm *world, struct scene *s, int64_t before, int seen_before)
{
	int seen[LAUNCHES_MAX], n = double_launches(seen, LAUNCHES_MAX) - seen_before;
	int64_t begun = comm_ops_begun(world) - before;
	(void)s;
	RANK_CHECK(n == OPS * LAUNCHES && begun == OPS * LAUNCHES,
		   "%d operations ran and %lld are noted, not %d", n, (long long)begun,
		   OPS * LAUNCHES);
	return 0;
}

static int replay(struct comm *world, void *arg)
{
	struct err e = ERR_INIT;
	struct scene s;
	int seen[LAUNCHES_MAX];
	(void)arg;
	if (open_scene(world, &s))
		return 1;
	fill(&s, 0);
	RANK_CHECK(start_early(&s, &e) == 0 && calls(&s, &e) == 0 && comm_wait(s.open, &e) == 0 &&
			   comm_sync(s.all, &e) == 0 && comm_sync(s.half, &e) == 0,
		   "%s", e.text);
	int64_t before = comm_ops_begun(world);
	int launched = double_launches(seen, LAUNCHES_MAX);
	fill(&s, 0);
	RANK_CHECK(start_early(&s, &e) == 0, "%s", e.text);
	if (record(&s))
		return 1;
	RANK_CHECK(comm_ops_begun(world) == before + 1 &&
			   double_launches(seen, LAUNCHES_MAX) == launched + 1,
		   "recording ran something");
	if (run_steps(world, &s) || check_counts(world, &s, before, launched))
		return 1;
	close_scene(&s);
	return nothing_open();
}

static void a_replay_gives_what_the_calls_give(void **state)
{
	(void)state;
	struct ranks r = { .n = 4, .timeout_s = PATIENT_WAIT_S, .fn = replay };
	assert_int_equal(ranks_run(&r), 0);
}

/* --- What cannot be recorded -------------------------------------------------------------- */

static int refuse(struct comm *world, void *arg)
{
	struct err e = ERR_INIT;
	struct scene s;
	struct comm_graph *second;
	int64_t value = 0;
	(void)arg;
	if (open_scene(world, &s))
		return 1;
	RANK_CHECK(!comm_graph_fits(world) && comm_graph_fits(s.all) && comm_graph_fits(NULL),
		   "wrong groups fit");
	RANK_CHECK(comm_graph_begin(&s.graph, &e) == 0, "%s", e.text);
	RANK_CHECK(comm_graph_begin(&second, &e) < 0 && strstr(e.text, "already"), "%s", e.text);
	RANK_CHECK(comm_all_reduce(world, &value, &value, 1, COMM_I64, COMM_SUM, &e) < 0 &&
			   strstr(e.text, "all_reduce on group world cannot be recorded"),
		   "%s", e.text);
	RANK_CHECK(comm_graph_end(s.graph, &e) == 0 && comm_graph_repeat(s.graph, &e) == 0, "%s",
		   e.text);
	RANK_CHECK(comm_barrier(s.all, &e) < 0 &&
			   strstr(e.text, "barrier on group gpu is not what the graph"),
		   "%s", e.text);
	RANK_CHECK(comm_graph_launch(s.graph, &e) == 0 && comm_graph_launched(s.graph, &e) == 0 &&
			   comm_barrier(s.all, &e) == 0 && comm_sync(s.all, &e) == 0,
		   "%s", e.text);
	close_scene(&s);
	return nothing_open();
}

static void what_is_not_the_librarys_is_refused(void **state)
{
	(void)state;
	struct ranks r = { .n = 2, .timeout_s = PATIENT_WAIT_S, .fn = refuse };
	assert_int_equal(ranks_run(&r), 0);
}

/* --- Without memory ------------------------------------------------------------------------ */

static const char failures[] = "without memory";
static _Thread_local int fail_realloc; /* so many calls on, one fails; 0: none */

/* Whether it is in this program; the doubles are in libraries. */
static bool is_ours(const void *code)
{
	Dl_info at, here;
	return dladdr(code, &at) && dladdr(failures, &here) && at.dli_fbase == here.dli_fbase;
}

void *realloc(void *p, size_t bytes)
{
	void *(*real)(void *, size_t);
	*(void **)(void *)&real = dlsym(RTLD_NEXT, "realloc");
	bool counts = fail_realloc && is_ours(__builtin_return_address(0));
	return counts && !--fail_realloc ? NULL : real(p, bytes);
}

enum { NOTES = 2 }; /* what grows for a graph's first operation */

static _Atomic int *arrived; /* so many ranks have; shared by the ranks */

static void arrive(int most)
{
	atomic_fetch_add(arrived, 1);
	while (atomic_load(arrived) < most)
		usleep(1000);
}

/* Of rank 0; the other one has opened its groups before, and leaves after. */
static int lack_memory(struct comm *world, void *arg)
{
	struct err e = ERR_INIT;
	struct scene s;
	cudaGraph_t graph = NULL;
	if (open_scene(world, &s))
		return 1;
	arrive(2);
	if (comm_rank(world) == 1) {
		arrive(4);
		close_scene(&s);
		return 0;
	}
	RANK_CHECK(comm_graph_begin(&s.graph, &e) == 0, "%s", e.text);
	RANK_CHECK(cudaStreamBeginCapture(s.stream, cudaStreamCaptureModeThreadLocal) ==
			   cudaSuccess,
		   "no capture");
	fail_realloc = *(const int *)arg;
	int rc = comm_all_reduce(s.all, s.data, s.data, COUNT, COMM_I64, COMM_SUM, &e);
	RANK_CHECK(!fail_realloc, "nothing was grown");
	RANK_CHECK(rc < 0 && strstr(e.text, "no memory for an operation in a graph"), "%s", e.text);
	comm_graph_end(s.graph, NULL);
	cudaStreamEndCapture(s.stream, &graph);
	if (graph)
		cudaGraphDestroy(graph);
	arrive(4);
	close_scene(&s);
	return 0;
}

static void an_operation_without_memory_ends_the_recording(void **state)
{
	(void)state;
	for (int at = 1; at <= NOTES; at++) {
		arrived = ranks_shared(sizeof *arrived);
		struct ranks r = {
			.n = 2, .timeout_s = PATIENT_WAIT_S, .fn = lack_memory, .arg = &at
		};
		assert_int_equal(ranks_run(&r), 0);
		munmap(arrived, sizeof *arrived);
	}
}

/* --- Faults ------------------------------------------------------------------------------- */

enum sin { NEVER_COMES, DIES };

struct fault {
	enum sin sin;
	double timeout_s;
	enum err_code code; /* at the ranks that detect it; these inform the others */
	const char *who;
};

static _Atomic int *informed; /* how many ranks have the error; shared by the ranks */

static bool names_it(const struct fault *f, const struct err *e)
{
	/* Each group has three collectives in the graph; this is its second launch. */
	bool named = strstr(e->text, f->who) &&
		     strstr(e->text, " number 4, or one up to number 6 in the same graph");
	return named && (e->code == f->code || (e->code == ERR_PEER && strstr(e->text, "gave up")));
}

/* Opens the scene up to the graph's second launch. */
static int open_second_launch(struct comm *world, struct scene *s)
{
	struct err e = ERR_INIT;
	if (open_scene(world, s))
		return 1;
	fill(s, 0);
	RANK_CHECK(start_early(s, &e) == 0, "%s", e.text);
	if (record(s))
		return 1;
	RANK_CHECK(launch(s, &e) == 0 && comm_wait(s->open, &e) == 0 &&
			   comm_sync(s->all, &e) == 0 && comm_sync(s->half, &e) == 0 &&
			   start_early(s, &e) == 0 && comm_sync(s->early, &e) == 0 &&
			   comm_barrier(world, &e) == 0,
		   "%s", e.text);
	s->open = NULL;
	return 0;
}

static int suffer(struct comm *world, void *arg)
{
	const struct fault *f = arg;
	struct err e = ERR_INIT;
	struct scene s;
	if (open_second_launch(world, &s))
		return 1;
	ranks_hurry(world, f->timeout_s);
	if (comm_rank(world) == 1 && f->sin == DIES)
		raise(SIGKILL);
	while (comm_rank(world) == 1 && atomic_load(informed) < comm_size(world) - 1)
		usleep(1000);
	int rc = launch(&s, &e);
	if (rc == 0)
		rc = comm_sync(s.all, &e);
	atomic_fetch_add(informed, 1);
	/* The late rank hears it from others, who may have heard it from others. */
	RANK_CHECK(rc < 0 && (comm_rank(world) == 1 || names_it(f, &e)), "rank %d: %s: %s",
		   comm_rank(world), err_word(e.code), e.text);
	close_scene(&s);
	return nothing_open();
}

static void a_missing_rank_is_named_during_a_replay(void **state)
{
	static const struct fault faults[] = {
		{ NEVER_COMES, 3, ERR_TIMEOUT, "(world rank 1, " },
		{ DIES, 0, ERR_PEER, "(world rank 1, " },
	};
	(void)state;
	for (size_t i = 0; i < sizeof faults / sizeof *faults; i++) {
		struct fault f = faults[i];
		informed = ranks_shared(sizeof *informed);
		struct ranks r = { .n = 4, .timeout_s = PATIENT_WAIT_S, .fn = suffer, .arg = &f };
		ranks_start(&r);
		for (int k = 0; k < r.n; k++) {
			int rc = ranks_end(&r, k);
			if (rc != (f.sin == DIES && k == 1 ? -SIGKILL : 0))
				fail_msg("fault %zu: rank %d ended with %d", i, k, rc);
		}
		munmap(r.board, sizeof *r.board);
		munmap(informed, sizeof *informed);
	}
}

/* --- An end amid a launch ----------------------------------------------------------------- */

enum {
	IDLE = 1,      /* communicators whose end comes at any time: that of `early` */
	LOOKS = 300000 /* microseconds: many looks of a watcher */
};

/* The device takes the graph at once, or not before the operations that it waits for have ended. */
enum taker { TAKES_IT, IS_FULL };

/* Until at most so many communicators are open. */
static void await_ends(int most)
{
	while (double_open_comms() > most)
		usleep(1000);
}

/* Ends the world after comm_graph_launch. */
static int abort_launch(struct comm *world, struct scene *s, enum taker device)
{
	struct err e = ERR_INIT;
	bool waited = true;
	int open = double_open_comms();
	int64_t since = clock_ns();
	RANK_CHECK(begin_launch(s, &e) == 0, "%s", e.text);
	comm_abort(world, "enough");
	if (device == TAKES_IT) {
		usleep(LOOKS);
		/* The double ends the process if a communicator of the graph has ended, as it may
		 * if this process did not run for seconds. */
		if (clock_ns() - since < LAUNCH_S * INT64_C(1000000000))
			cudaGraphLaunch(s->exec, s->stream);
	} else {
		await_ends(open - IDLE - 1);
		waited = clock_ns() - since >= LAUNCH_S * INT64_C(1000000000);
	}
	RANK_CHECK(comm_graph_launched(s->graph, &e) == 0, "%s", e.text);
	await_ends(IDLE);
	RANK_CHECK(comm_sync(s->all, &e) < 0 && e.code == ERR_ABORTED, "%s", e.text);
	RANK_CHECK(waited, "a communicator ended amid a launch");
	return 0;
}

/* Of rank 0; the others wait for it in vain until the world ends. */
static int abort_launch_first(struct comm *world, void *arg)
{
	struct err e = ERR_INIT;
	struct scene s;
	if (open_second_launch(world, &s))
		return 1;
	int rc = comm_rank(world) == 0 ? abort_launch(world, &s, *(const enum taker *)arg)
				       : !comm_barrier(world, &e);
	close_scene(&s);
	return rc ? rc : nothing_open();
}

static void run_abort_launch(enum taker device)
{
	struct ranks r = {
		.n = 4, .timeout_s = PATIENT_WAIT_S, .fn = abort_launch_first, .arg = &device
	};
	assert_int_equal(ranks_run(&r), 0);
}

static void a_communicator_does_not_end_amid_a_launch(void **state)
{
	(void)state;
	run_abort_launch(TAKES_IT);
}

static void a_launch_that_the_device_does_not_take_delays_the_end_only(void **state)
{
	(void)state;
	run_abort_launch(IS_FULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_replay_gives_what_the_calls_give),
		cmocka_unit_test(what_is_not_the_librarys_is_refused),
		cmocka_unit_test(an_operation_without_memory_ends_the_recording),
		cmocka_unit_test(a_missing_rank_is_named_during_a_replay),
		cmocka_unit_test(a_communicator_does_not_end_amid_a_launch),
		cmocka_unit_test(a_launch_that_the_device_does_not_take_delays_the_end_only),
	};
	return cmocka_run_group_tests_name("collectives in graphs over doubles of CUDA and NCCL",
					   tests, NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT("cuda_runtime_api.h of CUDA 12 or newer, or nccl.h, was",
		"collectives in graphs over doubles of CUDA and NCCL")

#endif
