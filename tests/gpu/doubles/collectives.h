/*
 * collectives — a double of NCCL among processes that are forked after it was loaded, over the
 * double of CUDA's runtime.
 *
 * It has the functions that libcomm/device/cuda/nccl.c looks up, as libnccl.so.2. It is as strict as
 * NCCL's documentation:
 *
 *   - Every communicator is non-blocking, and stays ncclInProgress for a while after each call. Until
 *     then only ncclCommGetAsyncError and ncclCommAbort may be called on it, and only
 *     ncclCommGetAsyncError makes progress.
 *   - Calls are matched in order. Every rank must make the same call with the same count, type,
 *     operation and root.
 *   - A split has no outstanding operation. It shares its parent's resources if the parent was
 *     configured so: then operations of the two run one after the other, in the order of their
 *     launches on this rank, ncclCommAbort of one ends those of both, and the child has at most its
 *     parent's processors.
 *   - Communicators have names, if NCCL has them, and operations are on streams of the highest
 *     priority. NCCL does not ask for that, but advises it.
 *   - Registered memory is in one buffer of the device, and is still there when it is deregistered,
 *     which is before ncclCommFinalize: that ends the threads that deregistration needs.
 *   - All ranks have registered the buffers of a collective, or none has.
 *   - A window is symmetric, a whole allocation of ncclMemAlloc, and equally large on all ranks. NCCL
 *     maps the allocation to the same offset of all ranks, and up to 2.29 does not detect that they
 *     differ. It is complete when all ranks have called, and only then is its handle set.
 *   - Memory of ncclMemAlloc is freed by ncclMemFree alone, once, when nobody has it registered.
 *   - ncclCommDestroy comes after a finalization that is complete, which needs all ranks to call it.
 *   - Calls can be captured. Then all ranks capture them, and launch the same graphs. The operations of
 *     a communicator run in the order of their launches because streams and events say so.
 *   - A communicator outlives the graphs that have its calls: ncclCommAbort waits for their end.
 *   - Nothing is called after ncclCommDestroy or ncclCommAbort.
 *
 * An operation is a kernel that is resident on its device from its launch until its peers have come.
 * double_set_residency() limits their number, as a device whose processors they fill does. Kernels
 * then become resident in the order in which the process launched them, over all communicators, if
 * NCCL_LAUNCH_ORDER_IMPLICIT is 1, and otherwise as their streams come to them.
 *
 * An operation whose peer does not come stays on its stream forever. Misuse ends the process
 * (runtime.h).
 *
 * Reductions go from the last rank to the first, in the type itself. This is not comm.h's order, and
 * neither is NCCL's.
 */
#ifndef MUSTER_TESTS_GPU_COLLECTIVES_H
#define MUSTER_TESTS_GPU_COLLECTIVES_H

enum double_fault {
	DOUBLE_SOUND,
	DOUBLE_NEVER_READY,     /* communicators of this rank never become ready */
	DOUBLE_ASYNC_ERROR,     /* ncclRemoteError is reported, "the cable is out" */
	DOUBLE_REFUSES,         /* operations return ncclSystemError, inside their group */
	DOUBLE_NO_MEMORY,       /* memory cannot be registered, and there is none to allocate */
	DOUBLE_WITHOUT_WINDOWS, /* the version before windows */
	DOUBLE_UNREGISTERED,    /* that version, and memory cannot be registered */
	DOUBLE_EMPTY_WINDOWS,   /* calls for windows succeed with a NULL handle */
	DOUBLE_DIES,            /* the process ends when it calls for a window */
	DOUBLE_TOO_OLD,         /* the version before the oldest one that nccl.c accepts */
};

/* Sets the fault of this process from now on. */
void double_set_fault(enum double_fault fault);
/* At most so many operations are resident on this process's device from now on. 0: no limit.
 * Call it before the first operation. */
void double_set_residency(int kernels);
/* The buffers that are registered now in this process, with each communicator. */
int double_registered(void);
/* The pieces of ncclMemAlloc that this process has now. */
int double_allocated(void);
/* Of the calls so far on communicators with registered memory, the buffers that operations read or
 * wrote, and how many of them were registered with the communicator. */
void double_count_buffers(int *all, int *registered);
/* Of the registered ones, those in memory of ncclMemAlloc. */
int double_count_allocated(void);
/* Of the registered ones, those in windows. */
int double_count_windows(void);
/* The number of open communicators of this process. */
int double_open_comms(void);
/* The limit of processors (CTAs) that the communicator of this name was given. 0: none; -1:
 * there has been none of this name in the process, or NCCL's header has no names (before 2.27). */
int double_comm_processors(const char *name);
/* The communicators of what this process has launched so far, in that order, each by a number that
 * all its ranks share. Returns how many of `most` are set. */
int double_launches(int *comms, int most);

#endif
