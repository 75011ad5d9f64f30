/* Streams and events of the runtime's double. */
#include "tests/gpu/doubles/inside.h"

#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct CUstream_st double_streams = { .tail = &double_streams.head };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static uint32_t rng;
static cudaEvent_t closed_events;
struct double_queued queued_so_far;
static double spent;
static _Thread_local struct double_calls calls;

bool double_virtual_clock;
double double_kernel_seconds;

struct double_queued double_queued(void)
{
	double_lock();
	struct double_queued q = queued_so_far;
	double_unlock();
	return q;
}

void double_spend(double seconds)
{
	spent += seconds;
}

void double_lock(void)
{
	pthread_mutex_lock(&lock);
}

void double_unlock(void)
{
	pthread_mutex_unlock(&lock);
}

uint32_t double_dice(void)
{
	const char *seed = getenv("MUSTER_EMULATE_SEED");
	if (!rng)
		rng = 12345 + (seed ? (uint32_t)strtoull(seed, NULL, 0) * 2654435761u : 0);
	rng = rng * 1664525u + 1013904223u;
	return rng >> 8;
}

struct CUstream_st *double_stream(cudaStream_t s)
{
	if (!s)
		return &double_streams;
	if (s->device != double_device())
		double_misuse("a stream of device %d is used on device %d", s->device,
			      double_device());
	return s;
}

/* --- Calls --- */

struct double_calls double_calls(void)
{
	return calls;
}

void double_note_launch(cudaStream_t stream)
{
	calls.launches += !double_stream(stream)->capture;
}

void double_note_graph(void)
{
	calls.graphs++;
}

void double_note_copy(cudaStream_t stream)
{
	calls.copies += !double_stream(stream)->capture;
}

/* --- Queues --- */

static void append(struct CUstream_st *s, bool (*run)(void *arg), void *arg)
{
	struct step *step = malloc(sizeof *step);
	*step = (struct step){ .run = run, .arg = arg };
	*s->tail = step;
	s->tail = &step->next;
	s->queued++;
}

cudaError_t double_push(cudaStream_t stream, bool (*run)(void *arg), const void *arg, size_t bytes)
{
	struct CUstream_st *s = double_stream(stream);
	if (s->capture)
		return capture_push(s, run, arg, bytes);
	void *copy = malloc(bytes + !bytes);
	memcpy(copy, arg, bytes);
	queued_so_far.work++;
	append(s, run, copy);
	return cudaSuccess;
}

void double_queue(cudaStream_t stream, bool (*run)(void *arg), void *arg)
{
	double_lock();
	struct CUstream_st *s = double_stream(stream);
	if (s->capture)
		double_misuse("the double cannot capture what another library queues");
	queued_so_far.others++;
	append(s, run, arg);
	double_unlock();
}

bool double_record(cudaStream_t stream, const struct double_work *work, void *recorded)
{
	double_lock();
	struct CUstream_st *s = double_stream(stream);
	bool captured = s->capture != NULL;
	if (captured)
		capture_work(s, work, recorded);
	double_unlock();
	return captured;
}

cudaError_t double_queue_copy(cudaStream_t stream, bool (*run)(void *arg), const void *arg,
			      size_t bytes)
{
	double_lock();
	cudaError_t rc = double_push(stream, run, arg, bytes);
	double_unlock();
	return double_error(rc);
}

/* Runs the first step of a stream; returns whether it could run. */
static bool advance(struct CUstream_st *s)
{
	struct step *step = s->head;
	if (!step)
		return false;
	memory_open();
	bool done = step->run(step->arg);
	memory_close();
	if (!done)
		return false;
	s->head = step->next;
	if (!s->head)
		s->tail = &s->head;
	free(step->arg);
	free(step);
	return true;
}

/* Runs one to four steps, from streams by turns, beginning with a random one. */
static void pump(void)
{
	uint32_t bits = double_dice(), skip = bits & 7;
	struct CUstream_st *s = &double_streams;
	while (skip--)
		s = s->next ? s->next : &double_streams;
	for (uint32_t left = 1 + (bits >> 8 & 3), idle = 0; left && idle < 16;
	     s = s->next ? s->next : &double_streams) {
		bool did = advance(s);
		left -= did;
		idle = did ? 0 : idle + 1;
	}
}

void double_progress(void)
{
	double_lock();
	pump();
	double_unlock();
	sched_yield();
}

/* Runs under the lock, which it releases between the steps. */
void double_drain(struct CUstream_st *s)
{
	s->awaited = s->queued;
	while (s->head) {
		pump();
		double_unlock();
		sched_yield();
		double_lock();
	}
}

static bool is_meant(const struct CUstream_st *s, bool with_default)
{
	return s->device == double_device() || (with_default && s == &double_streams);
}

/* Other threads may destroy streams meanwhile. */
void double_drain_device(bool with_default)
{
	struct CUstream_st *s;
	for (s = &double_streams; s; s = s->next)
		if (is_meant(s, with_default))
			s->awaited = s->queued;
	do {
		for (s = &double_streams; s && !(s->head && is_meant(s, with_default));)
			s = s->next;
		if (s)
			pump();
		double_unlock();
		sched_yield();
		double_lock();
	} while (s);
}

/* --- Streams --- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
	if (flags != cudaStreamNonBlocking)
		double_misuse("a stream that waits for the default stream");
	struct CUstream_st *s = calloc(1, sizeof *s);
	s->device = double_device();
	s->tail = &s->head;
	double_lock();
	s->next = double_streams.next;
	double_streams.next = s;
	double_unlock();
	double_count_things(1);
	*out = s;
	return cudaSuccess;
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority)
{
	cudaError_t rc = cudaStreamCreateWithFlags(out, flags);
	(*out)->priority = priority;
	return rc;
}

cudaError_t cudaStreamGetPriority(cudaStream_t stream, int *priority)
{
	*priority = stream->priority;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
	*least = 0;
	*greatest = -5;
	return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	cudaError_t rc = capture_forbids("cudaStreamSynchronize");
	if (rc != cudaSuccess)
		return rc;
	double_lock();
	struct CUstream_st *s = double_stream(stream);
	calls.stream_waits += s->awaited < s->queued;
	double_drain(s);
	double_unlock();
	return cudaSuccess;
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
	cudaError_t rc = capture_forbids("cudaStreamQuery");
	if (rc != cudaSuccess)
		return rc;
	double_lock();
	pump();
	bool done = !double_stream(stream)->head;
	double_unlock();
	return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaDeviceSynchronize(void)
{
	cudaError_t rc = capture_forbids("cudaDeviceSynchronize");
	if (rc != cudaSuccess)
		return rc;
	calls.stream_waits++;
	double_lock();
	double_drain_device(true);
	double_unlock();
	return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	double_lock();
	if (double_stream(stream)->head || stream->capture)
		double_misuse("a stream is destroyed with work in it");
	for (struct CUstream_st *s = &double_streams; s; s = s->next)
		if (s->next == stream)
			s->next = stream->next;
	double_unlock();
	double_count_things(-1);
	free(stream->last.node);
	free(stream);
	return cudaSuccess;
}

/* --- Events --- */

struct mark {
	cudaEvent_t event;
	uint64_t ticket;
};

static bool run_record(void *arg)
{
	struct mark *m = arg;
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	m->event->done = m->ticket;
	m->event->at = double_virtual_clock ? spent
					    : (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
	return true;
}

static bool run_wait(void *arg)
{
	struct mark *m = arg;
	return m->event->done >= m->ticket;
}

void *double_wait_new(cudaEvent_t e)
{
	struct mark *m = malloc(sizeof *m);
	*m = (struct mark){ e, e->recorded };
	return m;
}

bool double_wait_run(void *wait)
{
	return run_wait(wait);
}

static void check_event(cudaEvent_t event)
{
	if (!event || event->closed)
		double_misuse("an event that is closed");
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
	*out = calloc(1, sizeof **out);
	(*out)->device = double_device();
	(*out)->timed = !(flags & cudaEventDisableTiming);
	double_count_things(1);
	return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
	return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	check_event(event);
	double_lock();
	event->closed = true;
	event->next = closed_events;
	closed_events = event;
	double_unlock();
	double_count_things(-1);
	return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	check_event(event);
	if (event->device != double_device())
		double_misuse("an event of device %d is recorded on device %d", event->device,
			      double_device());
	double_lock();
	struct CUstream_st *s = double_stream(stream);
	cudaError_t rc = cudaSuccess;
	if (s->capture) {
		rc = capture_record(s, event);
	} else {
		struct mark m = { event, ++event->recorded };
		event->capture = NULL;
		queued_so_far.work--;
		queued_so_far.events++;
		rc = double_push(stream, run_record, &m, sizeof m);
	}
	double_unlock();
	return double_error(rc);
}

/* Checks an event that is queried. */
static cudaError_t check_asked(cudaEvent_t event, const char *call)
{
	check_event(event);
	cudaError_t rc = capture_forbids(call);
	return rc == cudaSuccess && event->capture ? double_error(cudaErrorCapturedEvent) : rc;
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
	cudaError_t rc = check_asked(event, "cudaEventQuery");
	if (rc != cudaSuccess)
		return rc;
	double_lock();
	pump();
	bool done = event->done >= event->recorded;
	double_unlock();
	return done ? cudaSuccess : cudaErrorNotReady;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	cudaError_t rc = check_asked(event, "cudaEventSynchronize");
	if (rc != cudaSuccess)
		return rc;
	double_lock();
	calls.event_waits += event->awaited < event->recorded;
	event->awaited = event->recorded;
	while (event->done < event->recorded) {
		pump();
		double_unlock();
		sched_yield();
		double_lock();
	}
	double_unlock();
	return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
	check_event(from);
	check_event(to);
	if (!from->timed || !to->timed || !from->recorded || !to->recorded || from->capture ||
	    to->capture)
		return double_error(cudaErrorInvalidResourceHandle);
	if (from->done < from->recorded || to->done < to->recorded)
		return double_error(cudaErrorNotReady);
	*ms = (float)(1e3 * (to->at - from->at));
	return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
	check_event(event);
	double_lock();
	struct CUstream_st *s = double_stream(stream);
	cudaError_t rc = cudaSuccess;
	if (flags == cudaEventWaitExternal) {
		rc = capture_wait_external(s, event);
	} else if (s->capture || event->capture) {
		rc = capture_wait(s, event);
	} else {
		struct mark m = { event, event->recorded };
		queued_so_far.work--;
		queued_so_far.events++;
		rc = double_push(stream, run_wait, &m, sizeof m);
	}
	double_unlock();
	return double_error(rc);
}
