/*
 * Checks every access of a kernel, which the compiler reports (-fsanitize=thread; this file replaces
 * its library): the memory must be allowed for kernels, the access aligned, and in no race with another
 * thread.
 *
 * A race is two accesses to the same two bytes, one of them a write, that nothing orders. __syncthreads
 * orders threads of a block, and __syncwarp also lanes of a warp; shuffles and votes do not order
 * memory; nothing orders blocks of a launch. Atomic accesses never race. A block with an atomic access
 * to device memory is not compared with other blocks any more, since it may know that they have
 * ended. A table keeps the last accesses: an old access may be forgotten, so a race may be missed, but
 * none is reported wrongly. MUSTER_EMULATE_RACES=0 turns this off.
 */
#include "tests/gpu/emulator/block.h"

#include "tests/gpu/doubles/inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* In a launch with more than WATCHED accesses, one block in SAMPLED is checked for races. */
enum { CELLS = 1 << 21, NOBODY = 0xffff, WATCHED = 1 << 20, SAMPLED = 16 };

/* The last accesses to two bytes. */
struct cell {
	uint32_t tag;                     /* of the address */
	uint32_t written, read;           /* stamps of the last accesses */
	uint32_t shared;                  /* the launch in which two blocks read it */
	uint16_t writer, reader, another; /* threads; another: one that read after the reader */
	uint16_t write_clock, read_clock; /* of their warps */
	uint16_t unused;
};

static struct cell cells[CELLS];
/* each barrier, block and launch begins a new stamp */
static uint32_t stamp, launch_stamp, block_stamp;
static int atomics;
static bool knows_others, watching, races;
static long watched;       /* accesses of this launch */
static struct span buffer; /* the device's buffer that was touched last */

void check_launch(void)
{
	const char *said = getenv("MUSTER_EMULATE_RACES");
	races = !said || *said != '0';
	launch_stamp = ++stamp;
	watched = 0;
	buffer.bytes = 0;
}

void check_block(void)
{
	block_stamp = ++stamp;
	knows_others = false;
	watching = races && (watched < WATCHED || emulated_dice(SAMPLED) == 0);
}

void check_barrier(void)
{
	stamp++;
	for (int i = 0; i < emulated_block.warps; i++)
		emulated_block.warp[i].clock = 0;
}

void emulated_atomic_begin(const void *at)
{
	atomics++;
	knows_others |= !shared_holds(at, 1);
}

void emulated_atomic_end(void)
{
	atomics--;
}

/* --- Races --- */

__attribute__((noreturn)) static void race(const void *at, bool write, const char *did, int other)
{
	char who[40] = "another block";
	if (other >= 0)
		snprintf(who, sizeof who, "thread %d of the block", other);
	emulated_misuse("%s %p (%s), which %s %s with nothing in between that orders them",
			write ? "writes" : "reads", at,
			shared_holds(at, 1) ? "shared memory" : double_memory_word(at), who, did);
}

/* Whether an access of `other` in this stamp is ordered before one of thread t. */
static bool ordered(int other, uint16_t clock, int t)
{
	return other == t || (other / EMULATED_WARP == t / EMULATED_WARP &&
			      clock < emulated_block.warp[t / EMULATED_WARP].clock);
}

static void against_write(const struct cell *c, const void *at, bool write, int t, uint32_t since)
{
	if (c->written < since)
		return;
	if (c->written < block_stamp && !knows_others)
		race(at, write, "wrote", -1);
	if (c->written == stamp && !ordered(c->writer, c->write_clock, t))
		race(at, write, "wrote", c->writer);
}

static void against_reads(const struct cell *c, const void *at, int t, uint32_t since)
{
	if (c->read < since)
		return;
	if (((c->shared == launch_stamp && since == launch_stamp) || c->read < block_stamp) &&
	    !knows_others)
		race(at, true, "reads", -1);
	if (c->read == stamp && !ordered(c->reader, c->read_clock, t))
		race(at, true, "reads", c->reader);
	if (c->read == stamp && c->another != NOBODY && !ordered(c->another, c->read_clock, t))
		race(at, true, "reads", c->another);
}

/* Keeps a reader of another warp if there is one. */
static void note_read(struct cell *c, int t, uint16_t clock)
{
	if (c->read >= launch_stamp && c->read < block_stamp)
		c->shared = launch_stamp;
	if (c->read != stamp || (ordered(c->reader, c->read_clock, t) &&
				 (c->another == NOBODY || ordered(c->another, c->read_clock, t)))) {
		c->reader = (uint16_t)t;
		c->another = NOBODY;
	} else if (c->another == NOBODY ||
		   c->another / EMULATED_WARP == c->reader / EMULATED_WARP) {
		c->another = (uint16_t)t;
	}
	c->read = stamp;
	c->read_clock = clock;
}

/* since: accesses before it do not matter. */
static void touch_cell(uintptr_t at, bool write, int t, uint32_t since)
{
	struct cell *c = &cells[at / 2 % CELLS];
	uint32_t tag = (uint32_t)(at / 2 / CELLS);
	uint16_t clock = emulated_block.warp[t / EMULATED_WARP].clock;
	if (c->tag != tag)
		*c = (struct cell){ .tag = tag };
	else if (!write && c->read == stamp && c->reader == t && c->written != stamp) {
		c->read_clock = clock;
		return;
	}
	against_write(c, (const void *)at, write, t, since);
	if (!write) {
		note_read(c, t, clock);
		return;
	}
	against_reads(c, (const void *)at, t, since);
	c->written = stamp;
	c->writer = (uint16_t)t;
	c->write_clock = clock;
}

/* --- Whose memory it is ------------------------------------------------------------------- */

/* Checks memory other than shared memory and the buffer that was touched last. Returns whether it is
 * device memory. */
static bool other_memory(const char *at, size_t bytes, bool write)
{
	const struct block *b = &emulated_block;
	const struct span args = { b->args, b->args_bytes },
			  now = { (const char *)&emulated_now, sizeof emulated_now };
	if (memory_holds(at, bytes, &buffer.at, &buffer.bytes))
		return true;
	if ((write || !(span_holds(&args, at, bytes) || span_holds(&b->library, at, bytes) ||
			span_holds(&now, at, bytes))) &&
	    !memory_pinned(at, bytes))
		emulated_misuse("%s %zu bytes at %p, which are %s", write ? "writes" : "reads",
				bytes, (const void *)at,
				shared_beyond(at) ? "beyond the shared memory of this launch"
						  : double_memory_word(at));
	return false;
}

/* The thread's own memory, and accesses of host code, are not checked. */
static inline void touch(const void *at, size_t bytes, bool write, size_t align)
{
	const struct block *b = &emulated_block;
	if (span_holds(&b->stack, at, bytes) ||
	    !span_holds(&b->stack, __builtin_frame_address(0), 1))
		return;
	if ((uintptr_t)at % align)
		emulated_misuse("%s %zu bytes at %p, which is not aligned",
				write ? "writes" : "reads", bytes, at);
	bool shared = shared_holds(at, bytes);
	if (!shared && !span_holds(&buffer, at, bytes) && !other_memory(at, bytes, write))
		return;
	if (!watching || atomics || bytes < 2)
		return;
	int t = (int)(b->now - b->thread);
	watched++;
	for (uintptr_t p = (uintptr_t)at; p < (uintptr_t)at + bytes; p += 2)
		touch_cell(p, write, t, shared ? block_stamp : launch_stamp);
}

void emulated_touch(const void *at, size_t bytes, bool write)
{
	touch(at, bytes, write, 1);
}

/* --- Functions that the compiler calls ------------------------------------------------------ */

/* Of 16 bytes the compiler assumes an alignment of 8, so the full alignment is checked here. */

#define CALLED(N) \
	void __tsan_read##N(void *at); \
	void __tsan_write##N(void *at); \
	void __tsan_unaligned_read##N(void *at); \
	void __tsan_unaligned_write##N(void *at); \
	void __tsan_read##N(void *at) \
	{ \
		touch(at, N, false, N < 8 ? N : 8); \
	} \
	void __tsan_write##N(void *at) \
	{ \
		touch(at, N, true, N < 8 ? N : 8); \
	} \
	void __tsan_unaligned_read##N(void *at) \
	{ \
		emulated_touch(at, N, false); \
	} \
	void __tsan_unaligned_write##N(void *at) \
	{ \
		emulated_touch(at, N, true); \
	}
CALLED(1)
CALLED(2)
CALLED(4)
CALLED(8)
CALLED(16)

void __tsan_init(void);
void __tsan_read_range(void *at, size_t bytes);
void __tsan_write_range(void *at, size_t bytes);

void __tsan_init(void)
{
}

void __tsan_read_range(void *at, size_t bytes)
{
	emulated_touch(at, bytes, false);
}

void __tsan_write_range(void *at, size_t bytes)
{
	emulated_touch(at, bytes, true);
}
