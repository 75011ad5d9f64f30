/* Memory of the runtime's double: buffers of the devices, and pinned memory of the host. */
#include "tests/gpu/doubles/inside.h"
#include "tests/gpu/emulator/emulate.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BUFFERS = 8192, PINS = 1024, PAGE = 4096, SPOILT = 1 << 20 };
static const size_t ARENA = (size_t)1
			    << 40; /* addresses; pages are allocated when they are touched */
static const size_t H200 = (size_t)139 << 30;

/* A buffer belongs to the process that allocated it. */
struct buffer {
	_Atomic(char *) at; /* `memory` itself while it is being allocated */
	size_t bytes, room;
	int device;
	pid_t owner;
};

static struct arena { /* shared by the processes */
	_Atomic size_t used, held[DOUBLE_DEVICES];
	_Atomic int buffers;
	struct buffer buffer[BUFFERS];
} * arena;
static char *memory;

static pthread_mutex_t pin_lock = PTHREAD_MUTEX_INITIALIZER;
static struct pin {
	char *at;
	size_t bytes;
} pins[PINS];
static size_t most;
static bool guarded;
static int key = -1; /* of device memory's protection */

__attribute__((constructor)) static void set_up(void)
{
	arena = mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE,
		     MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	memory = mmap(NULL, ARENA, PROT_READ | PROT_WRITE,
		      MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED || memory == MAP_FAILED)
		abort();
	atomic_store(&arena->used, (size_t)PAGE); /* no buffer is at `memory` itself */
}

void double_set_memory(size_t bytes)
{
	most = bytes;
}

static size_t device_bytes(void)
{
	const char *said = getenv("MUSTER_EMULATE_MEMORY");
	return most ? most : said ? strtoull(said, NULL, 0) : H200;
}

static bool in_arena(const void *at)
{
	return (const char *)at >= memory && (const char *)at < memory + ARENA;
}

static struct buffer *buffer_of(const void *at, size_t bytes)
{
	int count = atomic_load(&arena->buffers);
	for (int i = 0; in_arena(at) && i < count; i++) {
		struct buffer *b = &arena->buffer[i];
		char *begin = atomic_load(&b->at);
		if (begin && begin != memory && b->owner == getpid() && (const char *)at >= begin &&
		    (const char *)at + bytes <= begin + b->bytes)
			return b;
	}
	return NULL;
}

void double_check_memory(const char *who, const void *at, size_t bytes)
{
	const struct buffer *b = buffer_of(at, bytes);
	if (bytes && (!b || b->device != double_device()))
		double_misuse("%s: %zu bytes at %p are not in a buffer of device %d", who, bytes,
			      at, double_device());
}

bool memory_holds(const void *at, size_t bytes, const char **begin, size_t *room)
{
	const struct buffer *b = buffer_of(at, bytes);
	if (b) {
		*begin = b->at;
		*room = b->bytes;
	}
	return b != NULL;
}

const char *double_memory_word(const void *at)
{
	return buffer_of(at, 1) ? "device memory"
	       : in_arena(at)   ? "device memory that is freed or was never allocated"
				: "memory of the host";
}

/* --- Guarding --- */

/* Where the processor has protection keys, one opens and closes all device memory. Elsewhere, pages
 * have no rights: the first access of a step to a piece of a buffer faults, and opens the piece
 * until the step ends. (To open all buffers at each step takes longer than the steps.) */
enum { PIECE = 1 << 20, PIECES = 64 };

static bool working; /* a step runs */
static struct piece {
	char *at;
	size_t bytes;
} pieces[PIECES]; /* the open ones, as a ring */
static int next_piece;

static void guard(struct buffer *b)
{
	if (key < 0)
		key = pkey_alloc(0, PKEY_DISABLE_ACCESS);
	char *at = atomic_load(&b->at);
	if (key < 0 || pkey_mprotect(at, b->room, PROT_READ | PROT_WRITE, key) < 0)
		mprotect(at, b->room, PROT_NONE);
	guarded = true;
}

/* Lets this thread's faults arrive: threads of the program may have blocked all signals. */
static void receive_faults(void)
{
	static __thread bool done;
	if (done)
		return;
	sigset_t faults;
	sigemptyset(&faults);
	sigaddset(&faults, SIGSEGV);
	pthread_sigmask(SIG_UNBLOCK, &faults, NULL);
	emulated_watch_faults();
	done = true;
}

static void close_piece(struct piece *p)
{
	if (p->at)
		mprotect(p->at, p->bytes, PROT_NONE);
	p->at = NULL;
}

bool memory_open_piece(const void *at)
{
	const struct buffer *b = working && key < 0 ? buffer_of(at, 1) : NULL;
	if (!b)
		return false;
	char *begin = atomic_load(&b->at);
	size_t from = (size_t)((const char *)at - begin) / PIECE * PIECE, left = b->room - from;
	struct piece *p = &pieces[next_piece];
	next_piece = (next_piece + 1) % PIECES;
	close_piece(p);
	*p = (struct piece){ begin + from, left < PIECE ? left : PIECE };
	return !mprotect(p->at, p->bytes, PROT_READ | PROT_WRITE);
}

void memory_open(void)
{
	if (!guarded)
		return;
	working = true;
	if (key >= 0)
		pkey_set(key, 0);
	else
		receive_faults();
}

void memory_close(void)
{
	if (!guarded)
		return;
	working = false;
	if (key >= 0)
		pkey_set(key, PKEY_DISABLE_ACCESS);
	for (int i = 0; i < PIECES; i++)
		close_piece(&pieces[i]);
}

/* --- Buffers --- */

static struct buffer *free_row(void)
{
	for (int i = 0; i < BUFFERS; i++) {
		char *none = NULL;
		if (!atomic_compare_exchange_strong(&arena->buffer[i].at, &none, memory))
			continue;
		int count = atomic_load(&arena->buffers);
		while (count <= i && !atomic_compare_exchange_weak(&arena->buffers, &count, i + 1))
			;
		return &arena->buffer[i];
	}
	double_misuse("more than %d buffers", BUFFERS);
}

/* A buffer has its own pages and a guard page, and its addresses are never reused. */
cudaError_t cudaMalloc(void **out, size_t bytes)
{
	const char *said = getenv("MUSTER_EMULATE_GUARD");
	_Atomic size_t *held = &arena->held[double_device()];
	cudaError_t rc = capture_forbids("cudaMalloc");
	if (rc != cudaSuccess)
		return rc;
	if (!bytes) {
		*out = NULL;
		return cudaSuccess;
	}
	size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
	if (bytes > ARENA || atomic_fetch_add(held, room) + room > device_bytes()) {
		if (bytes <= ARENA)
			atomic_fetch_sub(held, room);
		return double_error(cudaErrorMemoryAllocation);
	}
	size_t at = atomic_fetch_add(&arena->used, room + PAGE);
	if (at + room + PAGE > ARENA)
		double_misuse("the double has no addresses left");
	struct buffer *b = free_row();
	*b = (struct buffer){ .at = memory,
			      .bytes = bytes,
			      .room = room,
			      .device = double_device(),
			      .owner = getpid() };
	memset(memory + at, POISON, bytes < SPOILT ? bytes : SPOILT);
	mprotect(memory + at + room, PAGE, PROT_NONE);
	atomic_store(&b->at, memory + at);
	if (said && *said == '1')
		guard(b);
	*out = memory + at;
	double_count_things(1);
	return cudaSuccess;
}

/* Waits for all work of the device. */
cudaError_t cudaFree(void *at)
{
	cudaError_t rc = capture_forbids("cudaFree");
	if (rc != cudaSuccess || !at)
		return rc;
	struct buffer *b = buffer_of(at, 0);
	if (!b || b->at != (char *)at)
		double_misuse("cudaFree of %p, which is no buffer", at);
	double_lock();
	if (b->device == double_device())
		double_drain_device(false);
	double_unlock();
	madvise(at, b->room, MADV_REMOVE);
	mprotect(at, b->room, PROT_NONE);
	atomic_fetch_sub(&arena->held[b->device], b->room);
	atomic_store(&b->at, NULL);
	double_count_things(-1);
	return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t *left, size_t *all)
{
	size_t held = atomic_load(&arena->held[double_device()]);
	*all = device_bytes();
	*left = held < *all ? *all - held : 0;
	return cudaSuccess;
}

/* --- Pinned memory ------------------------------------------------------------------------ */

bool memory_pinned(const void *at, size_t bytes)
{
	bool found = false;
	pthread_mutex_lock(&pin_lock);
	for (int i = 0; i < PINS && !found; i++)
		found = pins[i].at && (const char *)at >= pins[i].at &&
			(const char *)at + bytes <= pins[i].at + pins[i].bytes;
	pthread_mutex_unlock(&pin_lock);
	return found;
}

enum memory_kind memory_kind_of(const char *who, const void *at, size_t bytes)
{
	if (buffer_of(at, bytes))
		return MEMORY_DEVICE;
	if (in_arena(at))
		double_misuse("%s: %zu bytes at %p are in no buffer", who, bytes, at);
	return memory_pinned(at, bytes) ? MEMORY_PINNED : MEMORY_HOST;
}

static cudaError_t pin(void *at, size_t bytes)
{
	int i = 0;
	pthread_mutex_lock(&pin_lock);
	while (i < PINS && pins[i].at)
		i++;
	if (i < PINS)
		pins[i] = (struct pin){ at, bytes };
	pthread_mutex_unlock(&pin_lock);
	double_count_things(i < PINS);
	return double_error(i < PINS ? cudaSuccess : cudaErrorMemoryAllocation);
}

/* Waits for all work of the device, as unmapping does. */
static void unpin(void *at)
{
	int i = 0;
	double_lock();
	for (struct CUstream_st *s = &double_streams; s; s = s->next)
		double_drain(s);
	double_unlock();
	pthread_mutex_lock(&pin_lock);
	while (i < PINS && pins[i].at != (char *)at)
		i++;
	if (i < PINS)
		pins[i].at = NULL;
	pthread_mutex_unlock(&pin_lock);
	if (i == PINS)
		double_misuse("%p is not pinned", at);
	double_count_things(-1);
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned int flags)
{
	(void)flags;
	return pin(at, bytes);
}

cudaError_t cudaHostUnregister(void *at)
{
	unpin(at);
	return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
	cudaError_t rc = capture_forbids("cudaMallocHost");
	size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
	if (rc != cudaSuccess)
		return rc;
	void *at = bytes ? aligned_alloc(PAGE, room) : NULL;
	if (bytes && !at)
		return double_error(cudaErrorMemoryAllocation);
	*out = at;
	return at ? pin(at, room) : cudaSuccess;
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned int flags)
{
	(void)flags;
	return cudaMallocHost(out, bytes);
}

cudaError_t cudaFreeHost(void *at)
{
	cudaError_t rc = capture_forbids("cudaFreeHost");
	if (rc != cudaSuccess || !at)
		return rc;
	unpin(at);
	free(at);
	return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *a, const void *at)
{
	const struct buffer *b = buffer_of(at, 1);
	memset(a, 0, sizeof *a);
	a->type = b                      ? cudaMemoryTypeDevice
		  : memory_pinned(at, 1) ? cudaMemoryTypeHost
					 : cudaMemoryTypeUnregistered;
	a->device = b ? b->device : 0;
	a->devicePointer = b ? (void *)(uintptr_t)at : NULL;
	return cudaSuccess;
}
