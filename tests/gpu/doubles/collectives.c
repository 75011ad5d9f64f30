#include "tests/gpu/doubles/collectives.h"
#include "tests/gpu/doubles/runtime.h"
#include "tests/gpu/doubles/reduce.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { AREAS = 256, RANKS = DOUBLE_DEVICES, SLOTS = 32, PARTS = 256, SPLITS = 2, LAUNCHES = 4096 };

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
typedef void *ncclWindow_t;
ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *memory, size_t bytes, ncclWindow_t *window,
				    int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t window);
#endif

enum call_kind { ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, REDUCE_SCATTER, SEND, RECV };

struct call { /* a rank's call, as its peers see it */
	enum call_kind kind;
	const void *in;
	void *out;
	size_t count;
	ncclDataType_t type;
	ncclRedOp_t op;
	int peer; /* the root, or the other end of a message */
	bool in_registered, out_registered;
};

struct slot { /* of the call with this number; reused when it has been read */
	_Atomic uint32_t came, read;
	struct call call;
	bool captured;
};

struct area { /* a communicator, shared by its ranks */
	_Atomic int joined[RANKS], finalized[RANKS], device[RANKS];
	_Atomic uint32_t windows[RANKS];    /* registered so far */
	_Atomic size_t window_bytes[RANKS]; /* the last one's */
	struct slot collective[RANKS][SLOTS];
	struct slot message[RANKS][RANKS][SLOTS]; /* from, to */
	struct split {
		_Atomic uint32_t came;
		_Atomic int color, key, child; /* child: by the first rank of a color */
	} split[SPLITS][RANKS];
};

struct registered {
	struct registered *next;
	const char *at;
	size_t bytes;
	bool window;
};

/* Of a rank: a communicator and those that were split from it, if they share resources. Otherwise
 * each has its own. */
struct family {
	_Atomic uint32_t queued, ended; /* their operations */
	_Atomic bool aborted;
	bool shared;
	int processors; /* of the first; 0: no limit */
};

struct ncclComm {
	struct area *area;
	struct family *family;
	bool shares; /* with those that are split from it */
	int ranks, rank, device;
	uint32_t collectives, sent[RANKS], received[RANKS], splits;
	int looks; /* until the last call is complete */
	bool begun, finalized;
	bool quiet; /* finalized, and the caller knows it */
	_Atomic bool
		over; /* destroyed or aborted; the memory stays, since a stream may refer to it */
	_Atomic int open;       /* steps on streams */
	_Atomic int recorded;   /* calls in graphs that exist */
	uint32_t queued, ended; /* groups of calls */
	struct registered *memory;
	void **window; /* where the handle of the one in progress goes */
	void *handle;
	uint32_t windows;
	ncclComm_t child; /* of a split in progress */
	bool splitting;
	int color, key;
};

struct part {
	struct call call;
	uint32_t number;
	bool posted, done;
	bool captured; /* in a graph */
	/* between reading and writing: with in-place buffers, all ranks read before any writes */
	void *result;
};

struct group {
	ncclComm_t comm;
	uint32_t turn;      /* among the communicator's */
	uint32_t in_family; /* its turn among those that share */
	bool begun;
	uint32_t launch; /* its number in the process */
	bool resident;
	int count;
	struct part part[];
};

static struct hub {
	_Atomic int areas;
	struct area area[AREAS];
} * hub;

static struct { /* of this process */
	_Atomic int count;
	int area[LAUNCHES];
} launched;

static struct {           /* of this process's device; under the runtime's lock */
	int most, now;    /* resident kernels; most 0: no limit */
	bool ordered;     /* by launches */
	uint32_t arrived; /* launches that have become resident, if ordered */
	_Atomic uint32_t launched;
} residency;

static struct { /* the communicators of this process, in the order of their making */
	int count;
	struct named {
		char name[32];
		int processors;
	} list[AREAS];
} given;

static _Atomic int registered, buffers, buffers_registered, buffers_allocated, buffers_in_windows;
static _Atomic int open_comms;
static _Atomic enum double_fault fault;
static _Thread_local struct {
	int depth, count;
	ncclComm_t comm;
	cudaStream_t stream;
	struct part part[PARTS];
} building;

__attribute__((constructor)) static void set_up(void)
{
	hub = mmap(NULL, sizeof *hub, PROT_READ | PROT_WRITE,
		   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (hub == MAP_FAILED)
		abort();
}

void double_set_fault(enum double_fault f)
{
	fault = f;
}

void double_set_residency(int kernels)
{
	const char *ordered = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
	residency.most = kernels;
	residency.ordered = ordered && !strcmp(ordered, "1");
}

/* Whether the kernel is on the device, or finds room now. */
static bool reside(struct group *g)
{
	if (g->resident || !residency.most)
		return true;
	if (residency.now == residency.most ||
	    (residency.ordered && g->launch != residency.arrived + 1))
		return false;
	residency.now++;
	residency.arrived = g->launch;
	return g->resident = true;
}

/* A kernel that is aborted before it was resident no longer keeps later ones out. */
static void leave(struct group *g)
{
	residency.now -= g->resident;
	if (!g->resident && g->launch > residency.arrived)
		residency.arrived = g->launch;
}

int double_comm_processors(const char *name)
{
	for (int i = given.count; i-- > 0;)
		if (!strcmp(given.list[i].name, name))
			return given.list[i].processors;
	return -1;
}

static struct { /* of ncclMemAlloc */
	pthread_mutex_t lock;
	int count;
	struct piece {
		char *at;
		size_t bytes;
		int registered; /* times */
	} list[64];
} pieces = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The piece that the memory is in, or NULL. Under the lock. */
static struct piece *piece_of(const void *at)
{
	for (int i = 0; i < pieces.count; i++) {
		struct piece *p = &pieces.list[i];
		if ((const char *)at >= p->at && (const char *)at < p->at + p->bytes)
			return p;
	}
	return NULL;
}

static bool is_whole(const void *at, size_t bytes)
{
	pthread_mutex_lock(&pieces.lock);
	const struct piece *p = piece_of(at);
	bool whole = p && p->at == at && p->bytes == bytes;
	pthread_mutex_unlock(&pieces.lock);
	return whole;
}

static bool count_registration(const void *at, int by)
{
	pthread_mutex_lock(&pieces.lock);
	struct piece *p = piece_of(at);
	if (p)
		p->registered += by;
	pthread_mutex_unlock(&pieces.lock);
	return p;
}

int double_allocated(void)
{
	return pieces.count;
}

int double_count_allocated(void)
{
	return buffers_allocated;
}

int double_count_windows(void)
{
	return buffers_in_windows;
}

int double_registered(void)
{
	return registered;
}

void double_count_buffers(int *all, int *with)
{
	*all = buffers;
	*with = buffers_registered;
}

int double_open_comms(void)
{
	return open_comms;
}

int double_launches(int *comms, int most)
{
	int n = launched.count < most ? launched.count : most;
	memcpy(comms, launched.area, (size_t)n * sizeof *comms);
	return n;
}

static void note_launch(const struct ncclComm *c)
{
	int i = atomic_fetch_add(&launched.count, 1);
	if (i < LAUNCHES)
		launched.area[i] = (int)(c->area - hub->area);
}

static int area_new(void)
{
	int i = atomic_fetch_add(&hub->areas, 1);
	if (i >= AREAS)
		double_misuse("more than %d communicators", AREAS);
	return i;
}

/* --- Carrying out --- */

static bool all_came(const struct ncclComm *c, uint32_t n)
{
	for (int r = 0; r < c->ranks; r++)
		if (c->area->collective[r][n % SLOTS].came < n)
			return false;
	return true;
}

static bool all_read(const struct ncclComm *c, uint32_t n)
{
	for (int r = 0; r < c->ranks; r++)
		if (c->area->collective[r][n % SLOTS].read < n)
			return false;
	return true;
}

static const struct call *call_of(const struct ncclComm *c, int rank, uint32_t n)
{
	return &c->area->collective[rank][n % SLOTS].call;
}

static void check_agreement(const struct ncclComm *c, const struct part *p)
{
	const struct call *mine = &p->call;
	for (int r = 0; r < c->ranks; r++) {
		const struct call *x = call_of(c, r, p->number);
		if (c->area->collective[r][p->number % SLOTS].captured != p->captured)
			double_misuse("collective %u is in a graph on rank %d only", p->number,
				      p->captured ? c->rank : r);
		if (mine->kind != REDUCE && mine->kind != BROADCAST &&
		    (x->in_registered != mine->in_registered ||
		     x->out_registered != mine->out_registered))
			double_misuse("collective %u: rank %d has its buffers registered, rank %d "
				      "has not",
				      p->number, mine->in_registered ? c->rank : r,
				      mine->in_registered ? r : c->rank);
		if (x->kind != mine->kind || x->count != mine->count || x->type != mine->type ||
		    x->op != mine->op || x->peer != mine->peer)
			double_misuse("collective %u: rank %d calls %d(%zu, type %d, op %d, root "
				      "%d), rank %d "
				      "%d(%zu, type %d, op %d, root %d)",
				      p->number, c->rank, mine->kind, mine->count, (int)mine->type,
				      (int)mine->op, mine->peer, r, x->kind, x->count, (int)x->type,
				      (int)x->op, x->peer);
	}
}

/* Bytes that a collective writes on this rank. */
static size_t result_bytes(const struct ncclComm *c, const struct call *call)
{
	size_t bytes = call->count * double_type_size(call->type);
	if (call->kind == REDUCE && call->peer != c->rank)
		return 0;
	return call->kind == ALL_GATHER ? bytes * (size_t)c->ranks : bytes;
}

/* Bytes of them that NCCL 2.28.9 writes. Its kernel for the average over one rank gives each block
 * an equal part of the elements, rounded down before it is rounded up to 16 bytes, so that the last
 * elements can belong to no block (src/device/onerank.cu; NCCL 2.29.7 rounds up). */
static size_t written_bytes(const struct ncclComm *c, const struct call *call)
{
	enum { PACK = 16, PART = 16 << 10, BLOCKS = 32 };
	size_t bytes = result_bytes(c, call), element = double_type_size(call->type);
	bool is_reduced = call->kind == ALL_REDUCE || call->kind == REDUCE ||
			  call->kind == REDUCE_SCATTER;
	if (c->ranks > 1 || !bytes || !is_reduced || call->op != ncclAvg)
		return bytes;
	size_t blocks = (bytes + PART - 1) / PART;
	blocks = blocks < BLOCKS ? blocks : BLOCKS;
	size_t part = (call->count / blocks * element + PACK - 1) / PACK * PACK;
	return part * blocks < bytes ? part * blocks : bytes;
}

/* Into p->result. */
static void compute(const struct ncclComm *c, struct part *p)
{
	const struct call *call = &p->call;
	size_t block = call->count * double_type_size(call->type), bytes = result_bytes(c, call);
	size_t at = call->kind == REDUCE_SCATTER ? (size_t)c->rank * block : 0;
	if (!bytes)
		return;
	p->result = malloc(bytes);
	if (call->kind == BROADCAST) {
		memcpy(p->result, call_of(c, call->peer, p->number)->in, bytes);
		return;
	}
	for (int r = c->ranks - 1; r >= 0; r--) {
		const char *in = (const char *)call_of(c, r, p->number)->in + at;
		if (call->kind == ALL_GATHER)
			memcpy((char *)p->result + (size_t)r * block, in, block);
		else if (r == c->ranks - 1)
			memcpy(p->result, in, block);
		else
			double_fold(call->type, call->op, p->result, in, call->count);
	}
	if (call->kind != ALL_GATHER && call->op == ncclAvg)
		double_average(call->type, p->result, call->count, c->ranks);
}

static bool post(struct slot *slot, struct part *p)
{
	if (!p->posted && (p->number <= SLOTS || slot->read >= p->number - SLOTS)) {
		slot->call = p->call;
		slot->captured = p->captured;
		slot->came = p->number;
		p->posted = true;
	}
	return p->posted;
}

static bool collective(struct ncclComm *c, struct part *p)
{
	struct slot *slot = &c->area->collective[c->rank][p->number % SLOTS];
	if (!p->posted && p->number > SLOTS && !all_read(c, p->number - SLOTS))
		return false;
	if (!post(slot, p) || !all_came(c, p->number))
		return false;
	if (slot->read < p->number) {
		check_agreement(c, p);
		compute(c, p);
		slot->read = p->number;
	}
	if (!all_read(c, p->number))
		return false;
	if (p->result)
		memcpy(p->call.out, p->result, written_bytes(c, &p->call));
	free(p->result);
	return true;
}

static bool message(struct ncclComm *c, struct part *p)
{
	const struct call *call = &p->call;
	if (call->kind == SEND) {
		struct slot *slot = &c->area->message[c->rank][call->peer][p->number % SLOTS];
		return post(slot, p) && slot->read >= p->number;
	}
	struct slot *slot = &c->area->message[call->peer][c->rank][p->number % SLOTS];
	if (slot->came < p->number)
		return false;
	if (slot->call.count != call->count || slot->call.type != call->type)
		double_misuse("message %u from rank %d to rank %d: %zu of type %d are sent, %zu of "
			      "type %d taken",
			      p->number, call->peer, c->rank, slot->call.count,
			      (int)slot->call.type, call->count, (int)call->type);
	memcpy(call->out, slot->call.in, call->count * double_type_size(call->type));
	slot->read = p->number;
	return true;
}

/* NCCL runs the operations of a communicator one after the other, in their order. The caller's
 * streams, events and graphs are to say the same. */
static void take_turn(struct group *g)
{
	if (!g->begun && g->turn != g->comm->ended + 1)
		double_misuse("operation %u of a communicator runs after operation %u", g->turn,
			      g->comm->ended);
	g->begun = true;
}

/* NCCL runs the operations of communicators that share resources one after the other. */
static bool follows(const struct group *g)
{
	const struct family *f = g->comm->family;
	return g->begun || !f->shared || g->in_family == f->ended + 1;
}

/* A step of a stream: the parts of a group progress at the same time. */
static bool run_group(void *arg)
{
	struct group *g = arg;
	bool ended = g->comm->over || g->comm->family->aborted;
	bool here = !ended && follows(g) && reside(g), done = here;
	if (here)
		take_turn(g);
	for (int i = 0; here && i < g->count; i++) {
		struct part *p = &g->part[i];
		if (!p->done)
			p->done = p->call.kind >= SEND ? message(g->comm, p)
						       : collective(g->comm, p);
		done &= p->done;
	}
	if (done || ended) {
		leave(g);
		g->comm->open--;
		g->comm->ended = g->turn;
		g->comm->family->ended = g->in_family;
		return true;
	}
	return false;
}

/* --- The rules --- */

/* Checks what all calls except ncclCommGetAsyncError and ncclCommAbort need. */
static void check_comm(const struct ncclComm *c, const char *who)
{
	if (!c)
		double_misuse("%s without a communicator", who);
	if (c->over)
		double_misuse("%s after the communicator's end", who);
	if (c->looks || !c->begun || c->splitting)
		double_misuse("%s while the communicator is in progress", who);
	if (c->device != double_device())
		double_misuse("%s on device %d, of a communicator of device %d", who,
			      double_device(), c->device);
}

static void check_call(const struct ncclComm *c, const struct call *call)
{
	size_t block = call->count * double_type_size(call->type), all = block * (size_t)c->ranks;
	bool root = call->peer == c->rank;
	const char *in = call->in, *out = call->out;
	if (call->op < 0 || call->op >= ncclNumOps || call->peer < 0 || call->peer >= c->ranks)
		double_misuse("operation %d, root or peer %d of %d", (int)call->op, call->peer,
			      c->ranks);
	if (call->kind != RECV && (call->kind != BROADCAST || root))
		double_check_memory("what is sent", in, call->kind == REDUCE_SCATTER ? all : block);
	if (call->kind != SEND)
		double_check_memory("what is received", out, result_bytes(c, call));
	size_t own = (size_t)c->rank * block;
	if (call->kind == ALL_GATHER && in + block > out && in < out + all && in != out + own)
		double_misuse("an all-gather in place that is not at its place");
	if (call->kind == REDUCE_SCATTER && out + block > in && out < in + all && out != in + own)
		double_misuse("a reduce-scatter in place that is not at its place");
	if ((call->kind <= BROADCAST) && (call->kind != REDUCE || root) &&
	    (call->kind != BROADCAST || root) && in + block > out && in < out + block && in != out)
		double_misuse("buffers that overlap without being the same");
}

/* The kernels of a collective must not wait behind those of a computation. */
static void check_stream(cudaStream_t stream)
{
	int least, greatest, priority;
	cudaDeviceGetStreamPriorityRange(&least, &greatest);
	cudaStreamGetPriority(stream, &priority);
	if (priority != greatest)
		double_misuse("an operation on a stream of priority %d, not %d", priority,
			      greatest);
}

/* Returns whether it is registered. */
static bool count_buffer(const struct ncclComm *c, const void *at)
{
	const struct registered *m = c->memory;
	while (m && ((const char *)at < m->at || (const char *)at >= m->at + m->bytes))
		m = m->next;
	buffers += at && c->memory;
	buffers_registered += m != NULL;
	buffers_in_windows += m && m->window;
	buffers_allocated += m && count_registration(at, 0);
	return m;
}

static ncclResult_t enter(ncclComm_t c, cudaStream_t stream, const char *who, struct call call)
{
	check_comm(c, who);
	check_call(c, &call);
	check_stream(stream);
	if (c->finalized)
		double_misuse("%s after ncclCommFinalize", who);
	if (!building.depth)
		double_misuse("%s outside of a group: the double takes operations in groups", who);
	if (building.comm && (building.comm != c || building.stream != stream))
		double_misuse("%s: two communicators or streams in one group", who);
	if (building.count == PARTS)
		double_misuse("more than %d calls in one group", PARTS);
	if (fault == DOUBLE_REFUSES)
		return ncclSystemError;
	if (!call.count)
		return ncclSuccess;
	call.in_registered = count_buffer(c, call.in);
	call.out_registered = count_buffer(c, call.out);
	building.comm = c;
	building.stream = stream;
	building.part[building.count++] = (struct part){ .call = call };
	return ncclSuccess;
}

/* --- Operations --------------------------------------------------------------------------- */

ncclResult_t ncclGroupStart(void); /* nccl.h has no prototypes of these two */
ncclResult_t ncclGroupEnd(void);

/* The calls of a group get their numbers when they are launched. */
static void number_calls(struct group *g)
{
	struct ncclComm *c = g->comm;
	for (int i = 0; i < g->count; i++) {
		const struct call *call = &g->part[i].call;
		g->part[i].number = call->kind == SEND   ? ++c->sent[call->peer]
				    : call->kind == RECV ? ++c->received[call->peer]
							 : ++c->collectives;
	}
	g->turn = ++c->queued;
	g->in_family = ++c->family->queued;
	g->launch = ++residency.launched;
	c->open++;
	note_launch(c);
}

static void *launch_recorded(const void *recorded)
{
	const struct group *from = recorded;
	size_t bytes = sizeof *from + (size_t)from->count * sizeof(struct part);
	struct group *g = malloc(bytes);
	memcpy(g, from, bytes);
	if (g->comm->over)
		double_misuse("a graph is launched after the end of its communicator");
	for (int i = 0; i < g->count; i++)
		g->part[i].captured = true;
	number_calls(g);
	return g;
}

static void forget_recorded(void *recorded)
{
	struct group *g = recorded;
	g->comm->recorded--;
	free(g);
}

static const struct double_work recorded_group = { run_group, launch_recorded, forget_recorded };

ncclResult_t ncclGroupStart(void)
{
	building.depth++;
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
	if (!building.depth)
		double_misuse("ncclGroupEnd without ncclGroupStart");
	if (--building.depth || !building.count)
		return ncclSuccess;
	size_t bytes = (size_t)building.count * sizeof(struct part);
	struct group *g = malloc(sizeof *g + bytes);
	*g = (struct group){ .comm = building.comm, .count = building.count };
	memcpy(g->part, building.part, bytes);
	if (double_record(building.stream, &recorded_group, g)) {
		g->comm->recorded++;
	} else {
		number_calls(g);
		double_queue(building.stream, run_group, g);
	}
	building.comm->looks = 1 + (int)(building.comm->collectives % 3);
	building.count = 0;
	building.comm = NULL;
	return ncclInProgress;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t c, cudaStream_t stream)
{
	return enter(c, stream, "ncclAllReduce",
		     (struct call){ ALL_REDUCE, in, out, count, type, op, 0, false, false });
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
			ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t stream)
{
	return enter(c, stream, "ncclReduce",
		     (struct call){ REDUCE, in, out, count, type, op, root, false, false });
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
			   ncclComm_t c, cudaStream_t stream)
{
	return enter(c, stream, "ncclBroadcast",
		     (struct call){ BROADCAST, in, out, count, type, ncclSum, root, false, false });
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
			   ncclComm_t c, cudaStream_t stream)
{
	return enter(c, stream, "ncclAllGather",
		     (struct call){ ALL_GATHER, in, out, count, type, ncclSum, 0, false, false });
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
			       ncclRedOp_t op, ncclComm_t c, cudaStream_t stream)
{
	return enter(c, stream, "ncclReduceScatter",
		     (struct call){ REDUCE_SCATTER, in, out, count, type, op, 0, false, false });
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
		      cudaStream_t stream)
{
	return enter(c, stream, "ncclSend",
		     (struct call){ SEND, in, NULL, count, type, ncclSum, peer, false, false });
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
		      cudaStream_t stream)
{
	return enter(c, stream, "ncclRecv",
		     (struct call){ RECV, NULL, out, count, type, ncclSum, peer, false, false });
}

/* --- Communicators ------------------------------------------------------------------------ */

/* The variable comes before the configuration, as in NCCL. */
static bool shares(const ncclConfig_t *config)
{
	const char *asked = getenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
	return asked ? strcmp(asked, "0") : config->splitShare == 1;
}

/* The smaller of two limits; 0: none. */
static int within(int a, int b)
{
	return a && b ? (a < b ? a : b) : a + b;
}

/* family: that it shares; NULL: it has its own. */
static ncclComm_t comm_new(struct area *area, struct family *family, int ranks, int rank,
			   const ncclConfig_t *config)
{
	const ncclConfig_t good = NCCL_CONFIG_INITIALIZER;
	if (!config || config->size != good.size || config->magic != good.magic ||
	    config->blocking != 0)
		double_misuse("a configuration that is not of a non-blocking communicator");
	int processors = config->maxCTAs == NCCL_CONFIG_UNDEF_INT ? 0 : config->maxCTAs;
	if (family)
		processors = within(processors, family->processors);
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	if (!config->commName || !*config->commName)
		double_misuse("a communicator without a name");
	if (given.count < AREAS) {
		struct named *n = &given.list[given.count++];
		snprintf(n->name, sizeof n->name, "%s", config->commName);
		n->processors = processors;
	}
#endif
	if (family) {
		family->shared = true;
	} else {
		family = calloc(1, sizeof *family);
		family->processors = processors;
	}
	ncclComm_t c = calloc(1, sizeof *c);
	*c = (struct ncclComm){ .area = area,
				.family = family,
				.shares = shares(config),
				.ranks = ranks,
				.rank = rank,
				.device = double_device(),
				.looks = 3 };
	open_comms++;
	return c;
}

static void join(ncclComm_t c)
{
	c->area->device[c->rank] = c->device;
	if (fault != DOUBLE_NEVER_READY)
		c->area->joined[c->rank] = 1;
}

static bool all_joined(const struct ncclComm *c)
{
	for (int r = 0; r < c->ranks; r++)
		if (!c->area->joined[r])
			return false;
	for (int r = 0; r < c->ranks; r++)
		if (r != c->rank && c->area->device[r] == c->device)
			double_misuse("ranks %d and %d share device %d", r, c->rank, c->device);
	return true;
}

/* Continues a split if all ranks have given their color; returns whether they have. */
static bool split_further(ncclComm_t c)
{
	struct split *all = c->area->split[c->splits % SPLITS];
	int first = -1, ranks = 0, rank = 0;
	for (int r = 0; r < c->ranks; r++)
		if (all[r].came < c->splits)
			return false;
	if (!c->child)
		return true;
	for (int r = 0; r < c->ranks; r++) {
		if (all[r].color != c->color)
			continue;
		first = first < 0 ? r : first;
		ranks++;
		rank += all[r].key < c->key || (all[r].key == c->key && r < c->rank);
	}
	if (first == c->rank)
		all[first].child = area_new();
	if (all[first].child < 0)
		return false;
	c->child->area = &hub->area[all[first].child];
	c->child->ranks = ranks;
	c->child->rank = rank;
	join(c->child);
	return true;
}

static bool all_finalized(const struct ncclComm *c)
{
	for (int r = 0; r < c->ranks; r++)
		if (!c->area->finalized[r])
			return false;
	return !c->open;
}

static void *add_memory(ncclComm_t c, const void *memory, size_t bytes, bool window)
{
	struct registered *m = malloc(sizeof *m);
	*m = (struct registered){ c->memory, memory, bytes, window };
	c->memory = m;
	registered++;
	count_registration(memory, 1);
	return m;
}

static bool all_have_window(const struct ncclComm *c)
{
	for (int r = 0; r < c->ranks; r++)
		if (c->area->windows[r] < c->windows)
			return false;
	return true;
}

/* The memory is registered since the call; only now does the caller get its handle. */
static void finish_window(ncclComm_t c)
{
	*c->window = c->handle;
	c->window = NULL;
}

/* Makes progress; returns whether the last call is complete. */
static bool progress(ncclComm_t c)
{
	if (c->looks && --c->looks)
		return false;
	if (!c->area)
		return false; /* a child whose parent's progress is not queried */
	c->begun = c->begun || all_joined(c);
	if (c->splitting && split_further(c)) {
		c->splitting = false;
		c->child = NULL;
	}
	if (c->window && all_have_window(c))
		finish_window(c);
	c->quiet = c->finalized && all_finalized(c);
	return c->begun && !c->splitting && !c->window && c->quiet == c->finalized;
}

ncclResult_t ncclGetVersion(int *version)
{
	*version = fault == DOUBLE_TOO_OLD ? 21799
		   : fault == DOUBLE_WITHOUT_WINDOWS || fault == DOUBLE_UNREGISTERED
			   ? 22605
			   : NCCL_VERSION_CODE;
	return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	int area = area_new();
	memset(id, 0, sizeof *id);
	memcpy(id->internal, &area, sizeof area);
	return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	int area;
	memcpy(&area, id.internal, sizeof area);
	if (area < 0 || area >= hub->areas || ranks < 1 || ranks > RANKS || rank < 0 ||
	    rank >= ranks)
		double_misuse("rank %d of %d, id %d", rank, ranks, area);
	*out = comm_new(&hub->area[area], NULL, ranks, rank, config);
	join(*out);
	return ncclInProgress;
}

ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
	check_comm(c, "ncclCommSplit");
	if (c->open)
		double_misuse("ncclCommSplit while %d operations are outstanding", c->open);
	if (color < 0 && color != NCCL_SPLIT_NOCOLOR)
		double_misuse("color %d", color);
	struct split *mine = &c->area->split[++c->splits % SPLITS][c->rank];
	c->child = color < 0 ? NULL : comm_new(NULL, c->shares ? c->family : NULL, 0, 0, config);
	c->splitting = true;
	mine->color = c->color = color;
	mine->key = c->key = key;
	mine->child = -1;
	mine->came = c->splits;
	c->looks = 2;
	*out = c->child;
	return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
	if (!c || c->over)
		double_misuse("ncclCommGetAsyncError after the communicator's end");
	*state = fault == DOUBLE_ASYNC_ERROR ? ncclRemoteError
		 : progress(c)               ? ncclSuccess
					     : ncclInProgress;
	return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *count)
{
	check_comm(c, "ncclCommCount");
	*count = c->ranks;
	return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank)
{
	check_comm(c, "ncclCommUserRank");
	*rank = c->rank;
	return ncclSuccess;
}

ncclResult_t ncclCommRegister(const ncclComm_t c, void *memory, size_t bytes, void **handle)
{
	check_comm(c, "ncclCommRegister");
	double_check_memory("what is registered", memory, bytes);
	if (fault == DOUBLE_NO_MEMORY || fault == DOUBLE_UNREGISTERED)
		return ncclSystemError;
	*handle = add_memory(c, memory, bytes, false);
	return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *memory, size_t bytes, ncclWindow_t *window,
				    int flags)
{
	check_comm(c, "ncclCommWindowRegister");
	double_check_memory("what is registered", memory, bytes);
	if (flags != 1)
		double_misuse("a window that is not symmetric");
	if (!count_registration(memory, 0))
		double_misuse("a window of memory that ncclMemAlloc did not give");
	if (!is_whole(memory, bytes))
		double_misuse("a window over %zu bytes of an allocation that has more", bytes);
	if (fault == DOUBLE_NO_MEMORY)
		return ncclSystemError;
	if (fault == DOUBLE_DIES)
		raise(SIGKILL);
	c->handle = fault == DOUBLE_EMPTY_WINDOWS ? NULL : add_memory(c, memory, bytes, true);
	for (int r = 0; r < c->ranks; r++)
		if (c->area->windows[r] == c->windows + 1 && c->area->window_bytes[r] != bytes)
			double_misuse("window %u: %zu bytes on rank %d, %zu on rank %d",
				      c->windows + 1, bytes, c->rank,
				      (size_t)c->area->window_bytes[r], r);
	c->area->window_bytes[c->rank] = bytes;
	c->area->windows[c->rank] = ++c->windows;
	c->window = (void **)window;
	c->looks = 2;
	return ncclInProgress;
}

static ncclResult_t deregister(const ncclComm_t c, void *handle, bool window)
{
	struct registered **m = &c->memory, *gone = handle;
	if (c->over)
		double_misuse("memory is deregistered after the communicator's end");
	if (c->finalized)
		double_misuse(
			"memory is deregistered after ncclCommFinalize, which ends the threads "
			"that this needs");
	while (*m && *m != gone)
		m = &(*m)->next;
	if (!*m || gone->window != window)
		double_misuse("memory is deregistered that is not registered so");
	double_check_memory("what is deregistered", gone->at, gone->bytes);
	*m = gone->next;
	count_registration(gone->at, -1);
	free(gone);
	registered--;
	return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle)
{
	return deregister(c, handle, false);
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t window)
{
	return deregister(c, window, true);
}

ncclResult_t ncclMemAlloc(void **memory, size_t bytes)
{
	if (fault == DOUBLE_NO_MEMORY)
		return ncclSystemError;
	if (cudaMalloc(memory, bytes) != cudaSuccess)
		return ncclUnhandledCudaError;
	pthread_mutex_lock(&pieces.lock);
	if (pieces.count == sizeof pieces.list / sizeof *pieces.list)
		double_misuse("more pieces of ncclMemAlloc than the double has room for");
	pieces.list[pieces.count++] = (struct piece){ *memory, bytes, 0 };
	pthread_mutex_unlock(&pieces.lock);
	return ncclSuccess;
}

ncclResult_t ncclMemFree(void *memory)
{
	pthread_mutex_lock(&pieces.lock);
	struct piece *p = piece_of(memory);
	if (!p || p->at != memory)
		double_misuse("ncclMemFree of memory that ncclMemAlloc did not give");
	if (p->registered)
		double_misuse("ncclMemFree of memory that is registered");
	*p = pieces.list[--pieces.count];
	pthread_mutex_unlock(&pieces.lock);
	return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
	check_comm(c, "ncclCommFinalize");
	if (c->finalized)
		double_misuse("ncclCommFinalize twice");
	if (c->memory)
		double_misuse("ncclCommFinalize of a communicator with registered memory");
	c->finalized = true;
	c->area->finalized[c->rank] = 1;
	c->looks = 2;
	return ncclInProgress;
}

static void end(ncclComm_t c)
{
	while (c->memory) {
		struct registered *m = c->memory;
		c->memory = m->next;
		count_registration(m->at, -1);
		free(m);
		registered--;
	}
	c->over = true;
	open_comms--;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	check_comm(c, "ncclCommDestroy");
	if (c->recorded)
		double_misuse("ncclCommDestroy while a graph has %d of the communicator's calls: "
			      "it waits for the graph's end",
			      c->recorded);
	if (!c->quiet)
		double_misuse("ncclCommDestroy before the end of ncclCommFinalize: it may wait for "
			      "other ranks");
	end(c);
	return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
	if (!c || c->over)
		double_misuse("ncclCommAbort after the communicator's end");
	if (c->quiet)
		double_misuse("ncclCommAbort of a communicator that ncclCommDestroy frees");
	c->family->aborted = true;
	end(c);
	while (c->recorded)
		double_progress();
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
	return result == ncclRemoteError   ? "remote error"
	       : result == ncclSystemError ? "system error"
					   : "error";
}

const char *ncclGetLastError(ncclComm_t c)
{
	if (c && c->over)
		double_misuse("ncclGetLastError after the communicator's end");
	return fault == DOUBLE_ASYNC_ERROR ? "the cable is out" : "";
}
