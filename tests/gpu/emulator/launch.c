/* Checks launches against the device's limits, and queues them. */
#include "tests/gpu/emulator/block.h"

#include "tests/gpu/doubles/inside.h"

#include <stdlib.h>
#include <string.h>

enum { FREE_SHARED = 48 << 10, FUNCTIONS = 1024 };

/* Kernels that requested more dynamic shared memory. */
static struct allowed {
	const void *function;
	size_t bytes;
} allowed[FUNCTIONS];
static int allowed_count;

static struct allowed *allowed_of(const void *function)
{
	for (int i = 0; i < allowed_count; i++)
		if (allowed[i].function == function)
			return &allowed[i];
	return NULL;
}

static size_t shared_most(void)
{
	struct cudaDeviceProp p;
	cudaGetDeviceProperties(&p, double_device());
	return p.sharedMemPerBlockOptin;
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
	if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize)
		return cudaSuccess;
	if (value < 0 || (size_t)value > shared_most())
		return double_error(cudaErrorInvalidValue);
	double_lock();
	struct allowed *a = allowed_of(function);
	if (!a && allowed_count == FUNCTIONS)
		double_misuse("more than %d kernels", FUNCTIONS);
	if (!a)
		a = &allowed[allowed_count++];
	*a = (struct allowed){ function, (size_t)value };
	double_unlock();
	return cudaSuccess;
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *a, const void *function)
{
	const struct allowed *x = allowed_of(function);
	memset(a, 0, sizeof *a);
	a->binaryVersion = a->ptxVersion = double_capability();
	a->maxThreadsPerBlock = THREADS_MAX;
	a->maxDynamicSharedSizeBytes = x ? (int)x->bytes : FREE_SHARED;
	return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, const void *function,
							  int threads, size_t shared)
{
	struct cudaDeviceProp p;
	(void)function;
	cudaGetDeviceProperties(&p, double_device());
	int by_threads = p.maxThreadsPerMultiProcessor / threads;
	int by_shared =
		(int)(p.sharedMemPerMultiprocessor / (shared + p.reservedSharedMemPerBlock));
	*blocks = by_threads < by_shared ? by_threads : by_shared;
	return cudaSuccess;
}

static void check(const cudaLaunchConfig_t *c, const void *function)
{
	const struct allowed *a = allowed_of(function);
	dim3 g = c->gridDim, t = c->blockDim;
	if (!g.x || !g.y || !g.z || g.x > 0x7fffffff || g.y > 65535 || g.z > 65535)
		double_misuse("kernel %s: a grid of (%u,%u,%u)", emulated_name(function), g.x, g.y,
			      g.z);
	if (!t.x || !t.y || !t.z || t.z > 64 || (uint64_t)t.x * t.y * t.z > THREADS_MAX)
		double_misuse("kernel %s: a block of (%u,%u,%u)", emulated_name(function), t.x, t.y,
			      t.z);
	if (c->dynamicSmemBytes > (a ? a->bytes : FREE_SHARED))
		double_misuse("kernel %s: %zu bytes of shared memory, where %zu are allowed "
			      "(cudaFuncSetAttribute)",
			      emulated_name(function), c->dynamicSmemBytes,
			      a ? a->bytes : (size_t)FREE_SHARED);
	for (unsigned i = 0; i < c->numAttrs; i++)
		if (c->attrs[i].id != cudaLaunchAttributeProgrammaticStreamSerialization)
			double_misuse(
				"kernel %s: the emulator does not know the launch's attribute %d",
				emulated_name(function), (int)c->attrs[i].id);
}

struct launch {
	struct emulated_kernel kernel;
	struct emulated_index grid, block;
	size_t shared, bytes;
	max_align_t args[];
};

static bool run_launch(void *arg)
{
	double_spend(double_kernel_seconds);
	const struct launch *l = arg;
	emulated_run(&l->kernel, l->grid, l->block, l->shared, l->args, l->bytes);
	return true;
}

cudaError_t emulated_launch(const cudaLaunchConfig_t *c, const struct emulated_kernel *kernel,
			    const void *args, size_t bytes)
{
	check(c, kernel->function);
	size_t whole = sizeof(struct launch) + bytes;
	struct launch *l = malloc(whole);
	*l = (struct launch){ *kernel,
			      { c->gridDim.x, c->gridDim.y, c->gridDim.z },
			      { c->blockDim.x, c->blockDim.y, c->blockDim.z },
			      c->dynamicSmemBytes,
			      bytes };
	memcpy(l->args, args, bytes);
	double_note_launch(c->stream);
	cudaError_t rc = double_queue_copy(c->stream, run_launch, l, whole);
	free(l);
	return rc;
}
