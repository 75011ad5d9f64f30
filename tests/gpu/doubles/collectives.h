/*
 * collectives — a double of NCCL among processes that are forked after it was loaded, over the
 * double of CUDA's runtime.
 *
 * It has the functions that libcomm/device/cuda/nccl.c looks up, as libnccl.so.2, and is as strict
 * as NCCL's documentation: every communicator is non-blocking and stays ncclInProgress for a while
 * after each call; until then only ncclCommGetAsyncError and ncclCommAbort may be called on it, and
 * ncclCommGetAsyncError alone brings it on; calls are matched in order, and must be the same call
 * with the same count, type, operation and root on every rank; a split has no operation
 * outstanding; ncclCommDestroy comes after a finalization that has come to its end, which it does
 * when all ranks have called it; nothing is called after ncclCommDestroy or ncclCommAbort. An
 * operation whose peer does not come stays on its stream for ever. Misuse ends the process
 * (runtime.h).
 *
 * Reductions go from the last rank to the first, in the type itself: not comm.h's order, as NCCL's
 * is not.
 */
#ifndef MUSTER_TESTS_GPU_COLLECTIVES_H
#define MUSTER_TESTS_GPU_COLLECTIVES_H

enum double_fault {
	DOUBLE_SOUND,
	DOUBLE_NEVER_READY, /* communicators of this rank never begin */
	DOUBLE_ASYNC_ERROR, /* ncclRemoteError shows up, "the cable is out" */
	DOUBLE_REFUSES,     /* operations return ncclSystemError, inside their group */
	DOUBLE_TOO_OLD,     /* the version before the oldest that nccl.c takes */
};

/* In this process, from now on. */
void double_set_fault(enum double_fault fault);
/* Communicators that this process has open. */
int double_open_comms(void);

#endif
