#include "tests/gpu/emulator/block.h"

#include "tests/gpu/doubles/inside.h"

#include <errno.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct emulated_now emulated_now;
struct block emulated_block;

static struct block *const b = &emulated_block;
static struct fiber *idle[THREADS_MAX];
static int idles;
static uint64_t rng;

/* --- Dice and words --- */

uint64_t emulated_seed(void)
{
	const char *said = getenv("MUSTER_EMULATE_SEED");
	return said ? strtoull(said, NULL, 0) : 1;
}

/* xorshift64* (Marsaglia; Vigna, arXiv 1402.6246). */
uint32_t emulated_dice(uint32_t below)
{
	if (!rng)
		rng = emulated_seed() * 0x9e3779b97f4a7c15u | 1;
	rng ^= rng >> 12;
	rng ^= rng << 25;
	rng ^= rng >> 27;
	return (uint32_t)((rng * 0x2545f4914f6cdd1du >> 32) * below >> 32);
}

static void say(const struct thread *t, const char *fmt, va_list ap)
{
	char what[512];
	const struct emulated_index *at = &emulated_now.block_idx;
	vsnprintf(what, sizeof what, fmt, ap);
	double_misuse("kernel %s, block (%u,%u,%u), thread (%u,%u,%u): %s, seed %llu",
		      emulated_name(b->kernel->function), at->x, at->y, at->z, t->idx.x, t->idx.y,
		      t->idx.z, what, (unsigned long long)emulated_seed());
}

__attribute__((noreturn, format(printf, 2, 3))) static void misuse_of(const struct thread *t,
								      const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say(t, fmt, ap);
	abort();
}

void emulated_misuse(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	say(b->now ? b->now : &b->thread[0], fmt, ap);
	abort();
}

/* --- Waiting ------------------------------------------------------------------------------ */

static int index_of(const struct thread *t)
{
	return (int)(t - b->thread);
}

int emulated_lane(void)
{
	return index_of(b->now) % EMULATED_WARP;
}

static void set_ready(struct thread *t)
{
	int i = index_of(t);
	t->state = READY;
	b->warp[i / EMULATED_WARP].ready |= 1u << i % EMULATED_WARP;
	b->ready++;
}

static void wait_as(enum thread_state state, struct emulated_site site)
{
	struct thread *t = b->now;
	t->state = state;
	t->site = site;
	fiber_suspend(t->fiber);
}

void emulated_barrier(struct emulated_site site)
{
	b->at_barrier++;
	wait_as(AT_BARRIER, site);
}

static struct meeting *meeting_of(struct warp *w, enum emulated_meeting kind, uint32_t mask)
{
	for (int i = 0; i < w->meetings; i++)
		if (w->meeting[i].kind == kind && w->meeting[i].mask == mask)
			return &w->meeting[i];
	w->meeting[w->meetings] = (struct meeting){ .kind = kind, .mask = mask };
	return &w->meeting[w->meetings++];
}

void emulated_meet(enum emulated_meeting kind, uint32_t mask, void *mine,
		   void (*together)(void *const lanes[EMULATED_WARP]), struct emulated_site site)
{
	struct thread *t = b->now;
	int lane = index_of(t) % EMULATED_WARP;
	struct thread *first = t - lane;
	struct warp *w = &b->warp[index_of(t) / EMULATED_WARP];
	if (!(mask >> lane & 1))
		emulated_misuse("%s:%d: mask %08x is without the lane itself", site.file, site.line,
				mask);
	struct meeting *m = meeting_of(w, kind, mask);
	t->kind = kind;
	t->mask = mask;
	t->mine = mine;
	m->came |= 1u << lane;
	if (m->came != mask) {
		wait_as(AT_MEETING, site);
		return;
	}
	void *lanes[EMULATED_WARP];
	*m = w->meeting[--w->meetings];
	for (int i = 0; i < EMULATED_WARP; i++)
		lanes[i] = mask >> i & 1 ? first[i].mine : NULL;
	if (together)
		together(lanes);
	w->clock += kind == MEET_SYNC;
	for (int i = 0; i < EMULATED_WARP; i++)
		if (mask >> i & 1 && i != lane)
			set_ready(&first[i]);
}

/* --- Asynchronous copies ------------------------------------------------------------------ */

void emulated_copy_async(void *to, const void *from)
{
	struct thread *t = b->now;
	if ((uintptr_t)to % 16 || (uintptr_t)from % 16)
		emulated_misuse(
			"cp.async of 16 bytes from %p to %p, which are not both aligned to 16",
			from, to);
	if (t->copy_count == t->copy_room) {
		t->copy_room = t->copy_room ? 2 * t->copy_room : 16;
		t->copies = realloc(t->copies, (size_t)t->copy_room * sizeof *t->copies);
		if (!t->copies)
			abort();
	}
	emulated_touch(to, 16, true);
	if (from)
		emulated_touch(from, 16, false);
	memset(to, 0xff, 16);
	t->copies[t->copy_count++] = (struct pending){ to, from, t->group };
}

void emulated_copy_commit(void)
{
	b->now->group++;
}

void emulated_copy_wait(int groups_left)
{
	struct thread *t = b->now;
	int kept = 0;
	for (int i = 0; i < t->copy_count; i++) {
		struct pending *p = &t->copies[i];
		if (p->group >= t->group - groups_left) {
			t->copies[kept++] = *p;
			continue;
		}
		emulated_touch(p->to, 16, true);
		if (p->from)
			memcpy(p->to, p->from, 16);
		else
			memset(p->to, 0, 16);
	}
	t->copy_count = kept;
}

/* --- A block ------------------------------------------------------------------------------ */

/* A fiber's body: runs one thread after the other, whichever is current. */
static void run_threads(void)
{
	for (;;) {
		struct thread *t = b->now;
		b->kernel->run(b->kernel->function, b->args);
		t->state = DONE;
		fiber_suspend(t->fiber);
	}
}

static void run_thread(struct thread *t)
{
	if (t->state == FRESH)
		t->fiber = idles ? idle[--idles] : fiber_new(run_threads);
	t->state = READY;
	b->now = t;
	b->stack.at = fiber_stack(t->fiber, &b->stack.bytes);
	emulated_now.thread_idx = t->idx;
	fiber_resume(t->fiber);
	if (t->state == DONE) {
		b->done++;
		idle[idles++] = t->fiber;
	}
}

/* Runs the lanes that are ready, in one of 512 orders. Those that become ready meanwhile wait for
 * the next round. */
static void run_warp(int index)
{
	struct warp *w = &b->warp[index];
	uint32_t start = emulated_dice(EMULATED_WARP),
		 step = 2 * emulated_dice(EMULATED_WARP / 2) + 1, all = w->ready;
	w->ready = 0;
	b->ready -= __builtin_popcount(all);
	for (uint32_t i = 0; i < EMULATED_WARP; i++) {
		uint32_t lane = (start + i * step) % EMULATED_WARP;
		if (all >> lane & 1)
			run_thread(&b->thread[(uint32_t)index * EMULATED_WARP + lane]);
	}
}

/* Runs every warp that is ready for one or more rounds, beginning with a random one. */
static void run_warps(void)
{
	int start = (int)emulated_dice((uint32_t)b->warps), back = (int)emulated_dice(2);
	for (int i = 0; i < b->warps; i++) {
		int w = (start + (back ? b->warps - i : i)) % b->warps;
		while (b->warp[w].ready) {
			run_warp(w);
			if (!emulated_dice(4))
				break;
		}
	}
}

static const char *const meeting_names[] = { "__syncwarp", "a shuffle",      "a vote",
					     "ldmatrix",   "ldmatrix.trans", "mma of bf16",
					     "mma of fp16" };

static const struct thread *waiting_at(enum thread_state state)
{
	for (int i = 0; i < b->threads; i++)
		if (b->thread[i].state == state)
			return &b->thread[i];
	return NULL;
}

static void say_state(const struct thread *t, char *text, size_t size)
{
	if (t->state == DONE)
		snprintf(text, size, "has returned");
	else
		snprintf(text, size, "waits at %s:%d in %s", t->site.file, t->site.line,
			 t->state == AT_BARRIER ? "__syncthreads" : meeting_names[t->kind]);
}

static bool same_place(const struct emulated_site *x, const struct emulated_site *y)
{
	return x->line == y->line && (x->file == y->file || !strcmp(x->file, y->file));
}

/* No thread can continue. */
__attribute__((noreturn)) static void stuck(void)
{
	char other[200] = "is not there";
	const struct thread *t = waiting_at(AT_MEETING);
	if (t) {
		const struct thread *first = t - index_of(t) % EMULATED_WARP;
		int lane = 0;
		for (; lane < EMULATED_WARP - 1; lane++)
			if (t->mask >> lane & 1 &&
			    (first[lane].state != AT_MEETING || first[lane].mask != t->mask ||
			     first[lane].kind != t->kind))
				break;
		if (index_of(first) + lane < b->threads)
			say_state(&first[lane], other, sizeof other);
		misuse_of(t, "%s:%d: %s of mask %08x, but lane %d %s", t->site.file, t->site.line,
			  meeting_names[t->kind], t->mask, lane, other);
	}
	t = waiting_at(AT_BARRIER);
	int i = 0;
	while (i < b->threads - 1 && b->thread[i].state == AT_BARRIER &&
	       same_place(&b->thread[i].site, &t->site))
		i++;
	say_state(&b->thread[i], other, sizeof other);
	misuse_of(t, "%s:%d: __syncthreads, but thread %d %s", t->site.file, t->site.line, i,
		  other);
}

static void pass_barrier(void)
{
	for (int i = 1; i < b->threads; i++)
		if (!same_place(&b->thread[i].site, &b->thread[0].site))
			stuck();
	b->at_barrier = 0;
	check_barrier();
	for (int i = 0; i < b->threads; i++)
		set_ready(&b->thread[i]);
}

static void begin_threads(void)
{
	b->ready = b->done = b->at_barrier = 0;
	memset(b->warp, 0, (size_t)b->warps * sizeof b->warp[0]);
	for (int i = 0; i < b->threads; i++) {
		struct thread *t = &b->thread[i];
		unsigned n = (unsigned)i, x = emulated_now.block_dim.x,
			 y = emulated_now.block_dim.y;
		t->idx = (struct emulated_index){ n % x, n / x % y, n / x / y };
		t->copy_count = t->group = 0;
		set_ready(t);
		t->state = FRESH;
	}
}

static void run_block(size_t shared)
{
	shared_begin(b->kernel, shared);
	begin_threads();
	check_block();
	while (b->done < b->threads) {
		if (b->ready)
			run_warps();
		else if (b->at_barrier == b->threads)
			pass_barrier();
		else
			stuck();
	}
	shared_check();
}

/* --- A grid ------------------------------------------------------------------------------- */

static void on_segv(int signal, siginfo_t *info, void *context)
{
	(void)context;
	const char *at = info->si_addr;
	int error = errno;
	if (signal == SIGSEGV && memory_open_piece(at)) {
		errno = error;
		return;
	}
	struct sigaction plain = { .sa_handler = SIG_DFL };
	sigaction(signal, &plain, NULL);
	if (signal == SIGILL && b->now) /* the compiler's checks of types end like this */
		emulated_misuse("reads or writes what is not aligned as its type asks, or not in "
				"its array");
	if (!b->now)
		double_misuse("the host touches %p, which is %s", (const void *)at,
			      double_memory_word(at));
	emulated_misuse("touches %p, which is %s", (const void *)at,
			shared_beyond(at)      ? "beyond the shared memory of this launch"
			: fiber_overflowed(at) ? "beyond the emulator's stack"
					       : double_memory_word(at));
}

void emulated_watch_faults(void)
{
	/* AddressSanitizer's shadow memory needs the alignment. */
	static __thread _Alignas(64) char stack[64 << 10];
	stack_t alternate = { .ss_sp = stack, .ss_size = sizeof stack };
	struct sigaction act = { .sa_sigaction = on_segv, .sa_flags = SA_SIGINFO | SA_ONSTACK };
	sigaltstack(&alternate, NULL);
	sigaction(SIGSEGV, &act, NULL);
	sigaction(SIGBUS, &act, NULL);
	sigaction(SIGILL, &act, NULL);
}

/* The numbers below count in a random order: i becomes (start + i step) mod count. */
struct order {
	uint64_t count, start, step;
};

static uint64_t gcd(uint64_t a, uint64_t c)
{
	return c ? gcd(c, a % c) : a;
}

static struct order draw_order(uint64_t count)
{
	uint32_t most = count < UINT32_MAX ? (uint32_t)count : UINT32_MAX;
	struct order o = { count, emulated_dice(most), 1 + emulated_dice(most) };
	while (gcd(o.step, count) != 1)
		o.step++;
	return o;
}

void emulated_run(const struct emulated_kernel *kernel, struct emulated_index grid,
		  struct emulated_index block, size_t shared, const void *args, size_t bytes)
{
	struct order o = draw_order((uint64_t)grid.x * grid.y * grid.z);
	emulated_now.grid_dim = grid;
	emulated_now.block_dim = block;
	b->kernel = kernel;
	b->args = args;
	b->args_bytes = bytes;
	b->threads = (int)(block.x * block.y * block.z);
	b->warps = (b->threads + EMULATED_WARP - 1) / EMULATED_WARP;
	emulated_watch_faults();
	check_launch();
	for (uint64_t i = 0, at = o.start; i < o.count; i++, at = (at + o.step) % o.count) {
		emulated_now.block_idx =
			(struct emulated_index){ (unsigned)(at % grid.x),
						 (unsigned)(at / grid.x % grid.y),
						 (unsigned)(at / grid.x / grid.y) };
		run_block(shared);
	}
	b->now = NULL;
	b->stack.bytes = 0;
}
