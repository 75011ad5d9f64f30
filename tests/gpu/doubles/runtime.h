/*
 * runtime — a double of CUDA's runtime, as far as libcomm/device/cuda/ and tests/gpu/ use it, over the host's memory.
 *
 * Four devices, whose memory is one arena that all processes forked after the library was loaded share. Streams are queues of the
 * process; what is in them is carried out a few steps at a time, of a stream chosen by dice, when somebody asks for
 * an event or waits. Misuse that a real runtime would crash at, forgive or punish much later ends the process at
 * once, with a line on stderr: no test can pass over it.
 */
#ifndef MUSTER_TESTS_GPU_RUNTIME_H
#define MUSTER_TESTS_GPU_RUNTIME_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>

enum { DOUBLE_DEVICES = 4 };

/* Says what was misused and ends the process. */
__attribute__((noreturn, format(printf, 1, 2))) void double_misuse(const char *fmt, ...);
/* Ends the process unless the bytes lie in one buffer of this thread's device. */
void double_check_memory(const char *who, const void *at, size_t bytes);
/* Queues a step of another library: `run` is called until it returns true, under the runtime's lock; then `arg` is freed. */
void double_queue(cudaStream_t stream, bool (*run)(void *arg), void *arg);
/* This thread's device. */
int double_device(void);
/* Streams, events, buffers and pinned memory that this process has open. */
int double_open_things(void);

#endif
