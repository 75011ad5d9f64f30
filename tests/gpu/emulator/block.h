/* block — what the parts of the emulator share: a block's threads, and the kernel that runs. */
#ifndef MUSTER_TESTS_GPU_BLOCK_H
#define MUSTER_TESTS_GPU_BLOCK_H

#include "tests/gpu/emulator/emulate.h"
#include "tests/gpu/emulator/fiber.h"

enum thread_state { FRESH, READY, AT_BARRIER, AT_MEETING, DONE };

/* An asynchronous copy that no wait has covered. */
struct pending {
	void *to;
	const void *from;
	int group;
};

struct thread {
	struct emulated_index idx;
	enum thread_state state;
	struct fiber *fiber;
	struct emulated_site site; /* where it waits */
	enum emulated_meeting kind;
	uint32_t mask;
	void *mine;
	struct pending *copies;
	int copy_count, copy_room, group; /* group: the open one */
};

/* A range of bytes. */
struct span {
	const char *at;
	size_t bytes;
};

static inline bool span_holds(const struct span *s, const void *at, size_t bytes)
{
	size_t from = (size_t)((const char *)at - s->at);
	return from < s->bytes && bytes <= s->bytes - from;
}

/* The lanes that have arrived at a meeting. */
struct meeting {
	enum emulated_meeting kind;
	uint32_t mask, came;
};

struct warp {
	uint32_t ready;
	uint16_t clock; /* of __syncwarp since the last barrier */
	int meetings;
	struct meeting meeting[EMULATED_WARP];
};

enum { THREADS_MAX = 1024, WARPS_MAX = THREADS_MAX / EMULATED_WARP };

struct block {
	const struct emulated_kernel *kernel;
	const void *args;
	size_t args_bytes;
	int threads, warps, ready, done, at_barrier;
	struct thread thread[THREADS_MAX];
	struct warp warp[WARPS_MAX];
	struct thread *now; /* NULL: no kernel runs */
	struct span stack;  /* of that thread */
	struct span dynamic, statics,
		library; /* shared memory, and the library that has the kernel's constants */
};

extern struct block emulated_block;

/* A random number below `below`, by the seed. */
uint32_t emulated_dice(uint32_t below);
uint64_t emulated_seed(void);
/* The name of a kernel, if its library has it. */
const char *emulated_name(const void *function);

/* --- Shared memory --- */

/* Sets the shared memory of a block of this launch, static and dynamic, to all ones. */
void shared_begin(const struct emulated_kernel *k, size_t bytes);
/* Ends the process if something was written after it. */
void shared_check(void);
/* Whether an address outside of the block's dynamic shared memory is just before or after it. */
bool shared_beyond(const void *at);
/* Whether the bytes are in the block's shared memory, static or dynamic. */
static inline bool shared_holds(const void *at, size_t bytes)
{
	return span_holds(&emulated_block.dynamic, at, bytes) ||
	       span_holds(&emulated_block.statics, at, bytes);
}

/* --- Accesses: what orders them --- */

void check_launch(void);
void check_block(void);
void check_barrier(void);

#endif
