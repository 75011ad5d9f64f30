/* Copies of the runtime's double. */
#include "tests/gpu/doubles/inside.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

struct copy {
	void *to;
	const void *from; /* NULL: `value` is set; `to` itself: the bytes follow this struct */
	size_t bytes;
	int value;
};

static _Atomic int64_t bytes_zeroed;

int64_t double_bytes_zeroed(void)
{
	return atomic_load(&bytes_zeroed);
}

static bool run_copy(void *arg)
{
	const struct copy *c = arg;
	if (!c->from) {
		memset(c->to, c->value, c->bytes);
		atomic_fetch_add(&bytes_zeroed, c->value ? 0 : (int64_t)c->bytes);
	} else if (c->from == c->to)
		memcpy(c->to, c + 1, c->bytes);
	else
		memmove(c->to, c->from, c->bytes);
	return true;
}

static void check_kind(enum cudaMemcpyKind kind, enum memory_kind to, enum memory_kind from)
{
	static const struct {
		bool from_device, to_device;
	} ends[] = { [cudaMemcpyHostToHost] = { false, false },
		     [cudaMemcpyHostToDevice] = { false, true },
		     [cudaMemcpyDeviceToHost] = { true, false },
		     [cudaMemcpyDeviceToDevice] = { true, true } };
	if (kind != cudaMemcpyDefault && (ends[kind].from_device != (from == MEMORY_DEVICE) ||
					  ends[kind].to_device != (to == MEMORY_DEVICE)))
		double_misuse("a copy of kind %d, which its ends are not", (int)kind);
}

/* Host memory that is not pinned is read now, which callers may rely on. */
static cudaError_t copy_snapshot(struct copy c, cudaStream_t stream)
{
	struct copy *whole = malloc(sizeof *whole + c.bytes);
	*whole = c;
	memcpy(whole + 1, c.from, c.bytes);
	whole->from = whole->to;
	cudaError_t rc = double_queue_copy(stream, run_copy, whole, sizeof *whole + c.bytes);
	free(whole);
	return rc;
}

/* The target in pinned memory is overwritten with garbage first, in the stream's order, since earlier
 * copies may still read it. Pinned memory is read when the copy runs. A copy from the device to memory
 * that is not pinned waits. */
cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
			    cudaStream_t stream)
{
	struct copy c = { .to = to, .from = from, .bytes = bytes };
	if (!bytes)
		return cudaSuccess;
	enum memory_kind target = memory_kind_of("a copy to", to, bytes),
			 source = memory_kind_of("a copy from", from, bytes);
	check_kind(kind, target, source);
	if (target != MEMORY_DEVICE && source != MEMORY_DEVICE)
		double_misuse("a copy of %zu bytes from the host to the host on a stream", bytes);
	if (target == MEMORY_HOST || source == MEMORY_HOST) {
		cudaError_t rc = capture_forbids("cudaMemcpyAsync of memory that is not pinned");
		if (rc != cudaSuccess)
			return rc;
	}
	double_note_copy(stream);
	if (source == MEMORY_HOST)
		return copy_snapshot(c, stream);
	struct copy spoil = { .to = to, .bytes = bytes, .value = POISON };
	if (target != MEMORY_DEVICE && !double_stream(stream)->capture &&
	    double_queue_copy(stream, run_copy, &spoil, sizeof spoil) != cudaSuccess)
		return double_error(cudaErrorUnknown);
	cudaError_t rc = double_queue_copy(stream, run_copy, &c, sizeof c);
	return rc == cudaSuccess && target == MEMORY_HOST ? cudaStreamSynchronize(stream) : rc;
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t bytes, cudaStream_t stream)
{
	struct copy c = { .to = to, .bytes = bytes, .value = value };
	if (!bytes)
		return cudaSuccess;
	double_check_memory("cudaMemsetAsync", to, bytes);
	double_note_copy(stream);
	return double_queue_copy(stream, run_copy, &c, sizeof c);
}

cudaError_t cudaMemset(void *to, int value, size_t bytes)
{
	cudaError_t rc = capture_forbids("cudaMemset");
	if (rc == cudaSuccess)
		rc = cudaMemsetAsync(to, value, bytes, NULL);
	return rc == cudaSuccess ? cudaStreamSynchronize(NULL) : rc;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
	cudaError_t rc = capture_forbids("cudaMemcpy");
	if (rc != cudaSuccess || !bytes)
		return rc;
	check_kind(kind, memory_kind_of("a copy to", to, bytes),
		   memory_kind_of("a copy from", from, bytes));
	cudaStreamSynchronize(NULL);
	double_lock();
	memory_open();
	memmove(to, from, bytes);
	memory_close();
	double_unlock();
	return cudaSuccess;
}

/* --- A function of the host --- */

struct call {
	cudaHostFn_t fn;
	void *arg;
};

static bool run_call(void *arg)
{
	const struct call *c = arg;
	memory_close();
	c->fn(c->arg);
	memory_open();
	return true;
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t fn, void *arg)
{
	struct call c = { fn, arg };
	return double_queue_copy(stream, run_call, &c, sizeof c);
}
