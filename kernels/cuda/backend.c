/* Opens the CUDA backend on a device, and keeps the backend's first error. */
#include "kernels/cuda/attention_choose.h"
#include "kernels/cuda/blas_plan.h"

#include "base/choices.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- Errors ------------------------------------------------------------------------------- */

/* clang-format off */
static const struct remedy {
	cudaError_t rc;
	enum err_code code;
	const char *text;
} remedies[] = {
	{ cudaErrorMemoryAllocation, ERR_NOMEM,
	  "lower batch.micro, raise parallel.tp, parallel.pp or parallel.zero, or set "
	  "recompute.mode; nvidia-smi shows which other programs use the device" },
	{ cudaErrorNoDevice, ERR_NOTFOUND,
	  "request one for this job (--gres), and check CUDA_VISIBLE_DEVICES" },
	{ cudaErrorInsufficientDriver, ERR_UNSUPPORTED,
	  "load NVIDIA's driver, or update it to one that supports CUDA " },
	{ cudaErrorNoKernelImageForDevice, ERR_UNSUPPORTED,
	  "build libmuster-cuda.so for this device: make CUDA_ARCH=" },
	{ cudaErrorUnsupportedPtxVersion, ERR_UNSUPPORTED,
	  "update the driver, or build libmuster-cuda.so for this device: make CUDA_ARCH=" },
	{ cudaErrorIllegalAddress, ERR_INTERNAL,
	  "a bug in muster: run with CUDA_LAUNCH_BLOCKING=1 to find the operation" },
	{ cudaErrorLaunchFailure, ERR_DEVICE,
	  "a bug in muster or a broken device: run with CUDA_LAUNCH_BLOCKING=1 to find the "
	  "operation, and see in nvidia-smi -q whether the device has errors" },
	{ cudaErrorECCUncorrectable, ERR_DEVICE,
	  "its memory is broken: drain the node and reset the device" },
	{ cudaErrorSystemNotReady, ERR_DEVICE,
	  "start nvidia-fabricmanager, or drain the node" },
	{ cudaErrorHardwareStackError, ERR_DEVICE,
	  "the device is broken: drain the node and reset the device" },
	{ cudaErrorNvlinkUncorrectable, ERR_DEVICE,
	  "an NVLink of the device is broken: drain the node and reset its devices" },
	{ cudaErrorDevicesUnavailable, ERR_DEVICE,
	  "another program holds the device, or it fell off the bus: see nvidia-smi" },
	{ cudaErrorUnknown, ERR_DEVICE,
	  "the device may have fallen off the bus: see nvidia-smi -q and the kernel's log (Xid) of the node" },
};
/* clang-format on */
enum { REMEDIES = sizeof remedies / sizeof remedies[0] };

static const struct remedy *remedy_of(cudaError_t rc)
{
	static const struct remedy none = {
		cudaErrorUnknown, ERR_IO, "see nvidia-smi -q and the kernel's log (Xid) of the node"
	};
	for (int i = 0; i < REMEDIES; i++)
		if (remedies[i].rc == rc)
			return &remedies[i];
	return &none;
}

/* Some remedies end in a blank or '=': CUDA's version, or the device's, follows. */
static void remedy_tail(const struct cuda_backend *c, const struct remedy *r, char *to, size_t size)
{
	to[0] = '\0';
	if (r->rc == cudaErrorInsufficientDriver)
		snprintf(to, size, "%d.%d", CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
	else if (r->rc == cudaErrorNoKernelImageForDevice ||
		 r->rc == cudaErrorUnsupportedPtxVersion)
		snprintf(to, size, "%d", c->cc);
}

static int set_error(const struct cuda_backend *c, cudaError_t rc, const char *where,
		     const char *more, struct err *e)
{
	const struct remedy *r = remedy_of(rc);
	char tail[16];
	remedy_tail(c, r, tail, sizeof tail);
	return err_set(e, r->code, "CUDA device %d: %s: %s (%s)%s%s; %s%s", c->device, where,
		       cudaGetErrorString(rc), cudaGetErrorName(rc), more[0] ? ", " : "", more,
		       r->text, tail);
}

void cuda_fail(struct backend *k, cudaError_t rc, const char *where, const char *more)
{
	struct cuda_backend *c = cuda_of(k);
	cudaGetLastError(); /* clears the runtime's own record, which later calls would return */
	if (c->first_error != cudaSuccess)
		return;
	c->first_error = rc;
	c->error_where = where;
	snprintf(c->error_more, sizeof c->error_more, "%s", more ? more : "");
}

void cuda_notice(struct backend *k, enum backend_notice_kind kind, const char *fmt, ...)
{
	struct backend_notice *n = &k->notices[kind];
	va_list ap;
	if (n->text[0])
		return;
	va_start(ap, fmt);
	vsnprintf(n->text, sizeof n->text, fmt, ap);
	va_end(ap);
}

int cuda_failed(const struct backend *k, struct err *e)
{
	const struct cuda_backend *c = cuda_of(k);
	return c->first_error == cudaSuccess
		       ? 0
		       : set_error(c, c->first_error, c->error_where, c->error_more, e);
}

/* --- Services for kernels ----------------------------------------------------------------- */

void *cuda_scratch(struct backend *k, size_t bytes, const char *op)
{
	if (bytes <= CUDA_SCRATCH)
		return cuda_of(k)->scratch;
	cuda_fail(k, cudaErrorMemoryAllocation, op, "the scratch is too small for this size");
	return NULL;
}

bool cuda_allow_shared(struct backend *k, const void *kernel, size_t shared, const char *op)
{
	struct cuda_backend *c = cuda_of(k);
	size_t at = (uintptr_t)kernel / 16 % CUDA_KERNELS_MAX;
	for (int tries = 0; c->allowed[at].kernel && c->allowed[at].kernel != kernel; tries++) {
		at = (at + 1) % CUDA_KERNELS_MAX;
		if (tries == CUDA_KERNELS_MAX) {
			cuda_fail(k, cudaErrorInvalidValue, op,
				  "more kernels use much shared memory than CUDA_KERNELS_MAX");
			return false;
		}
	}
	if (shared <= c->allowed[at].shared)
		return true;
	cuda_choose(k);
	if (shared > c->shared_most)
		cuda_fail(k, cudaErrorInvalidValue, op,
			  "the kernel needs more shared memory than this device has");
	if (shared > c->shared_most ||
	    !cuda_ok(k,
		     cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
					  (int)shared),
		     op))
		return false;
	c->allowed[at] = (struct cuda_allowed){ kernel, shared };
	return true;
}

/* --- Opening ------------------------------------------------------------------------------ */

/* compute capabilities */
enum {
	FIRST_FP8 = 89, /* the first with fp8 products */
	OLDEST = 80     /* the first with bf16 and asynchronous copies into shared memory */
};

static int get_attribute(const struct cuda_backend *c, enum cudaDeviceAttr which, int *value,
			 struct err *e)
{
	cudaError_t rc = cudaDeviceGetAttribute(value, which, c->device);
	return rc == cudaSuccess ? 0
				 : set_error(c, rc, "cannot read the device's attributes", "", e);
}

static int select_device(struct cuda_backend *c, struct err *e)
{
	int count = 0;
	cudaError_t rc = cudaGetDeviceCount(&count);
	if (rc != cudaSuccess)
		return set_error(c, rc, "cannot count devices", "", e);
	if (c->device < 0 || c->device >= count)
		return err_set(e, ERR_NOTFOUND,
			       "CUDA device %d: this process sees %d devices; give the job more of "
			       "them (--gres, CUDA_VISIBLE_DEVICES), or start fewer agents",
			       c->device, count);
	rc = cudaSetDevice(c->device);
	return rc == cudaSuccess ? 0 : set_error(c, rc, "cannot select the device", "", e);
}

static int read_device(struct cuda_backend *c, struct err *e)
{
	int major, minor, shared;
	if (get_attribute(c, cudaDevAttrComputeCapabilityMajor, &major, e) < 0 ||
	    get_attribute(c, cudaDevAttrComputeCapabilityMinor, &minor, e) < 0 ||
	    get_attribute(c, cudaDevAttrMultiProcessorCount, &c->sms, e) < 0 ||
	    get_attribute(c, cudaDevAttrMaxSharedMemoryPerBlockOptin, &shared, e) < 0)
		return -1;
	c->cc = 10 * major + minor;
	c->shared_most = (size_t)shared;
	if (c->cc < OLDEST)
		return err_set(e, ERR_UNSUPPORTED,
			       "CUDA device %d has compute capability %d.%d; muster's kernels need "
			       "at least %d.%d; use device = cpu or another node",
			       c->device, major, minor, OLDEST / 10, OLDEST % 10);
	return 0;
}

#define CUDA_FILL(family) cuda_fill_##family(k);

static void fill_table(struct backend *k)
{
	static const char *const names[] = { "cuda", "cuda:bf16", "cuda:fp16" };
	k->ops = (struct ops){ .name = names[cuda_of(k)->storage] };
	CUDA_FAMILIES(CUDA_FILL)
}

static void *stream_of(struct backend *k)
{
	return cuda_of(k)->stream;
}

static void close_backend(struct backend *k)
{
	cuda_choose(k);
	cuda_attention_close(k);
	cuda_blas_close(k);
	cuda_stream_close(k);
	cuda_memory_close(k);
	free(cuda_of(k));
	k->state = NULL;
}

static const struct backend_device cuda_device_table = {
	.alloc = cuda_memory_alloc,
	.free = cuda_memory_free,
	.zero = cuda_memory_zero,
	.put = cuda_put,
	.get = cuda_get,
	.copy = cuda_copy,
	.sync = cuda_sync,
	.stream = stream_of,
	.host_alloc = cuda_host_alloc,
	.host_free = cuda_host_free,
	.side_copy = cuda_side_copy,
	.side_wait = cuda_side_wait,
	.side_await = cuda_side_await,
	.tally = cuda_tally,
	.graph_begin = cuda_graph_begin,
	.graph_end = cuda_graph_end,
	.graph_replay = cuda_graph_replay,
	.graph_free = cuda_graph_free,
	.close = close_backend,
};

static int open_parts(struct backend *k, struct err *e)
{
	if (cuda_stream_open(k, e) || cuda_memory_open(k, e) || cuda_blas_open(k, e))
		return -1;
	cuda_probe(k);
	return cuda_sync(k, e);
}

/* Measured choices hold for this chip and these versions of the driver, the runtime and the
 * libraries. */
static int name_machine(struct backend *k, struct err *e)
{
	const struct cuda_backend *c = cuda_of(k);
	struct cudaDeviceProp *p = malloc(sizeof *p);
	int driver = 0, runtime = 0;
	char machine[CHOICES_TEXT];
	if (!p)
		return err_set(e, ERR_NOMEM, "backend cuda: no memory; close other programs");
	cudaError_t rc = cudaGetDeviceProperties(p, c->device);
	if (rc == cudaSuccess)
		rc = cudaDriverGetVersion(&driver);
	if (rc == cudaSuccess)
		rc = cudaRuntimeGetVersion(&runtime);
	snprintf(machine, sizeof machine,
		 "%.96s, %d SMs, %s, driver %d, runtime %d, cublaslt %zu, cudnn %zu", p->name,
		 c->sms, c->isa, driver, runtime, c->blas->lt->GetVersion(),
		 cuda_attention_version(k));
	free(p);
	if (rc != cudaSuccess)
		return set_error(c, rc, "cannot read the device's properties", "", e);
	choices_set_machine(k->choices, machine);
	return 0;
}

static enum storage storage_of(const char *name)
{
	return !name ? STORE_FP32 : strcmp(name, "bf16") ? STORE_FP16 : STORE_BF16;
}

__attribute__((visibility("default"))) cuda_open_fn muster_cuda_open;
int muster_cuda_open(struct backend *k, size_t size, const char *storage, int device, struct err *e)
{
	if (size != sizeof *k)
		return err_set(e, ERR_UNSUPPORTED,
			       "backend cuda: libmuster-cuda.so is of another version than the "
			       "program; install both of one build");
	struct cuda_backend *c = calloc(1, sizeof *c);
	if (!c)
		return err_set(e, ERR_NOMEM, "backend cuda: no memory; close other programs");
	c->storage = storage_of(storage);
	c->device = device;
	c->last_op = "opening the device";
	if (select_device(c, e) || read_device(c, e)) {
		free(c);
		return -1;
	}
	k->state = c;
	snprintf(c->isa, sizeof c->isa, "sm_%d", c->cc);
	if (open_parts(k, e) || name_machine(k, e)) {
		close_backend(k);
		return -1;
	}
	k->element = c->storage == STORE_FP32 ? sizeof(float) : sizeof(uint16_t);
	k->fp8 = c->cc >= FIRST_FP8;
	k->isa = c->isa;
	k->device = &cuda_device_table;
	k->bytes = k->peak = CUDA_SCRATCH + BLAS_WORKSPACE;
	fill_table(k);
	return 0;
}
