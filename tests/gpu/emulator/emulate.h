/*
 * emulate — runs a grid of CUDA threads on one thread of the host. device.h and its ptx.cuh call
 * it.
 *
 * Blocks run one after the other, in random order. A block's threads are fibers: each runs until it
 * waits, at a barrier of its block or in a meeting of lanes of its warp, and the next one to run is
 * chosen at random each time. So a kernel that lacks a barrier fails for some seed in
 * MUSTER_EMULATE_SEED (1 if it is not set). What CUDA leaves undefined ends the process with a line
 * on stderr: "misuse: kernel K, block (x,y,z), thread (x,y,z): …, seed S".
 *
 * Shared memory is all ones (NaN) when a block begins, and has exactly the size of the launch.
 */
#ifndef MUSTER_TESTS_GPU_EMULATE_H
#define MUSTER_TESTS_GPU_EMULATE_H

#include <cuda_runtime_api.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { EMULATED_WARP = 32 };

struct emulated_index {
	unsigned x, y, z;
};

/* The built-in variables of CUDA, for the running block and thread. */
struct emulated_now {
	struct emulated_index grid_dim, block_dim, block_idx, thread_idx;
};
extern struct emulated_now emulated_now;

/* A place in the source, for messages. */
struct emulated_site {
	const char *file;
	int line;
};

/* Waits until all threads of the block have called it. */
void emulated_barrier(struct emulated_site site);

/* The operations that lanes of a warp do together. */
enum emulated_meeting {
	MEET_SYNC,
	MEET_SHUFFLE,
	MEET_VOTE,
	MEET_LDMATRIX,
	MEET_LDMATRIX_TRANS,
	MEET_MMA_BF16,
	MEET_MMA_FP16
};
/* Waits until all lanes of the mask have called it with the same kind and mask. The last one calls
 * `together` (NULL: nothing) with the argument of each lane, which is NULL for lanes outside of the
 * mask. */
void emulated_meet(enum emulated_meeting kind, uint32_t mask, void *mine,
		   void (*together)(void *const lanes[EMULATED_WARP]), struct emulated_site site);
int emulated_lane(void);

/* The block's dynamic shared memory, 128-byte aligned. */
void *emulated_dynamic_shared(void);

/* Copies 16 bytes from device to shared memory (from NULL: zeros). `to` is invalid until a wait
 * covers the copy. */
void emulated_copy_async(void *to, const void *from);
void emulated_copy_commit(void);
void emulated_copy_wait(int groups_left);

/* Checks an access of the running thread. A forbidden one ends the process. Between
 * emulated_atomic_begin and _end the access is atomic. */
void emulated_touch(const void *at, size_t bytes, bool write);
void emulated_atomic_begin(const void *at);
void emulated_atomic_end(void);

/* Reports a misuse by the running thread and ends the process. */
__attribute__((noreturn, format(printf, 1, 2))) void emulated_misuse(const char *fmt, ...);

/* A kernel and how to call it: run(kernel, args) is one thread. */
struct emulated_kernel {
	const void *function;
	void (*run)(const void *function, const void *args);
	/* An address in the thread-local memory of the kernel's library, which holds static shared
	 * memory. */
	void *(*statics)(void);
};

/* Checks a launch and queues it in config->stream. args are copied. */
cudaError_t emulated_launch(const cudaLaunchConfig_t *config, const struct emulated_kernel *kernel,
			    const void *args, size_t bytes);

/* Runs a grid now, as a step of the runtime. */
void emulated_run(const struct emulated_kernel *kernel, struct emulated_index grid,
		  struct emulated_index block, size_t shared, const void *args, size_t bytes);

/* Sets the handler of this thread's faults: an access to device memory that is allowed is tried
 * again, any other one ends the process with a line that names it. */
void emulated_watch_faults(void);

#ifdef __cplusplus
}
#endif

#endif
