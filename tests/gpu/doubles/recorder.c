#include "tests/gpu/doubles/recorder.h"

#include <nccl.h>
#include <stdbool.h>
#include <stdlib.h>

/* Most arguments do not matter here. */
#pragma GCC diagnostic ignored "-Wunused-parameter"

struct ncclComm {
	int ranks, rank;
};

static struct recorded all;
static int depth;
static bool group_has_calls;

struct recorded recorder_calls(void)
{
	return all;
}

static ncclResult_t record(enum recorded_kind kind)
{
	all.calls[kind]++;
	all.launches += depth == 0;
	group_has_calls = depth > 0;
	return ncclSuccess;
}

static ncclResult_t open_comm(ncclComm_t *out, int ranks, int rank)
{
	ncclComm_t c = malloc(sizeof *c);
	if (!c)
		return ncclSystemError;
	*c = (struct ncclComm){ ranks, rank };
	*out = c;
	return ncclSuccess;
}

/* --- Communicators ------------------------------------------------------------------------ */

ncclResult_t ncclGetVersion(int *version)
{
	*version = NCCL_VERSION_CODE;
	return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
	*id = (ncclUniqueId){ .internal = "recorder" };
	return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
				    ncclConfig_t *config)
{
	return open_comm(out, ranks, rank);
}

/* All ranks stay together. */
ncclResult_t ncclCommSplit(ncclComm_t c, int color, int key, ncclComm_t *out, ncclConfig_t *config)
{
	return open_comm(out, c->ranks, c->rank);
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t c, ncclResult_t *state)
{
	*state = ncclSuccess;
	return ncclSuccess;
}

ncclResult_t ncclCommCount(const ncclComm_t c, int *count)
{
	*count = c->ranks;
	return ncclSuccess;
}

ncclResult_t ncclCommUserRank(const ncclComm_t c, int *rank)
{
	*rank = c->rank;
	return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t c)
{
	return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t c)
{
	free(c);
	return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t c)
{
	free(c);
	return ncclSuccess;
}

const char *ncclGetErrorString(ncclResult_t result)
{
	return "an error of the recorder";
}

const char *ncclGetLastError(ncclComm_t c)
{
	return NULL;
}

/* --- Calls -------------------------------------------------------------------------------- */

ncclResult_t ncclGroupStart(void); /* nccl.h has no prototypes of these two */
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGroupStart(void)
{
	depth++;
	return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
	if (--depth == 0) {
		all.launches += group_has_calls;
		group_has_calls = false;
	}
	return ncclSuccess;
}

ncclResult_t ncclAllReduce(const void *in, void *out, size_t count, ncclDataType_t type,
			   ncclRedOp_t op, ncclComm_t c, cudaStream_t stream)
{
	return record(RECORDED_ALL_REDUCE);
}

ncclResult_t ncclReduce(const void *in, void *out, size_t count, ncclDataType_t type,
			ncclRedOp_t op, int root, ncclComm_t c, cudaStream_t stream)
{
	return record(RECORDED_REDUCE);
}

ncclResult_t ncclBroadcast(const void *in, void *out, size_t count, ncclDataType_t type, int root,
			   ncclComm_t c, cudaStream_t stream)
{
	return record(RECORDED_BROADCAST);
}

ncclResult_t ncclAllGather(const void *in, void *out, size_t count, ncclDataType_t type,
			   ncclComm_t c, cudaStream_t stream)
{
	return record(RECORDED_ALL_GATHER);
}

ncclResult_t ncclReduceScatter(const void *in, void *out, size_t count, ncclDataType_t type,
			       ncclRedOp_t op, ncclComm_t c, cudaStream_t stream)
{
	return record(RECORDED_REDUCE_SCATTER);
}

ncclResult_t ncclSend(const void *in, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
		      cudaStream_t stream)
{
	return record(RECORDED_SEND);
}

ncclResult_t ncclRecv(void *out, size_t count, ncclDataType_t type, int peer, ncclComm_t c,
		      cudaStream_t stream)
{
	return record(RECORDED_RECV);
}
