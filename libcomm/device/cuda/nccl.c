/* NCCL 2.18 or newer, by dlopen. An operation for which NCCL has no call is a group of broadcasts,
 * reductions or messages. */
#include "base/library.h"
#include "libcomm/device/cuda/cuda.h"

#include <nccl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

enum { OLDEST = 21800, WITH_WINDOWS = 22700, SYMMETRIC_WINDOW = 1 };

/* clang-format off */
#define FUNCTIONS(X) \
	X(GetVersion) X(GetUniqueId) X(CommInitRankConfig) X(CommSplit) X(CommFinalize) X(CommDestroy) X(CommAbort) X(CommGetAsyncError) X(CommCount) X(CommUserRank) \
	X(GetErrorString) X(GetLastError) X(GroupStart) X(GroupEnd) X(AllReduce) X(Reduce) X(Broadcast) X(AllGather) X(ReduceScatter) X(Send) X(Recv)
/* clang-format on */

static struct nccl {
#define FIELD(f) __typeof__(&nccl##f) f;
	FUNCTIONS(FIELD)
#undef FIELD
	/* from 2.19 on, also if the header is older */
	ncclResult_t (*CommRegister)(const ncclComm_t comm, void *memory, size_t bytes,
				     void **handle);
	ncclResult_t (*CommDeregister)(const ncclComm_t comm, void *handle);
	/* from 2.27 on; a window is a pointer */
	ncclResult_t (*CommWindowRegister)(ncclComm_t comm, void *memory, size_t bytes,
					   void **window, int flags);
	ncclResult_t (*CommWindowDeregister)(ncclComm_t comm, void *window);
	ncclResult_t (*MemAlloc)(void **memory, size_t bytes);
	ncclResult_t (*MemFree)(void *memory);
} nccl;

struct device_comm {
	ncclComm_t comm; /* NULL: a split in which this rank takes no part */
	struct device device;
	struct device_comm *parent; /* until the split is done */
	void *byte;                 /* of the device, for barriers */
	bool finishing, finished;   /* all peers have what they need from this rank */
};

/* --- Loading --- */

static const struct library_symbol symbols[] = {
#define SYMBOL(f) LIBRARY_NEEDS(nccl, f, "nccl" #f),
	FUNCTIONS(SYMBOL)
#undef SYMBOL
		{ "ncclCommRegister", offsetof(struct nccl, CommRegister), true },
	{ "ncclCommDeregister", offsetof(struct nccl, CommDeregister), true },
	{ "ncclCommWindowRegister", offsetof(struct nccl, CommWindowRegister), true },
	{ "ncclCommWindowDeregister", offsetof(struct nccl, CommWindowDeregister), true },
	{ "ncclMemAlloc", offsetof(struct nccl, MemAlloc), true },
	{ "ncclMemFree", offsetof(struct nccl, MemFree), true },
};

static int check_version(struct err *e)
{
	int version = 0;
	if (nccl.GetVersion(&version) != ncclSuccess || version < OLDEST)
		return err_set(e, ERR_UNSUPPORTED,
			       "NCCL's version is %d, at least %d is needed; install a newer one",
			       version, OLDEST);
	return 0;
}

static struct library library = {
	.name = "NCCL",
	.files = { "libnccl.so.2" },
	.code = ERR_NOTFOUND,
	.remedy = "install NCCL 2.18 or newer (libnccl2), or name its folder in LD_LIBRARY_PATH",
	.symbols = symbols,
	.count = sizeof symbols / sizeof *symbols,
	.table = &nccl,
	.start = check_version,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

static int nccl_usable(struct device *d, struct err *e)
{
	(void)d;
	return library_load(&library, e);
}

/* An operation in progress is not an error. */
static int check_result(ncclResult_t rc, struct device_comm *dc, const char *what, struct err *e)
{
	if (rc == ncclSuccess || rc == ncclInProgress)
		return 0;
	const char *detail = dc && dc->comm ? nccl.GetLastError(dc->comm) : NULL;
	return err_set(e, rc == ncclRemoteError ? ERR_PEER : ERR_NET, "NCCL: %s: %s%s%s", what,
		       nccl.GetErrorString(rc), detail && *detail ? ": " : "",
		       detail ? detail : "");
}

/* --- Communicators --- */

static int nccl_new_key(struct device *d, unsigned char key[DEVICE_KEY], struct err *e)
{
	ncclUniqueId id;
	_Static_assert(sizeof id <= DEVICE_KEY, "the id travels as the key");
	if (cuda_use(d, e) || check_result(nccl.GetUniqueId(&id), NULL, "making an id", e))
		return -1;
	memcpy(key, &id, sizeof id);
	return 0;
}

static int new_communicator(const struct device *d, struct device_comm **out, struct err *e)
{
	struct device_comm *dc = calloc(1, sizeof *dc);
	if (!dc)
		return err_set(e, ERR_NOMEM, "no memory for a communicator");
	dc->device = *d;
	*out = dc;
	return cuda_use(d, e) ? -1 : cuda_check(cudaMalloc(&dc->byte, 1), "a byte for barriers", e);
}

/* Communicators that are split share nothing with their parents. Sharing would save memory, but
 * NCCL runs the operations of all communicators that share one after the other: those of one group
 * would hold up those of all others. NCCL's own variables, such as NCCL_MAX_CTAS and
 * NCCL_COMM_SPLIT_SHARE_RESOURCES, come before this. A library that is older than the header
 * ignores what it does not know. */
static ncclConfig_t config_of(const struct device_comm_options *opt)
{
	ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
	config.blocking = 0;
	config.splitShare = 0;
	if (opt->processors)
		config.maxCTAs = opt->processors;
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 27, 0)
	config.commName = opt->name;
#endif
	return config;
}

/* Communicators that share resources have at most the channels of the one that they are split from,
 * which then must have no limit. */
static bool splits_share(void)
{
	const char *asked = getenv("NCCL_COMM_SPLIT_SHARE_RESOURCES");
	return asked && strcmp(asked, "0");
}

static int nccl_open(struct device *d, const unsigned char key[DEVICE_KEY], int ranks, int rank,
		     const struct device_comm_options *opt, struct device_comm **out, struct err *e)
{
	ncclConfig_t config = config_of(opt);
	ncclUniqueId id;
	memcpy(&id, key, sizeof id);
	if (splits_share())
		config.maxCTAs = NCCL_CONFIG_UNDEF_INT;
	if (new_communicator(d, out, e))
		return -1;
	return check_result(nccl.CommInitRankConfig(&(*out)->comm, ranks, id, rank, &config), *out,
			    "opening", e);
}

static int nccl_split(struct device_comm *parent, int color, int key,
		      const struct device_comm_options *opt, struct device_comm **out,
		      struct err *e)
{
	ncclConfig_t config = config_of(opt);
	if (new_communicator(&parent->device, out, e))
		return -1;
	(*out)->parent = parent;
	return check_result(nccl.CommSplit(parent->comm, color < 0 ? NCCL_SPLIT_NOCOLOR : color,
					   key, &(*out)->comm, &config),
			    parent, "splitting", e);
}

/* 1: ready; 0: in progress. */
static int get_state(struct device_comm *dc, struct err *e)
{
	ncclResult_t state = ncclSuccess;
	if (!dc->comm)
		return 1;
	if (check_result(nccl.CommGetAsyncError(dc->comm, &state), dc, "asking for errors", e) <
		    0 ||
	    check_result(state, dc, "an operation", e))
		return -1;
	return state == ncclSuccess;
}

static int nccl_ready(struct device_comm *dc, struct err *e)
{
	if (cuda_use(&dc->device, e))
		return -1;
	if (dc->parent) {
		int rc = get_state(dc->parent, e);
		if (rc <= 0)
			return rc;
		dc->parent = NULL;
	}
	int rc = get_state(dc, e);
	dc->finished = dc->finishing && rc == 1;
	return rc;
}

static int nccl_finish(struct device_comm *dc, struct err *e)
{
	dc->finishing = true;
	return cuda_use(&dc->device, e)
		       ? -1
		       : check_result(nccl.CommFinalize(dc->comm), dc, "finishing", e);
}

/* NCCL's CommDestroy is local once the communicator is finished; before that it may wait for other
 * ranks. */
static void nccl_close(struct device_comm *dc)
{
	if (cuda_use(&dc->device, NULL) == 0) {
		if (dc->comm)
			(dc->finished ? nccl.CommDestroy : nccl.CommAbort)(dc->comm);
		cudaFree(dc->byte);
	}
	free(dc);
}

/* --- Memory --- */

static enum device_reach nccl_reach(void)
{
	int version = 0;
	if (nccl.CommWindowRegister && nccl.CommWindowDeregister &&
	    nccl.GetVersion(&version) == ncclSuccess && version >= WITH_WINDOWS)
		return REACH_SYMMETRIC;
	return nccl.CommRegister && nccl.CommDeregister ? REACH_LOCAL : REACH_NONE;
}

/* Where a window cannot be, such as between nodes, NCCL succeeds without one: *handle remains NULL.
 * Older versions make it an ordinary registration. */
static int nccl_register(struct device_comm *dc, const struct comm_memory *m, enum device_reach how,
			 void **handle, struct err *e)
{
	*handle = NULL;
	if (cuda_use(&dc->device, e))
		return -1;
	if (how == REACH_SYMMETRIC)
		return check_result(nccl.CommWindowRegister(dc->comm, m->at, m->bytes, handle,
							    SYMMETRIC_WINDOW),
				    dc, "registering a window; NCCL_WIN_ENABLE=0 needs none", e);
	return check_result(nccl.CommRegister(dc->comm, m->at, m->bytes, handle), dc,
			    "registering memory", e);
}

static void nccl_deregister(struct device_comm *dc, void *handle, enum device_reach how)
{
	if (cuda_use(&dc->device, NULL))
		return;
	if (how == REACH_SYMMETRIC)
		nccl.CommWindowDeregister(dc->comm, handle);
	else
		nccl.CommDeregister(dc->comm, handle);
}

/* Without memory of its own NCCL can register only what the network reads and writes; NVLink SHARP
 * and transfers between devices without copies need it. */
static int nccl_alloc(struct device *d, size_t bytes, void **memory, struct err *e)
{
	*memory = NULL;
	if (library_load(&library, e))
		return -1;
	if (!nccl.MemAlloc || !nccl.MemFree)
		return 0;
	return cuda_use(d, e)
		       ? -1
		       : check_result(nccl.MemAlloc(memory, bytes), NULL, "allocating memory", e);
}

static void nccl_release(struct device *d, void *memory)
{
	if (cuda_use(d, NULL) == 0)
		nccl.MemFree(memory);
}

/* --- Operations --- */

static const ncclDataType_t types[] = {
	[COMM_F32] = ncclFloat32, [COMM_F64] = ncclFloat64, [COMM_BF16] = ncclBfloat16,
	[COMM_F16] = ncclFloat16, [COMM_I32] = ncclInt32,   [COMM_I64] = ncclInt64,
	[COMM_U8] = ncclUint8,
};

static const ncclRedOp_t redops[] = {
	[COMM_SUM] = ncclSum, [COMM_AVG] = ncclAvg,   [COMM_MAX] = ncclMax,
	[COMM_MIN] = ncclMin, [COMM_PROD] = ncclProd,
};

struct queued_op { /* an operation, and the arguments of its calls */
	const struct op *op;
	struct device_comm *dc;
	cudaStream_t stream;
	int rank, ranks;
	ncclResult_t rc; /* the first error */
};

static void note_result(struct queued_op *j, ncclResult_t rc)
{
	if (j->rc == ncclSuccess && rc != ncclInProgress)
		j->rc = rc;
}

static size_t count_of(const struct queued_op *j, const size_t *counts, int rank)
{
	return counts ? counts[rank] : j->op->count;
}

/* The offset in bytes at which a rank's block begins. */
static size_t block_offset(const struct queued_op *j, const size_t *counts, int rank)
{
	size_t at = 0;
	for (int r = 0; r < rank; r++)
		at += count_of(j, counts, r);
	return at * comm_type_size(j->op->type);
}

static const char *in_block(const struct queued_op *j, int rank)
{
	return (const char *)j->op->in + block_offset(j, j->op->counts, rank);
}

static char *out_block(const struct queued_op *j, const size_t *counts, int rank)
{
	return (char *)j->op->out + block_offset(j, counts, rank);
}

static void queue_send(struct queued_op *j, const void *data, size_t count, enum comm_type type,
		       int to)
{
	if (count)
		note_result(j, nccl.Send(data, count, types[type], to, j->dc->comm, j->stream));
}

static void queue_recv(struct queued_op *j, void *data, size_t count, enum comm_type type, int from)
{
	if (count)
		note_result(j, nccl.Recv(data, count, types[type], from, j->dc->comm, j->stream));
}

/* The average over one rank is the sum, which NCCL copies. Its kernel for such averages leaves the
 * last elements unwritten for some counts before NCCL 2.29.7, such as 4099 of 8 bytes. */
static ncclRedOp_t redop_of(const struct queued_op *j)
{
	return redops[j->ranks == 1 && j->op->redop == COMM_AVG ? COMM_SUM : j->op->redop];
}

static void all_reduce(struct queued_op *j)
{
	const struct op *op = j->op;
	note_result(j, nccl.AllReduce(op->in, op->out, op->count, types[op->type], redop_of(j),
				      j->dc->comm, j->stream));
}

static void reduce(struct queued_op *j)
{
	const struct op *op = j->op;
	note_result(j, nccl.Reduce(op->in, op->out, op->count, types[op->type], redop_of(j),
				   op->root, j->dc->comm, j->stream));
}

static void broadcast(struct queued_op *j)
{
	const struct op *op = j->op;
	note_result(j, nccl.Broadcast(op->in, op->out, op->count, types[op->type], op->root,
				      j->dc->comm, j->stream));
}

static void all_gather(struct queued_op *j)
{
	const struct op *op = j->op;
	if (!op->counts)
		note_result(j, nccl.AllGather(op->in, op->out, op->count, types[op->type],
					      j->dc->comm, j->stream));
	for (int r = 0; op->counts && r < j->ranks; r++)
		if (op->counts[r])
			note_result(j, nccl.Broadcast(op->in, out_block(j, op->counts, r),
						      op->counts[r], types[op->type], r,
						      j->dc->comm, j->stream));
}

static void reduce_scatter(struct queued_op *j)
{
	const struct op *op = j->op;
	if (!op->counts)
		note_result(j, nccl.ReduceScatter(op->in, op->out, op->count, types[op->type],
						  redop_of(j), j->dc->comm, j->stream));
	for (int r = 0; op->counts && r < j->ranks; r++)
		if (op->counts[r])
			note_result(j, nccl.Reduce(in_block(j, r), op->out, op->counts[r],
						   types[op->type], redop_of(j), r, j->dc->comm,
						   j->stream));
}

static void all_to_all(struct queued_op *j)
{
	const struct op *op = j->op;
	for (int r = 0; r < j->ranks; r++) {
		queue_send(j, in_block(j, r), count_of(j, op->counts, r), op->type, r);
		queue_recv(j, out_block(j, op->out_counts, r), count_of(j, op->out_counts, r),
			   op->type, r);
	}
}

/* A block that is in place already stays there. */
static void queue_gather(struct queued_op *j)
{
	const struct op *op = j->op;
	bool here = j->rank == op->root && op->in == out_block(j, op->counts, j->rank);
	if (!here)
		queue_send(j, op->in, count_of(j, op->counts, j->rank), op->type, op->root);
	for (int r = 0; j->rank == op->root && r < j->ranks; r++)
		if (r != j->rank || !here)
			queue_recv(j, out_block(j, op->counts, r), count_of(j, op->counts, r),
				   op->type, r);
}

static void queue_scatter(struct queued_op *j)
{
	const struct op *op = j->op;
	bool here = j->rank == op->root && op->out == in_block(j, j->rank);
	for (int r = 0; j->rank == op->root && r < j->ranks; r++)
		if (r != j->rank || !here)
			queue_send(j, in_block(j, r), count_of(j, op->counts, r), op->type, r);
	if (!here)
		queue_recv(j, op->out, count_of(j, op->counts, j->rank), op->type, op->root);
}

static void barrier(struct queued_op *j)
{
	note_result(j, nccl.AllReduce(j->dc->byte, j->dc->byte, 1, ncclUint8, ncclMax, j->dc->comm,
				      j->stream));
}

static void messages(struct queued_op *j)
{
	for (int i = 0; i < j->op->n; i++) {
		const struct comm_p2p *p = &j->op->p2p[i];
		if (p->send)
			queue_send(j, p->source, p->count, p->type, p->peer);
		else
			queue_recv(j, p->data, p->count, p->type, p->peer);
	}
}

static void (*const jobs[OP_KIND_COUNT])(struct queued_op *) = {
	[OP_ALL_REDUCE] = all_reduce,
	[OP_REDUCE] = reduce,
	[OP_BROADCAST] = broadcast,
	[OP_ALL_GATHER] = all_gather,
	[OP_REDUCE_SCATTER] = reduce_scatter,
	[OP_ALL_TO_ALL] = all_to_all,
	[OP_GATHER] = queue_gather,
	[OP_SCATTER] = queue_scatter,
	[OP_BARRIER] = barrier,
	[OP_P2P] = messages,
};

/* NCCL launches what one group of calls has for a communicator as one kernel, or as few as its
 * tables of work allow, and spreads it over its channels. */
static int nccl_queue(struct device_comm *dc, const struct op *ops, int n, void *stream,
		      struct err *e)
{
	struct queued_op j = { .dc = dc, .stream = stream, .rc = ncclSuccess };
	if (!jobs[ops->kind])
		return err_set(e, ERR_UNSUPPORTED, "NCCL cannot run %s; backend \"staged\" can",
			       comm_op_word(ops->kind));
	if (cuda_use(&dc->device, e) ||
	    check_result(nccl.CommCount(dc->comm, &j.ranks), dc, "counting ranks", e) ||
	    check_result(nccl.CommUserRank(dc->comm, &j.rank), dc, "asking for the rank", e) ||
	    check_result(nccl.GroupStart(), dc, "beginning", e))
		return -1;
	for (int i = 0; i < n; i++) {
		j.op = &ops[i];
		jobs[ops->kind](&j);
	}
	note_result(&j, nccl.GroupEnd()); /* also after an error, to end the started group */
	return check_result(j.rc, dc, comm_op_word(ops->kind), e);
}

const struct device_collectives cuda_nccl = {
	.name = "nccl",
	.usable = nccl_usable,
	.new_key = nccl_new_key,
	.open = nccl_open,
	.split = nccl_split,
	.reach = nccl_reach,
	.register_memory = nccl_register,
	.deregister = nccl_deregister,
	.alloc = nccl_alloc,
	.release = nccl_release,
	.queue = nccl_queue,
	.ready = nccl_ready,
	.finish = nccl_finish,
	.close = nccl_close,
};
