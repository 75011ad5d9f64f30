/*
 * runtime — a double of CUDA's runtime, as far as libcomm/device/cuda/, kernels/cuda/ and
 * tests/gpu/ use it, over the host's memory.
 *
 * Four devices like an H200 (MUSTER_EMULATE_SM=80: like an A100, 86: like an A10), whose memory is
 * one arena that all processes forked after the library was loaded share. Streams are queues of the
 * process; what is in them, kernels too (tests/gpu/emulator), is carried out a few steps at a time,
 * of a stream chosen by dice, when somebody asks for an event or waits. Misuse that a real runtime
 * would crash at, forgive or punish much later ends the process at once, with a line on stderr: no
 * test can pass over it.
 *
 * New device memory is not zero (its first MiB is all ones), freed memory is of no use. With
 * MUSTER_EMULATE_GUARD=1 device memory can be touched by what streams carry out alone: a host that
 * reads it ends with a line.
 */
#ifndef MUSTER_TESTS_GPU_RUNTIME_H
#define MUSTER_TESTS_GPU_RUNTIME_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { DOUBLE_DEVICES = 4 };

/* Says what was misused and ends the process. */
__attribute__((noreturn, format(printf, 1, 2))) void double_misuse(const char *fmt, ...);
/* Ends the process unless the bytes lie in one buffer of this thread's device. */
void double_check_memory(const char *who, const void *at, size_t bytes);
/* Queues a step of another library: `run` is called until it returns true, under the runtime's
 * lock; then `arg` is freed. Not while the stream is captured. */
void double_queue(cudaStream_t stream, bool (*run)(void *arg), void *arg);
/* The same of a copy of `bytes` at `arg`. `run` leaves them as they are: a graph runs it again.
 * The error of a capture. */
cudaError_t double_queue_copy(cudaStream_t stream, bool (*run)(void *arg), const void *arg,
			      size_t bytes);
/* This thread's device. */
int double_device(void);
/* Streams, events, buffers, graphs and pinned memory that this process has open. */
int double_open_things(void);
/* Bytes that each device has from now on (0: as an H200 has): what does not fit is refused.
 * MUSTER_EMULATE_MEMORY says it too. */
void double_set_memory(size_t bytes);
/* What an address is, in words. */
const char *double_memory_word(const void *at);
/* The compute capability of the devices, as 90. */
int double_capability(void);

#ifdef __cplusplus
}
#endif

#endif
