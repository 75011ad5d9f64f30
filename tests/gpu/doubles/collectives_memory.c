/* collectives_memory: the memory of NCCL's double: allocations, and what is registered with communicators. */
#include "tests/gpu/doubles/collectives_inside.h"

#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#if NCCL_VERSION_CODE < NCCL_VERSION(2, 27, 0)
typedef void *ncclWindow_t;
ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *memory, size_t bytes, ncclWindow_t *window,
				    int flags);
ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t window);
#endif

static _Atomic int registered, buffers, buffers_registered, buffers_allocated, buffers_in_windows;

/* --- Allocations --- */

static struct { /* of ncclMemAlloc */
	pthread_mutex_t lock;
	int count;
	struct piece {
		char *at;
		size_t bytes;
		int registered; /* times */
	} list[64];
} pieces = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* The piece that the memory is in, or NULL. Under the lock. */
static struct piece *piece_of(const void *at)
{
	for (int i = 0; i < pieces.count; i++) {
		struct piece *p = &pieces.list[i];
		if ((const char *)at >= p->at && (const char *)at < p->at + p->bytes)
			return p;
	}
	return NULL;
}

static bool is_whole(const void *at, size_t bytes)
{
	pthread_mutex_lock(&pieces.lock);
	const struct piece *p = piece_of(at);
	bool whole = p && p->at == at && p->bytes == bytes;
	pthread_mutex_unlock(&pieces.lock);
	return whole;
}

static bool count_registration(const void *at, int by)
{
	pthread_mutex_lock(&pieces.lock);
	struct piece *p = piece_of(at);
	if (p)
		p->registered += by;
	pthread_mutex_unlock(&pieces.lock);
	return p;
}

int double_allocated(void)
{
	return pieces.count;
}

ncclResult_t ncclMemAlloc(void **memory, size_t bytes)
{
	if (double_fault_now == DOUBLE_NO_MEMORY)
		return ncclSystemError;
	if (cudaMalloc(memory, bytes) != cudaSuccess)
		return ncclUnhandledCudaError;
	pthread_mutex_lock(&pieces.lock);
	if (pieces.count == sizeof pieces.list / sizeof *pieces.list)
		double_misuse("more pieces of ncclMemAlloc than the double has room for");
	pieces.list[pieces.count++] = (struct piece){ *memory, bytes, 0 };
	pthread_mutex_unlock(&pieces.lock);
	return ncclSuccess;
}

ncclResult_t ncclMemFree(void *memory)
{
	pthread_mutex_lock(&pieces.lock);
	struct piece *p = piece_of(memory);
	if (!p || p->at != memory)
		double_misuse("ncclMemFree of memory that ncclMemAlloc did not give");
	if (p->registered)
		double_misuse("ncclMemFree of memory that is registered");
	*p = pieces.list[--pieces.count];
	pthread_mutex_unlock(&pieces.lock);
	return cudaFree(memory) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/* --- Registrations --- */

int double_registered(void)
{
	return registered;
}

static void *add_memory(ncclComm_t c, const void *memory, size_t bytes, bool window)
{
	struct registered *m = malloc(sizeof *m);
	*m = (struct registered){ c->memory, memory, bytes, window };
	c->memory = m;
	registered++;
	count_registration(memory, 1);
	return m;
}

ncclResult_t ncclCommRegister(const ncclComm_t c, void *memory, size_t bytes, void **handle)
{
	double_comm_check(c, "ncclCommRegister");
	double_check_memory("what is registered", memory, bytes);
	if (double_fault_now == DOUBLE_NO_MEMORY || double_fault_now == DOUBLE_UNREGISTERED)
		return ncclSystemError;
	*handle = add_memory(c, memory, bytes, false);
	return ncclSuccess;
}

static ncclResult_t deregister(const ncclComm_t c, void *handle, bool window)
{
	struct registered **m = &c->memory, *gone = handle;
	if (c->over)
		double_misuse("memory is deregistered after the communicator's end");
	if (c->finalized)
		double_misuse(
			"memory is deregistered after ncclCommFinalize, which ends the threads "
			"that this needs");
	while (*m && *m != gone)
		m = &(*m)->next;
	if (!*m || gone->window != window)
		double_misuse("memory is deregistered that is not registered so");
	double_check_memory("what is deregistered", gone->at, gone->bytes);
	*m = gone->next;
	count_registration(gone->at, -1);
	free(gone);
	registered--;
	return ncclSuccess;
}

ncclResult_t ncclCommDeregister(const ncclComm_t c, void *handle)
{
	return deregister(c, handle, false);
}

void double_memory_end(ncclComm_t c)
{
	while (c->memory) {
		struct registered *m = c->memory;
		c->memory = m->next;
		count_registration(m->at, -1);
		free(m);
		registered--;
	}
}

/* --- Windows --- */

static bool all_have_window(const struct ncclComm *c)
{
	for (int r = 0; r < c->ranks; r++)
		if (c->area->windows[r] < c->windows)
			return false;
	return true;
}

/* The memory is registered since the call; only now does the caller get its handle. */
void double_memory_progress(ncclComm_t c)
{
	if (!c->window || !all_have_window(c))
		return;
	*c->window = c->handle;
	c->window = NULL;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t c, void *memory, size_t bytes, ncclWindow_t *window,
				    int flags)
{
	double_comm_check(c, "ncclCommWindowRegister");
	double_check_memory("what is registered", memory, bytes);
	if (flags != 1)
		double_misuse("a window that is not symmetric");
	if (!count_registration(memory, 0))
		double_misuse("a window of memory that ncclMemAlloc did not give");
	if (!is_whole(memory, bytes))
		double_misuse("a window over %zu bytes of an allocation that has more", bytes);
	if (double_fault_now == DOUBLE_NO_MEMORY)
		return ncclSystemError;
	if (double_fault_now == DOUBLE_DIES)
		raise(SIGKILL);
	c->handle = double_fault_now == DOUBLE_EMPTY_WINDOWS ? NULL
							     : add_memory(c, memory, bytes, true);
	for (int r = 0; r < c->ranks; r++)
		if (c->area->windows[r] == c->windows + 1 && c->area->window_bytes[r] != bytes)
			double_misuse("window %u: %zu bytes on rank %d, %zu on rank %d",
				      c->windows + 1, bytes, c->rank,
				      (size_t)c->area->window_bytes[r], r);
	c->area->window_bytes[c->rank] = bytes;
	c->area->windows[c->rank] = ++c->windows;
	c->window = (void **)window;
	c->looks = 2;
	return ncclInProgress;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t c, ncclWindow_t window)
{
	return deregister(c, window, true);
}

/* --- The buffers of operations --- */

void double_count_buffers(int *all, int *with)
{
	*all = buffers;
	*with = buffers_registered;
}

int double_count_allocated(void)
{
	return buffers_allocated;
}

int double_count_windows(void)
{
	return buffers_in_windows;
}

bool double_memory_use(const struct ncclComm *c, const void *at)
{
	const struct registered *m = c->memory;
	while (m && ((const char *)at < m->at || (const char *)at >= m->at + m->bytes))
		m = m->next;
	buffers += at && c->memory;
	buffers_registered += m != NULL;
	buffers_in_windows += m && m->window;
	buffers_allocated += m && count_registration(at, 0);
	return m;
}
