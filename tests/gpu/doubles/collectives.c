/* collectives: the operations that NCCL's double takes, and what it asks of them. */
#include "tests/gpu/doubles/collectives_inside.h"

#include <stdlib.h>
#include <string.h>

enum { PARTS = 256 };

_Atomic enum double_fault double_fault_now;
static _Thread_local struct {
	int depth, count;
	ncclComm_t comm;
	cudaStream_t stream;
	struct part part[PARTS];
} building;

void double_set_fault(enum double_fault f)
{
	double_fault_now = f;
}

/* --- The rules --- */

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
		double_check_memory("what is received", out, double_result_bytes(c, call));
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

static ncclResult_t enter(ncclComm_t c, cudaStream_t stream, const char *who, struct call call)
{
	double_comm_check(c, who);
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
	if (double_fault_now == DOUBLE_REFUSES)
		return ncclSystemError;
	if (!call.count)
		return ncclSuccess;
	call.in_registered = double_memory_use(c, call.in);
	call.out_registered = double_memory_use(c, call.out);
	building.comm = c;
	building.stream = stream;
	building.part[building.count++] = (struct part){ .call = call };
	return ncclSuccess;
}

/* --- Groups --- */

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
	double_order_launch(g);
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

static const struct double_work recorded_group = { double_group_run, launch_recorded,
						   forget_recorded };

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
		double_queue(building.stream, double_group_run, g);
	}
	building.comm->looks = 1 + (int)(building.comm->collectives % 3);
	building.count = 0;
	building.comm = NULL;
	return ncclInProgress;
}

/* --- Operations --- */

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
