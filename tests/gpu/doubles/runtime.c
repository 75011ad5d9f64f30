#include "tests/gpu/doubles/runtime.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BUFFERS = 4096, PINS = 256, POISON = 0xa5, ALIGN = 256 };
static const size_t ARENA = (size_t)8 << 30; /* of addresses; pages come when they are touched */

struct CUevent_st {
	int device;
	uint64_t recorded, done;
	bool closed; /* kept: a stream may still speak of it */
};

struct step {
	struct step *next;
	bool (*run)(void *arg);
	void *arg;
};

struct CUstream_st {
	int device;
	struct step *head, **tail;
	struct CUstream_st *next;
};

/* A buffer belongs to the process that made it. */
struct buffer {
	_Atomic(char *) at;
	size_t bytes;
	int device;
	pid_t owner;
};

static struct arena { /* shared by the processes */
	_Atomic size_t used;
	_Atomic int buffers;
	struct buffer buffer[BUFFERS];
} *arena;
static char *memory;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct CUstream_st default_stream = { 0, NULL, &default_stream.head, NULL };
static struct pin { char *at; size_t bytes; } pins[PINS];
static int open_things;
static uint32_t dice = 12345;
static _Thread_local int device;

__attribute__((constructor)) static void set_up(void)
{
	arena = mmap(NULL, sizeof *arena, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	memory = mmap(NULL, ARENA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (arena == MAP_FAILED || memory == MAP_FAILED)
		abort();
}

void double_misuse(const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	fputs("misuse: ", stderr);
	vfprintf(stderr, fmt, ap);
	fputc('\n', stderr);
	va_end(ap);
	abort();
}

int double_device(void)
{
	return device;
}

int double_open_things(void)
{
	return open_things;
}

static void count_things(int more)
{
	pthread_mutex_lock(&lock);
	open_things += more;
	pthread_mutex_unlock(&lock);
}

/* --- Devices ---------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *count)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	*count = visible ? 1 : DOUBLE_DEVICES;
	for (; visible && *visible; visible++)
		*count += *visible == ',';
	return cudaSuccess;
}

cudaError_t cudaSetDevice(int index)
{
	if (index < 0 || index >= DOUBLE_DEVICES)
		double_misuse("there is no device %d", index);
	device = index;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int index)
{
	memset(prop, 0, sizeof *prop);
	prop->uuid.bytes[0] = (char)(index + 1);
	return cudaSuccess;
}

const char *cudaGetErrorString(cudaError_t rc)
{
	return rc == cudaSuccess ? "no error" : "an error of the double";
}

const char *cudaGetErrorName(cudaError_t rc)
{
	return rc == cudaErrorNotReady ? "cudaErrorNotReady" : "cudaError";
}

/* --- Memory ------------------------------------------------------------------------------- */

static struct buffer *buffer_of(const void *at, size_t bytes)
{
	for (int i = 0; i < arena->buffers && i < BUFFERS; i++) {
		struct buffer *b = &arena->buffer[i];
		if (b->at && b->owner == getpid() && (const char *)at >= b->at &&
		    (const char *)at + bytes <= b->at + b->bytes)
			return b;
	}
	return NULL;
}

void double_check_memory(const char *who, const void *at, size_t bytes)
{
	const struct buffer *b = buffer_of(at, bytes);
	if (bytes && (!b || b->device != device))
		double_misuse("%s: %zu bytes at %p are not in a buffer of device %d", who, bytes, at, device);
}

cudaError_t cudaMalloc(void **out, size_t bytes)
{
	int i = atomic_fetch_add(&arena->buffers, 1);
	size_t room = (bytes + 2 * ALIGN - 1) / ALIGN * ALIGN; /* never side by side, never used twice */
	size_t at = atomic_fetch_add(&arena->used, room);
	if (i >= BUFFERS || at + room > ARENA)
		return cudaErrorMemoryAllocation;
	arena->buffer[i] = (struct buffer){ .at = memory + at, .bytes = bytes, .device = device, .owner = getpid() };
	*out = memory + at;
	count_things(1);
	return cudaSuccess;
}

cudaError_t cudaFree(void *at)
{
	struct buffer *b = buffer_of(at, 0);
	if (!at)
		return cudaSuccess;
	if (!b || b->at != (char *)at)
		double_misuse("cudaFree of %p, which is no buffer", at);
	memset(at, POISON, b->bytes);
	b->at = NULL;
	count_things(-1);
	return cudaSuccess;
}

cudaError_t cudaHostRegister(void *at, size_t bytes, unsigned int flags)
{
	(void)flags;
	for (int i = 0; i < PINS; i++)
		if (!pins[i].at) {
			pins[i] = (struct pin){ at, bytes };
			count_things(1);
			return cudaSuccess;
		}
	return cudaErrorMemoryAllocation;
}

static bool is_pinned(const void *at, size_t bytes)
{
	for (int i = 0; i < PINS; i++)
		if (pins[i].at && (const char *)at >= pins[i].at && (const char *)at + bytes <= pins[i].at + pins[i].bytes)
			return true;
	return false;
}

/* --- Streams -------------------------------------------------------------------------------- */

static struct CUstream_st *stream_of(cudaStream_t s)
{
	if (!s)
		return &default_stream;
	if (s->device != device)
		double_misuse("a stream of device %d is used on device %d", s->device, device);
	return s;
}

static void push(cudaStream_t stream, bool (*run)(void *arg), const void *arg, size_t size)
{
	struct CUstream_st *s = stream_of(stream);
	struct step *step = malloc(sizeof *step);
	*step = (struct step){ .run = run, .arg = (void *)(uintptr_t)arg };
	if (size) {
		step->arg = malloc(size);
		memcpy(step->arg, arg, size);
	}
	*s->tail = step;
	s->tail = &step->next;
}

void double_queue(cudaStream_t stream, bool (*run)(void *arg), void *arg)
{
	pthread_mutex_lock(&lock);
	push(stream, run, arg, 0);
	pthread_mutex_unlock(&lock);
}

/* The first step of a stream; whether it could be done. */
static bool advance(struct CUstream_st *s)
{
	struct step *step = s->head;
	if (!step || !step->run(step->arg))
		return false;
	s->head = step->next;
	if (!s->head)
		s->tail = &s->head;
	free(step->arg);
	free(step);
	return true;
}

/* One to four steps, from streams in turn, beginning somewhere. */
static void pump(void)
{
	dice = dice * 1664525u + 1013904223u;
	uint32_t skip = dice >> 8 & 7;
	struct CUstream_st *s = &default_stream;
	while (skip--)
		s = s->next ? s->next : &default_stream;
	for (uint32_t left = 1 + (dice >> 16 & 3), idle = 0; left && idle < 16; s = s->next ? s->next : &default_stream) {
		bool did = advance(s);
		left -= did;
		idle = did ? 0 : idle + 1;
	}
}

/* Under the lock, which it lets go of between the steps. */
static void drain(struct CUstream_st *s)
{
	while (s->head) {
		pump();
		pthread_mutex_unlock(&lock);
		sched_yield();
		pthread_mutex_lock(&lock);
	}
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
	if (flags != cudaStreamNonBlocking)
		double_misuse("a stream that waits for the default stream");
	struct CUstream_st *s = calloc(1, sizeof *s);
	s->device = device;
	s->tail = &s->head;
	pthread_mutex_lock(&lock);
	s->next = default_stream.next;
	default_stream.next = s;
	open_things++;
	pthread_mutex_unlock(&lock);
	*out = s;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	pthread_mutex_lock(&lock);
	drain(stream_of(stream));
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	pthread_mutex_lock(&lock);
	if (stream_of(stream)->head)
		double_misuse("a stream is destroyed with work in it");
	for (struct CUstream_st *s = &default_stream; s; s = s->next)
		if (s->next == stream)
			s->next = stream->next;
	open_things--;
	pthread_mutex_unlock(&lock);
	free(stream);
	return cudaSuccess;
}

/* --- Events ----------------------------------------------------------------------------------- */

struct mark {
	cudaEvent_t event;
	uint64_t ticket;
};

static bool run_record(void *arg)
{
	struct mark *m = arg;
	m->event->done = m->ticket;
	return true;
}

static bool run_wait(void *arg)
{
	struct mark *m = arg;
	return m->event->done >= m->ticket;
}

static void check_event(cudaEvent_t event)
{
	if (!event || event->closed)
		double_misuse("an event that is closed");
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
	(void)flags;
	*out = calloc(1, sizeof **out);
	(*out)->device = device;
	count_things(1);
	return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	check_event(event);
	event->closed = true;
	count_things(-1);
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	check_event(event);
	if (event->device != device)
		double_misuse("an event of device %d is recorded on device %d", event->device, device);
	pthread_mutex_lock(&lock);
	struct mark m = { event, ++event->recorded };
	push(stream, run_record, &m, sizeof m);
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	check_event(event);
	pthread_mutex_lock(&lock);
	pump();
	bool done = event->done >= event->recorded;
	pthread_mutex_unlock(&lock);
	return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	(void)flags;
	check_event(event);
	pthread_mutex_lock(&lock);
	struct mark m = { event, event->recorded };
	push(stream, run_wait, &m, sizeof m);
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

/* --- Copies --------------------------------------------------------------------------------------- */

struct copy {
	void *to;
	const void *from;
	size_t bytes;
};

static bool run_copy(void *arg)
{
	struct copy *c = arg;
	memcpy(c->to, c->from, c->bytes);
	return true;
}

/* Between the device and pinned memory; what is copied to is spoilt until the copy is carried out. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	struct copy c = { to, from, bytes };
	bool out = buffer_of(from, bytes) && is_pinned(to, bytes), in = is_pinned(from, bytes) && buffer_of(to, bytes);
	if (kind != cudaMemcpyDefault || (!out && !in))
		double_misuse("a copy of %zu bytes is not between the device and pinned memory", bytes);
	if (out)
		memset(to, POISON, bytes);
	pthread_mutex_lock(&lock);
	push(stream, run_copy, &c, sizeof c);
	pthread_mutex_unlock(&lock);
	return cudaSuccess;
}

/* Waits for all the device does, as unmapping does. */
cudaError_t cudaHostUnregister(void *at)
{
	pthread_mutex_lock(&lock);
	for (struct CUstream_st *s = &default_stream; s; s = s->next)
		drain(s);
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < PINS; i++)
		if (pins[i].at == (char *)at) {
			pins[i].at = NULL;
			count_things(-1);
			return cudaSuccess;
		}
	double_misuse("%p is not pinned", at);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	(void)kind;
	cudaStreamSynchronize(NULL);
	memcpy(to, from, bytes);
	return cudaSuccess;
}
