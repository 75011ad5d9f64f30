/* inside — what the parts of the runtime's double share. */
#ifndef MUSTER_TESTS_GPU_INSIDE_H
#define MUSTER_TESTS_GPU_INSIDE_H

#include "tests/gpu/doubles/runtime.h"

#include <stdint.h>

enum { POISON = 0xff };

/* Returns rc. An error is kept for cudaGetLastError. */
cudaError_t double_error(cudaError_t rc);
void double_count_things(int more);

/* --- Memory --- */

enum memory_kind { MEMORY_DEVICE, MEMORY_PINNED, MEMORY_HOST };
/* Ends the process for device memory that is in no buffer, or in a freed one. */
enum memory_kind memory_kind_of(const char *who, const void *at, size_t bytes);
/* Whether the bytes are in one buffer of the process, on any device, and on which one. */
bool memory_holds(const void *at, size_t bytes, const char **begin, size_t *room);
bool memory_pinned(const void *at, size_t bytes);
/* Between these two, device memory may be touched. Under the lock. */
void memory_open(void);
void memory_close(void);
/* For the handler of faults: whether an access to `at` is now allowed and is to be tried again. */
bool memory_open_piece(const void *at);

/* --- Streams: under the lock --- */

struct step {
	struct step *next;
	bool (*run)(void *arg);
	void *arg;
};

/* Nodes of a graph, by number. */
struct nodes {
	int *node, count;
};

struct CUstream_st {
	int device;
	int priority;
	struct step *head, **tail;
	uint64_t queued, awaited; /* steps so far, and those of them that the host waited for */
	struct CUstream_st *next;
	struct CUgraph_st *capture; /* NULL: steps run */
	struct nodes last;          /* the nodes before the next captured one */
};

struct CUevent_st {
	int device;
	bool timed;
	uint64_t recorded, done;
	uint64_t awaited;        /* the last record that the host waited for */
	double at;               /* when it completed, in seconds */
	bool closed;             /* kept, since a stream may still refer to it */
	struct CUevent_st *next; /* the next closed one */
	struct CUgraph_st
		*capture; /* the capture in which it was last recorded, after these nodes */
	uint64_t capture_id;
	struct nodes last;
};

extern struct CUstream_st double_streams; /* the default stream, followed by the others */
void double_lock(void);
void double_unlock(void);
extern struct double_queued queued_so_far;
struct CUstream_st *double_stream(cudaStream_t s);
/* Waits for the event, as last recorded; to be freed. */
void *double_wait_new(cudaEvent_t e);
bool double_wait_run(void *wait);
cudaError_t double_push(cudaStream_t stream, bool (*run)(void *arg), const void *arg, size_t bytes);
uint32_t double_dice(void);
void double_drain(struct CUstream_st *s);
/* Waits for the streams of this thread's device, and for the default stream if it is meant too. */
void double_drain_device(bool with_default);

/* --- Captures: under the lock --- */

/* A step of a captured stream. */
cudaError_t capture_push(struct CUstream_st *s, bool (*run)(void *arg), const void *arg,
			 size_t bytes);
void capture_work(struct CUstream_st *s, const struct double_work *work, void *recorded);
cudaError_t capture_record(struct CUstream_st *s, cudaEvent_t e);
/* As a node: each launch waits for the event as last recorded before. */
cudaError_t capture_wait_external(struct CUstream_st *s, cudaEvent_t e);
cudaError_t capture_wait(struct CUstream_st *s, cudaEvent_t e);
/* The error of a call that is not allowed during a capture of this thread, and spoils the capture;
 * or success. */
cudaError_t capture_forbids(const char *call);
void nodes_copy(struct nodes *to, const struct nodes *from);

#endif
