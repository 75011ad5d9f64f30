/*
 * recorder — a double of NCCL that counts calls and does nothing else, as libnccl.so.2 in a folder
 * of its own. A communicator has as many ranks as its opener says, and this process is one of
 * them: so the calls of one rank of a thousand can be counted.
 */
#ifndef MUSTER_TESTS_GPU_RECORDER_H
#define MUSTER_TESTS_GPU_RECORDER_H

#include <stdint.h>

enum recorded_kind {
	RECORDED_ALL_REDUCE,
	RECORDED_REDUCE,
	RECORDED_BROADCAST,
	RECORDED_ALL_GATHER,
	RECORDED_REDUCE_SCATTER,
	RECORDED_SEND,
	RECORDED_RECV,
	RECORDED_KINDS
};

struct recorded {
	int64_t calls[RECORDED_KINDS];
	/* of kernels: what one outermost group has for one communicator is one launch. Groups of
	 * several communicators are not counted rightly, and a call outside a group is one. */
	int64_t launches;
};

/* The calls so far, of the whole process. */
struct recorded recorder_calls(void);

#endif
