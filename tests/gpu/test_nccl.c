/*
 * Tests libcomm's code for CUDA, cuda.c and nccl.c, without a GPU, over doubles of CUDA's runtime and of
 * NCCL (tests/gpu/doubles). Every operation gives the reference's result on two to four devices. Groups
 * split and close in any order. Every fault of NCCL or of a rank gives an error that names it, and
 * leaves nothing open. The doubles detect misuse.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#ifdef HAVE_NCCL

#include "libcomm/device/cuda/cuda.h"
#include "tests/gpu/doubles/collectives.h"
#include "tests/gpu/doubles/runtime.h"
#include "tests/unit/libcomm/ranks.h"
#include "tests/unit/libcomm/ranks_hurry.h"

#include <nccl.h>
#include <pthread.h>

static int open_gpu(struct comm *world, struct comm **out, struct err *e)
{
	struct comm_device_options opt = { .device = muster_comm_cuda(),
					   .backend = "nccl",
					   .index = comm_rank(world) };
	RANK_CHECK(cudaSetDevice(opt.index) == cudaSuccess, "no device");
	return comm_on_device(world, &opt, "gpu", out, e);
}

static int nothing_open(void)
{
	RANK_CHECK(double_open_comms() == 0, "%d communicators are still open",
		   double_open_comms());
	RANK_CHECK(double_open_things() == 0, "%d streams, events and buffers are still open",
		   double_open_things());
	return 0;
}

/* --- Without faults --- */

/* Runs make check-gpu's program over the doubles. */
static void check_forms(const char *devices)
{
	char command[1024], line[256] = "", last[256] = "";
	snprintf(command, sizeof command, "CUDA_VISIBLE_DEVICES=%s %s/conform %s/libmuster-cuda.so",
		 devices, DOUBLES, DOUBLES);
	FILE *out = popen(command, "r");
	assert_non_null(out);
	while (fgets(line, sizeof line, out)) {
		if (strncmp(line, "ok ", 3))
			strcpy(last, line);
		if (!strncmp(line, "FAILED", 6))
			fputs(line, stderr);
	}
	assert_int_equal(pclose(out), 0);
	assert_string_equal(last, "34 passed, 0 failed, 0 skipped\n");
}

static void every_operation_is_correct_on_one_to_four_devices(void **state)
{
	(void)state;
	check_forms("0");
	check_forms("0,1");
	check_forms("0,1,2");
	check_forms("0,1,2,3");
}

enum { COUNT = 100, ROUNDS = 40 };

/* Sums over each group, many at the same time. */
static int sums(struct comm *const *group, int n, int64_t *const *data)
{
	struct err e = ERR_INIT;
	for (int round = 0; round < ROUNDS; round++)
		for (int g = 0; g < n; g++)
			RANK_CHECK(!group[g] || comm_all_reduce(group[g], data[g], data[g], COUNT,
								COMM_I64, COMM_MAX, &e) == 0,
				   "%s", e.text);
	for (int g = 0; g < n; g++)
		RANK_CHECK(!group[g] || comm_sync(group[g], &e) == 0, "%s", e.text);
	return 0;
}

static int split_groups(struct comm *world, void *arg)
{
	struct err e = ERR_INIT;
	struct comm *group[4];
	int64_t *data[4];
	int me = comm_rank(world), most[4] = { 3, me % 2 ? 3 : 2, 3, 2 };
	(void)arg;
	RANK_CHECK(open_gpu(world, &group[0], &e) == 0, "%s", e.text);
	RANK_CHECK(comm_split(group[0], me % 2, -me, "half", &group[1], &e) == 0, "%s", e.text);
	RANK_CHECK(comm_split(group[0], me == 1 ? -1 : 0, 0, "rest", &group[2], &e) == 0, "%s",
		   e.text);
	RANK_CHECK(comm_split(group[1], me < 2 || me % 2 ? -1 : 5, 0, "one", &group[3], &e) == 0,
		   "%s", e.text);
	RANK_CHECK(comm_rank(group[1]) == (me < 2) && !group[2] == (me == 1) &&
			   !group[3] == (me != 2),
		   "wrong groups");
	for (int g = 0; g < 4; g++) {
		RANK_CHECK(cudaMalloc((void **)&data[g], COUNT * sizeof *data[g]) == cudaSuccess,
			   "no memory");
		for (int i = 0; i < COUNT; i++)
			data[g][i] = me * 1000 - i;
	}
	if (sums(group, 4, data))
		return 1;
	for (int g = 0; g < 4; g++) {
		for (int i = 0; group[g] && i < COUNT; i++)
			RANK_CHECK(data[g][i] == most[g] * 1000 - i, "group %d: element %d is %lld",
				   g, i, (long long)data[g][i]);
		cudaFree(data[g]);
	}
	comm_close(group[me % 2 ? 0 : 1]);
	comm_close(group[me % 2 ? 1 : 0]);
	comm_close(group[3]);
	comm_close(group[2]);
	return nothing_open();
}

static void groups_split_and_close_in_any_order(void **state)
{
	(void)state;
	struct ranks r = { .n = 4, .timeout_s = PATIENT_WAIT_S, .fn = split_groups };
	assert_int_equal(ranks_run(&r), 0);
}

/* --- Operations at the same time --- */

/* The others join the sum of all ranks, which waits for the last one, and then complete one of
 * their own. */
static int overtake(struct comm *world, void *arg)
{
	struct err e = ERR_INIT;
	struct comm *gpu, *all, *few;
	struct comm_request *slow = NULL;
	int64_t *data[2];
	bool last = comm_rank(world) == comm_size(world) - 1;
	(void)arg;
	RANK_CHECK(open_gpu(world, &gpu, &e) == 0 && comm_split(gpu, 0, 0, "all", &all, &e) == 0 &&
			   comm_split(gpu, last ? -1 : 0, 0, "few", &few, &e) == 0,
		   "%s", e.text);
	for (int i = 0; i < 2; i++)
		RANK_CHECK(cudaMalloc((void **)&data[i], COUNT * sizeof *data[i]) == cudaSuccess,
			   "no memory");
	if (!last)
		RANK_CHECK(comm_all_reduce_start(all, data[0], data[0], COUNT, COMM_I64, COMM_MAX,
						 &slow, &e) == 0 &&
				   comm_all_reduce(few, data[1], data[1], COUNT, COMM_I64, COMM_MAX,
						   &e) == 0 &&
				   comm_sync(few, &e) == 0,
			   "%s", e.text);
	RANK_CHECK(comm_barrier(world, &e) == 0, "%s", e.text);
	if (last)
		RANK_CHECK(comm_all_reduce_start(all, data[0], data[0], COUNT, COMM_I64, COMM_MAX,
						 &slow, &e) == 0,
			   "%s", e.text);
	RANK_CHECK(comm_wait(slow, &e) == 0 && comm_sync(all, &e) == 0, "%s", e.text);
	struct comm *groups[] = { few, all, gpu };
	for (int g = 0; g < 3; g++)
		comm_close(groups[g]);
	cudaFree(data[0]);
	cudaFree(data[1]);
	return nothing_open();
}

static void an_operation_that_waits_does_not_hold_up_those_of_other_groups(void **state)
{
	(void)state;
	struct ranks r = { .n = 3, .timeout_s = PATIENT_WAIT_S, .fn = overtake };
	assert_int_equal(ranks_run(&r), 0);
}

/* --- The order of launches --- */

enum { GROUPS = 3, TURNS = 120, LAUNCHES_MAX = 1024 };

/* The group of a turn: no group's turns are regular. */
static int turn_of(int i)
{
	return i * i / 5 % GROUPS;
}

/* Starts sums, and waits for a group's last one only when its turn comes again. */
static int take_turns(struct comm *const *group, int64_t *const *data, struct err *e)
{
	struct comm_request *open[GROUPS] = { NULL };
	for (int i = 0; i < TURNS; i++) {
		int g = turn_of(i);
		RANK_CHECK(comm_wait(open[g], e) == 0 &&
				   comm_all_reduce_start(group[g], data[g], data[g], COUNT,
							 COMM_I64, COMM_MAX, &open[g], e) == 0,
			   "%s", e->text);
	}
	for (int g = 0; g < GROUPS; g++)
		RANK_CHECK(comm_wait(open[g], e) == 0 && comm_sync(group[g], e) == 0, "%s",
			   e->text);
	return 0;
}

/* The launches since `first` are in the program's order. ids: the groups' communicators. */
static int check_turns(int first, const int ids[GROUPS])
{
	int seen[LAUNCHES_MAX], n = double_launches(seen, LAUNCHES_MAX) - first;
	RANK_CHECK(n == TURNS, "%d launches, not %d", n, TURNS);
	for (int i = 0; i < TURNS; i++)
		RANK_CHECK(seen[first + i] == ids[turn_of(i)],
			   "launch %d is of communicator %d, the program's is %d", i,
			   seen[first + i], ids[turn_of(i)]);
	return 0;
}

static int launch_in_turns(struct comm *world, void *arg)
{
	struct err e = ERR_INIT;
	struct comm *group[GROUPS];
	int64_t *data[GROUPS];
	int seen[LAUNCHES_MAX], ids[GROUPS], n = 0;
	(void)arg;
	RANK_CHECK(open_gpu(world, &group[0], &e) == 0 &&
			   comm_split(group[0], 0, 0, "second", &group[1], &e) == 0 &&
			   comm_split(group[0], comm_rank(world) % 2, 0, "half", &group[2], &e) ==
				   0,
		   "%s", e.text);
	for (int g = 0; g < GROUPS; g++) {
		RANK_CHECK(cudaMalloc((void **)&data[g], COUNT * sizeof *data[g]) == cudaSuccess &&
				   comm_barrier(group[g], &e) == 0,
			   "%s", e.text);
		n = double_launches(seen, LAUNCHES_MAX);
		ids[g] = seen[n - 1];
	}
	if (take_turns(group, data, &e) || check_turns(n, ids))
		return 1;
	for (int g = GROUPS; g-- > 0;) {
		comm_close(group[g]);
		cudaFree(data[g]);
	}
	return nothing_open();
}

static void all_groups_launch_in_the_order_of_the_program(void **state)
{
	(void)state;
	struct ranks r = { .n = 4, .timeout_s = PATIENT_WAIT_S, .fn = launch_in_turns };
	assert_int_equal(ranks_run(&r), 0);
}

/* --- Faults --- */

enum sin { NEVER_COMES, DIES, CABLE, REFUSES, ABORTS, DIES_IN_WINDOW, NEVER_READY, TOO_OLD };

struct scene {
	enum sin sin;
	int n;
	double timeout_s;
	enum err_code code; /* at the ranks that detect it; these inform the others */
	const char *text;
};

static const struct scene scenes[] = {
	{ NEVER_COMES, 4, 3, ERR_TIMEOUT, "rank 1 (world rank 1" },
	{ DIES, 3, 0, ERR_PEER, "rank 1 (world rank 1" },
	{ CABLE, 4, 0, ERR_PEER, "NCCL: an operation: remote error: the cable is out" },
	{ REFUSES, 2, 0, ERR_NET, "NCCL: all_reduce: system error" },
	{ ABORTS, 4, 0, ERR_ABORTED, "enough" },
	{ DIES_IN_WINDOW, 3, 0, ERR_PEER, "rank 1 (world rank 1" },
	{ NEVER_READY, 3, 3, ERR_TIMEOUT, "the start of nccl did not end within 3 s" },
	{ TOO_OLD, 3, 0, ERR_UNSUPPORTED, "backend nccl" },
};

static _Atomic int *informed; /* how many ranks have the error; shared by the ranks */

static bool knows(const struct scene *s, const struct err *e)
{
	return strstr(e->text, s->text) &&
	       (e->code == s->code || (e->code == ERR_PEER && strstr(e->text, "gave up")));
}

static void *abort_when_stuck(void *arg)
{
	usleep(20000);
	comm_abort(arg, "enough");
	return NULL;
}

/* Runs the second operation, which never completes, until the fault ends it. */
static int suffer(struct comm *world, struct comm *gpu, int64_t *data, const struct scene *s)
{
	struct err e = ERR_INIT;
	pthread_t thread;
	if (s->sin == ABORTS)
		RANK_CHECK(pthread_create(&thread, NULL, abort_when_stuck, world) == 0,
			   "no thread");
	int rc = comm_all_reduce(gpu, data, data, COUNT, COMM_I64, COMM_SUM, &e);
	if (rc == 0)
		rc = comm_sync(gpu, &e);
	atomic_fetch_add(informed, 1);
	if (s->sin == ABORTS)
		pthread_join(thread, NULL);
	RANK_CHECK(rc < 0 && knows(s, &e), "rank %d: %s: %s", comm_rank(world), err_word(e.code),
		   e.text);
	RANK_CHECK(comm_barrier(gpu, &e) < 0, "the group continues");
	return 0;
}

static void sin_now(struct comm *world, const struct scene *s)
{
	if (s->sin == DIES)
		raise(SIGKILL);
	while ((s->sin == NEVER_COMES || s->sin == ABORTS) &&
	       atomic_load(informed) < comm_size(world) - 1)
		usleep(1000);
	if (s->sin == CABLE)
		double_set_fault(DOUBLE_ASYNC_ERROR);
	if (s->sin == REFUSES)
		double_set_fault(DOUBLE_REFUSES);
	if (s->sin == DIES_IN_WINDOW)
		double_set_fault(DOUBLE_DIES);
}

/* Registers memory until the fault ends it. */
static int suffer_window(struct comm *world, struct comm *gpu, const struct scene *s)
{
	struct err e = ERR_INIT;
	struct comm_memory m = { .bytes = COUNT, .reachable = true };
	RANK_CHECK(ncclMemAlloc(&m.at, m.bytes) == ncclSuccess, "no memory");
	int rc = comm_register(gpu, &m, 1, &e);
	RANK_CHECK(rc < 0 && knows(s, &e), "rank %d: %d: %s: %s", comm_rank(world), rc,
		   err_word(e.code), e.text);
	comm_close(gpu);
	ncclMemFree(m.at);
	return 0;
}

static int play(struct comm *world, void *arg)
{
	const struct scene *s = arg;
	struct err e = ERR_INIT;
	struct comm *gpu;
	void *data;
	bool sinner = comm_rank(world) == 1;
	if (sinner && s->sin >= NEVER_READY)
		double_set_fault(s->sin == TOO_OLD ? DOUBLE_TOO_OLD : DOUBLE_NEVER_READY);
	if (s->sin == NEVER_READY)
		ranks_hurry(world, s->timeout_s);
	int rc = open_gpu(world, &gpu, &e);
	if (s->sin >= NEVER_READY) {
		RANK_CHECK(rc < 0 && knows(s, &e), "rank %d: %s: %s", comm_rank(world),
			   err_word(e.code), e.text);
		RANK_CHECK(s->sin != TOO_OLD || !sinner ||
				   strstr(e.text, "NCCL's version is 21799"),
			   "%s", e.text);
		return nothing_open();
	}
	RANK_CHECK(rc == 0 && cudaMalloc(&data, COUNT * sizeof(int64_t)) == cudaSuccess, "%s",
		   e.text);
	RANK_CHECK(comm_barrier(gpu, &e) == 0 && comm_sync(gpu, &e) == 0 &&
			   comm_barrier(world, &e) == 0,
		   "%s", e.text);
	ranks_hurry(world, s->timeout_s);
	if (sinner)
		sin_now(world, s);
	if (s->sin == DIES_IN_WINDOW ? suffer_window(world, gpu, s) : suffer(world, gpu, data, s))
		return 1;
	if (s->sin != DIES_IN_WINDOW)
		comm_close(gpu);
	cudaFree(data);
	return nothing_open();
}

static void every_fault_is_reported_and_leaves_nothing_open(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++) {
		struct scene s = scenes[i];
		informed = ranks_shared(sizeof *informed);
		struct ranks r = { .n = s.n, .timeout_s = PATIENT_WAIT_S, .fn = play, .arg = &s };
		ranks_start(&r);
		for (int k = 0; k < r.n; k++) {
			int rc = ranks_end(&r, k);
			bool dies = (s.sin == DIES || s.sin == DIES_IN_WINDOW) && k == 1;
			if (rc != (dies ? -SIGKILL : 0))
				fail_msg("scene %zu: rank %d ended with %d", i, k, rc);
		}
		munmap(r.board, sizeof *r.board);
		munmap(informed, sizeof *informed);
	}
}

/* --- The doubles detect misuse ------------------------------------------------------------ */

/* Two ranks in one process, each with a device. */
struct pair {
	ncclComm_t comm[2];
	cudaStream_t stream[2];
	float *data[2];
};

static void settle(ncclComm_t comm)
{
	ncclResult_t state = ncclInProgress;
	for (int i = 0; state == ncclInProgress && i < 100; i++)
		ncclCommGetAsyncError(comm, &state);
}

static ncclConfig_t pair_config(const char *name, int share)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	config.blocking = 0;
	config.splitShare = share;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	config.commName = name;
#else
	(void)name;
#endif
	return config;
}

/* share: communicators that are split from it share its resources. */
static void begin_pair(struct pair *p, int share)
{
	ncclConfig_t config = pair_config("pair", share);
	ncclUniqueId id;
	int least, greatest;
	cudaDeviceGetStreamPriorityRange(&least, &greatest);
	ncclGetUniqueId(&id);
	for (int r = 0; r < 2; r++) {
		cudaSetDevice(r);
		cudaStreamCreateWithPriority(&p->stream[r], cudaStreamNonBlocking, greatest);
		cudaMalloc((void **)&p->data[r], COUNT * sizeof(float));
		ncclCommInitRankConfig(&p->comm[r], 2, id, r, &config);
	}
}

static void sum(struct pair *p, int r, float *data, size_t count, ncclDataType_t type)
{
	cudaSetDevice(r);
	ncclGroupStart();
	ncclAllReduce(data, data, count, type, ncclSum, p->comm[r], p->stream[r]);
	ncclGroupEnd();
	settle(p->comm[r]);
}

static void settle_pair(struct pair *p)
{
	settle(p->comm[0]);
	settle(p->comm[1]);
}

static void too_early(struct pair *p)
{
	sum(p, 0, p->data[0], 1, ncclFloat32);
}

static void after_abort(struct pair *p)
{
	settle_pair(p);
	ncclCommAbort(p->comm[0]);
	sum(p, 0, p->data[0], 1, ncclFloat32);
}

static void wrong_type(struct pair *p)
{
	settle_pair(p);
	sum(p, 0, p->data[0], 1, ncclNumTypes);
}

static void two_counts(struct pair *p)
{
	settle_pair(p);
	sum(p, 0, p->data[0], 2, ncclFloat32);
	sum(p, 1, p->data[1], 3, ncclFloat32);
	cudaStreamSynchronize(p->stream[1]);
}

static void host_memory(struct pair *p)
{
	float here = 0;
	settle_pair(p);
	sum(p, 0, &here, 1, ncclFloat32);
}

static void past_the_end(struct pair *p)
{
	settle_pair(p);
	sum(p, 0, p->data[0], COUNT + 1, ncclFloat32);
}

static void not_begun(struct pair *p)
{
	(void)p;
	ncclGroupEnd();
}

static void other_device(struct pair *p)
{
	settle_pair(p);
	cudaSetDevice(0);
	cudaEvent_t event;
	cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
	cudaEventRecord(event, p->stream[1]);
}

static void destroyed_early(struct pair *p)
{
	settle_pair(p);
	cudaSetDevice(0);
	ncclCommFinalize(p->comm[0]);
	settle(p->comm[0]); /* the other rank has not called it */
	ncclCommDestroy(p->comm[0]);
}

static void registered_at_the_end(struct pair *p)
{
	void *handle;
	settle_pair(p);
	cudaSetDevice(0);
	ncclCommRegister(p->comm[0], p->data[0], COUNT * sizeof(float), &handle);
	ncclCommFinalize(p->comm[0]);
}

static void freed_while_registered(struct pair *p)
{
	void *handle;
	settle_pair(p);
	cudaSetDevice(0);
	ncclCommRegister(p->comm[0], p->data[0], COUNT * sizeof(float), &handle);
	cudaFree(p->data[0]);
	ncclCommDeregister(p->comm[0], handle);
}

static void freed_without_its_library(struct pair *p)
{
	settle_pair(p);
	cudaSetDevice(0);
	ncclMemFree(p->data[0]);
}

static void freed_twice(struct pair *p)
{
	void *memory;
	settle_pair(p);
	cudaSetDevice(0);
	ncclMemAlloc(&memory, COUNT * sizeof(float));
	ncclMemFree(memory);
	ncclMemFree(memory);
}

static void shared_and_freed_while_registered(struct pair *p)
{
	void *memory, *handle;
	settle_pair(p);
	cudaSetDevice(0);
	ncclMemAlloc(&memory, COUNT * sizeof(float));
	ncclCommRegister(p->comm[0], memory, COUNT * sizeof(float), &handle);
	ncclMemFree(memory);
}

#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
static void a_window_over_a_part(struct pair *p)
{
	ncclWindow_t window;
	void *memory;
	settle_pair(p);
	cudaSetDevice(0);
	ncclMemAlloc(&memory, COUNT * sizeof(float));
	ncclCommWindowRegister(p->comm[0], memory, COUNT, &window, NCCL_WIN_COLL_SYMMETRIC);
}
#endif

static void split_while_busy(struct pair *p)
{
	ncclConfig_t config = pair_config("part", 0);
	ncclComm_t part;
	settle_pair(p);
	sum(p, 0, p->data[0], 1, ncclFloat32);
	ncclCommSplit(p->comm[0], 0, 0, &part, &config);
}

static void low_priority(struct pair *p)
{
	settle_pair(p);
	cudaSetDevice(0);
	cudaStreamCreateWithFlags(&p->stream[0], cudaStreamNonBlocking);
	sum(p, 0, p->data[0], 1, ncclFloat32);
}

static void sent_and_taken(struct pair *p)
{
	settle_pair(p);
	for (int r = 0; r < 2; r++) {
		cudaSetDevice(r);
		ncclGroupStart();
		if (r == 0)
			ncclSend(p->data[0], 4, ncclFloat32, 1, p->comm[0], p->stream[0]);
		else
			ncclRecv(p->data[1], 5, ncclFloat32, 0, p->comm[1], p->stream[1]);
		ncclGroupEnd();
	}
	cudaStreamSynchronize(p->stream[1]);
}

/* Captures rank 0's sum. */
static cudaGraphExec_t captured_sum(struct pair *p)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	settle_pair(p);
	cudaSetDevice(0);
	cudaStreamBeginCapture(p->stream[0], cudaStreamCaptureModeThreadLocal);
	sum(p, 0, p->data[0], 1, ncclFloat32);
	cudaStreamEndCapture(p->stream[0], &graph);
	cudaGraphInstantiate(&exec, graph, 0);
	cudaGraphDestroy(graph);
	return exec;
}

static void captured_on_one_rank(struct pair *p)
{
	cudaGraphLaunch(captured_sum(p), p->stream[0]);
	sum(p, 1, p->data[1], 1, ncclFloat32);
	cudaStreamSynchronize(p->stream[1]);
}

static void destroyed_before_its_graph(struct pair *p)
{
	captured_sum(p);
	for (int r = 0; r < 2; r++) {
		cudaSetDevice(r);
		ncclCommFinalize(p->comm[r]);
	}
	settle_pair(p);
	cudaSetDevice(0);
	ncclCommDestroy(p->comm[0]);
}

/* Two launches on two streams, which nothing orders. */
static void graphs_without_order(struct pair *p)
{
	cudaGraphExec_t first = captured_sum(p), second = captured_sum(p);
	cudaStream_t other;
	cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
	cudaGraphLaunch(first, other);
	cudaGraphLaunch(second, p->stream[0]);
	cudaStreamSynchronize(p->stream[0]);
}

static const struct misuse {
	void (*fn)(struct pair *);
	const char *text;
} misuses[] = {
	{ too_early, "while the communicator is in progress" },
	{ after_abort, "after the communicator's end" },
	{ wrong_type, "is none of NCCL's" },
	{ two_counts, "rank 1 0(3, type 7" },
	{ host_memory, "not in a buffer of device 0" },
	{ past_the_end, "404 bytes" },
	{ not_begun, "without ncclGroupStart" },
	{ other_device, "of device 1 is used on device 0" },
	{ destroyed_early, "before the end of ncclCommFinalize" },
	{ registered_at_the_end, "with registered memory" },
	{ freed_while_registered, "what is deregistered" },
	{ freed_without_its_library, "that ncclMemAlloc did not give" },
	{ freed_twice, "that ncclMemAlloc did not give" },
	{ shared_and_freed_while_registered, "of memory that is registered" },
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	{ a_window_over_a_part, "of an allocation that has more" },
#endif
	{ split_while_busy, "operations are outstanding" },
	{ low_priority, "a stream of priority 0" },
	{ captured_on_one_rank, "collective 1 is in a graph on rank 0 only" },
	{ destroyed_before_its_graph, "while a graph has 1 of the communicator's calls" },
	{ graphs_without_order, "operation 2 of a communicator runs after operation 0" },
	{ sent_and_taken, "4 of type 7 are sent, 5 of type 7 taken" },
};

/* Runs a misuse in a process: returns how it ended, and its output in `said`. */
static int end_of(const struct misuse *m, char *said, size_t size)
{
	int ends[2], status = 0;
	assert_int_equal(pipe(ends), 0);
	fflush(NULL);
	pid_t pid = fork();
	if (pid == 0) {
		struct pair p;
		dup2(ends[1], STDERR_FILENO);
		alarm(PATIENCE_S);
		begin_pair(&p, 0);
		m->fn(&p);
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

/* A communicator of both ranks is aborted while one that was split from it has an operation that
 * waits for rank 1. */
static void abort_beside_a_part(int share)
{
	struct pair p, part;
	ncclConfig_t config = pair_config("part", 0);
	float sums[2] = { 0 }, one = 1;
	begin_pair(&p, share);
	settle_pair(&p);
	part = p;
	for (int r = 0; r < 2; r++) {
		cudaSetDevice(r);
		cudaMemcpy(p.data[r], &one, sizeof one, cudaMemcpyHostToDevice);
		ncclCommSplit(p.comm[r], 0, r, &part.comm[r], &config);
	}
	for (int i = 0; i < 100; i++) {
		settle_pair(&p);
		settle_pair(&part);
	}
	sum(&part, 0, part.data[0], 1, ncclFloat32);
	ncclCommAbort(p.comm[0]);
	if (!share)
		sum(&part, 1, part.data[1], 1, ncclFloat32);
	cudaSetDevice(0);
	cudaStreamSynchronize(part.stream[0]);
	cudaMemcpy(sums, part.data[0], sizeof one, cudaMemcpyDeviceToHost);
	_exit(sums[0] == (share ? 1 : 2) ? 0 : 1);
}

static void an_abort_ends_what_shares_resources(void **state)
{
	(void)state;
	for (int share = 0; share < 2; share++) {
		int status;
		pid_t pid = fork();
		if (pid == 0) {
			alarm(PATIENT_WAIT_S);
			abort_beside_a_part(share);
		}
		waitpid(pid, &status, 0);
		if (!WIFEXITED(status) || WEXITSTATUS(status))
			fail_msg("share %d: ended with status %d", share, status);
	}
}

static void the_doubles_detect_misuse(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof misuses / sizeof *misuses; i++) {
		char said[512];
		int rc = end_of(&misuses[i], said, sizeof said);
		if (rc != -SIGABRT || strncmp(said, "misuse: ", 8) ||
		    !strstr(said, misuses[i].text))
			fail_msg("\"%s\": ended with %d: %s", misuses[i].text, rc, said);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_operation_is_correct_on_one_to_four_devices),
		cmocka_unit_test(groups_split_and_close_in_any_order),
		cmocka_unit_test(an_operation_that_waits_does_not_hold_up_those_of_other_groups),
		cmocka_unit_test(all_groups_launch_in_the_order_of_the_program),
		cmocka_unit_test(every_fault_is_reported_and_leaves_nothing_open),
		cmocka_unit_test(the_doubles_detect_misuse),
		cmocka_unit_test(an_abort_ends_what_shares_resources),
	};
	return cmocka_run_group_tests_name("the CUDA backend over doubles of CUDA and NCCL", tests,
					   NULL, NULL);
}

#else

#include "tests/gpu/without_cuda.h"

SKIPPED_WITHOUT("cuda_runtime_api.h of CUDA 12 or newer, or nccl.h, was",
		"the CUDA backend over doubles of CUDA and NCCL")

#endif
