/*
 * runtime — a double of the parts of CUDA's runtime that libcomm/device/cuda/, kernels/cuda/ and
 * tests/gpu/ use, in host memory.
 *
 * It has four devices like an H200 (MUSTER_EMULATE_SM=80: like an A100, 86: like an A10; MUSTER_EMULATE_MULTIPROCESSORS=N: with N). Their memory
 * is one arena, which all processes share that are forked after the library was loaded. Streams are
 * queues of the process. Their contents, including kernels (tests/gpu/emulator), run a few steps at a
 * time, from a stream chosen at random, when an event is queried or waited for. Misuse that makes a
 * real runtime crash, or that it tolerates or reports much later, ends the process at once with a line
 * on stderr, so that no test can miss it.
 *
 * New device memory is not zero (its first MiB is all ones), and freed memory is unusable. With
 * MUSTER_EMULATE_GUARD=1 only streams can touch device memory: a host that reads it ends with a line.
 */
#ifndef MUSTER_TESTS_GPU_RUNTIME_H
#define MUSTER_TESTS_GPU_RUNTIME_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DOUBLE_DEVICES = 4 };

/* Reports a misuse and ends the process. */
__attribute__((noreturn, format(printf, 1, 2))) void double_misuse(const char *fmt, ...);
/* Ends the process unless the bytes are in one buffer of this thread's device. */
void double_check_memory(const char *who, const void *at, size_t bytes);
/* Queues a step of another library: `run` is called under the runtime's lock until it returns true;
 * then `arg` is freed. The stream must not be captured. */
void double_queue(cudaStream_t stream, bool (*run)(void *arg), void *arg);
/* As double_queue, with a copy of the `bytes` bytes at `arg`. `run` must not change them, since a graph
 * runs it again. Returns the error of a capture. */
cudaError_t double_queue_copy(cudaStream_t stream, bool (*run)(void *arg), const void *arg,
			      size_t bytes);
/* What another library queues on a stream that is captured. A graph that holds it makes a new
 * argument for each launch, in the order of the capture; `run` frees nothing. */
struct double_work {
	bool (*run)(void *arg);
	void *(*launch)(const void *recorded);
	void (*forget)(void *recorded); /* frees it, with the graph */
};
/* Whether the stream is captured. Then the work is recorded and takes `recorded` over. */
bool double_record(cudaStream_t stream, const struct double_work *work, void *recorded);
/* Lets the streams run a few steps. */
void double_progress(void);
/* What the host has queued on streams so far, one by one. What is captured counts when its graph is
 * launched, as one launch. */
struct double_queued {
	int64_t work;   /* kernels, copies, and memory that is set */
	int64_t events; /* recorded or waited for */
	int64_t others; /* of another library: NCCL */
	int64_t graphs;
};
struct double_queued double_queued(void);
/* This thread's device. */
int double_device(void);
/* The calls of this thread so far, without those that were recorded into a graph. A wait for a
 * stream or an event counts unless the host has already waited for the same work of it. Whether the
 * work has ended does not matter, since other threads let streams run, too. */
struct double_calls {
	int64_t launches;     /* of kernels, and of products of cuBLASLt */
	int64_t graphs;       /* launches of graphs */
	int64_t copies;       /* copies and fills on streams */
	int64_t stream_waits; /* for a stream, or for the device */
	int64_t event_waits;
};
struct double_calls double_calls(void);
void double_note_launch(cudaStream_t stream);
void double_note_copy(cudaStream_t stream);
void double_note_graph(void);
/* The number of open streams, events, buffers, graphs and pinned blocks of this process. */
int double_open_things(void);
/* The bytes that this process's streams have set to zero, those of replayed graphs included. */
int64_t double_bytes_zeroed(void);
/* Sets the bytes of memory of each device from now on (0: those of an H200). What does not fit is
 * refused. MUSTER_EMULATE_MEMORY sets it too. */
void double_set_memory(size_t bytes);
/* With double_virtual_clock, timed events show a clock that only double_spend moves: each
 * kernel takes double_kernel_seconds, and a product what its double says. Otherwise they show
 * this machine's. */
extern bool double_virtual_clock;
extern double double_kernel_seconds;
/* By work on a device, under the runtime's lock. */
void double_spend(double seconds);
/* Describes what an address is. */
const char *double_memory_word(const void *at);
/* The compute capability of the devices, such as 90. */
int double_capability(void);

#ifdef __cplusplus
}
#endif

#endif
