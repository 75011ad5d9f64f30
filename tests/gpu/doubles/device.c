/* Devices, errors and error texts of the runtime's double. */
#include "tests/gpu/doubles/inside.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local int device;
static _Thread_local cudaError_t last_error;
static _Atomic int open_things;

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

void double_count_things(int more)
{
	open_things += more;
}

/* --- Devices --- */

/* The differences between the emulated devices; CUDA C++ Programming Guide, "Technical specifications
 * per compute capability". */
static const struct model {
	int capability, sms;
	size_t shared_block, shared_sm, l2;
	int threads_sm;
	const char *name;
} models[] = {
	{ 90, 132, 227 << 10, 228 << 10, 60 << 20, 2048, "NVIDIA H200 (emulated)" },
	{ 80, 108, 163 << 10, 164 << 10, 40 << 20, 2048, "NVIDIA A100 (emulated)" },
	{ 86, 72, 99 << 10, 100 << 10, 6 << 20, 1536, "NVIDIA A10 (emulated)" },
};

/* The number of multiprocessors. MUSTER_EMULATE_MULTIPROCESSORS replaces the model's: with fewer, each block takes
 * more turns. */
static int multiprocessors(const struct model *m)
{
	const char *said = getenv("MUSTER_EMULATE_MULTIPROCESSORS");
	return said && atoi(said) > 0 ? atoi(said) : m->sms;
}

static const struct model *model(void)
{
	const char *said = getenv("MUSTER_EMULATE_SM");
	for (size_t i = 0; said && i < sizeof models / sizeof *models; i++)
		if (atoi(said) == models[i].capability)
			return &models[i];
	if (said)
		double_misuse("MUSTER_EMULATE_SM=%s is none of 80, 86, 90", said);
	return &models[0];
}

int double_capability(void)
{
	return model()->capability;
}

cudaError_t cudaGetDeviceCount(int *count)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	*count = visible ? *visible != '\0' : DOUBLE_DEVICES;
	for (; visible && *visible; visible++)
		*count += *visible == ',';
	return *count ? cudaSuccess : double_error(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int index)
{
	if (index < 0 || index >= DOUBLE_DEVICES)
		double_misuse("there is no device %d", index);
	device = index;
	return cudaSuccess;
}

cudaError_t cudaGetDevice(int *index)
{
	*index = device;
	return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int index)
{
	const struct model *m = model();
	size_t left, all;
	if (index < 0 || index >= DOUBLE_DEVICES)
		return double_error(cudaErrorInvalidDevice);
	cudaMemGetInfo(&left, &all);
	memset(prop, 0, sizeof *prop);
	snprintf(prop->name, sizeof prop->name, "%s", m->name);
	prop->uuid.bytes[0] = (char)(index + 1);
	prop->totalGlobalMem = all;
	prop->major = m->capability / 10;
	prop->minor = m->capability % 10;
	prop->multiProcessorCount = multiprocessors(m);
	prop->sharedMemPerBlock = 48 << 10;
	prop->sharedMemPerBlockOptin = m->shared_block;
	prop->sharedMemPerMultiprocessor = m->shared_sm;
	prop->reservedSharedMemPerBlock = 1 << 10;
	prop->maxThreadsPerBlock = 1024;
	prop->maxThreadsPerMultiProcessor = m->threads_sm;
	prop->warpSize = 32;
	prop->regsPerBlock = prop->regsPerMultiprocessor = 64 << 10;
	prop->l2CacheSize = (int)m->l2;
	for (int i = 0; i < 3; i++) {
		prop->maxThreadsDim[i] = i < 2 ? 1024 : 64;
		prop->maxGridSize[i] = i ? 65535 : 0x7fffffff;
	}
	prop->pciBusID = index + 1;
	prop->concurrentKernels = prop->asyncEngineCount = prop->unifiedAddressing =
		prop->canMapHostMemory = 1;
	return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int index)
{
	struct cudaDeviceProp p;
	cudaError_t rc = cudaGetDeviceProperties(&p, index);
	if (rc != cudaSuccess)
		return rc;
	switch (attr) {
	case cudaDevAttrComputeCapabilityMajor:
		*value = p.major;
		break;
	case cudaDevAttrComputeCapabilityMinor:
		*value = p.minor;
		break;
	case cudaDevAttrMultiProcessorCount:
		*value = p.multiProcessorCount;
		break;
	case cudaDevAttrMaxSharedMemoryPerBlock:
		*value = (int)p.sharedMemPerBlock;
		break;
	case cudaDevAttrMaxSharedMemoryPerBlockOptin:
		*value = (int)p.sharedMemPerBlockOptin;
		break;
	case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
		*value = (int)p.sharedMemPerMultiprocessor;
		break;
	case cudaDevAttrMaxThreadsPerBlock:
		*value = p.maxThreadsPerBlock;
		break;
	case cudaDevAttrMaxThreadsPerMultiProcessor:
		*value = p.maxThreadsPerMultiProcessor;
		break;
	case cudaDevAttrWarpSize:
		*value = p.warpSize;
		break;
	case cudaDevAttrL2CacheSize:
		*value = p.l2CacheSize;
		break;
	case cudaDevAttrMemoryPoolsSupported:
		*value = 0;
		break;
	default:
		double_misuse("the double does not know the device's attribute %d", (int)attr);
	}
	return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
	*version = CUDART_VERSION;
	return cudaSuccess;
}

/* --- Errors --- */

/* clang-format off */
static const struct error {
	cudaError_t rc;
	const char *name, *text;
} errors[] = {
	{ cudaSuccess, "cudaSuccess", "no error" },
	{ cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument" },
	{ cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory" },
	{ cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument" },
	{ cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected" },
	{ cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal" },
	{ cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle" },
	{ cudaErrorIllegalState, "cudaErrorIllegalState", "the operation cannot be performed in the present state" },
	{ cudaErrorNotReady, "cudaErrorNotReady", "device not ready" },
	{ cudaErrorECCUncorrectable, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered" },
	{ cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported", "operation not permitted when stream is capturing" },
	{ cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
	  "operation failed due to a previous error during capture" },
	{ cudaErrorStreamCaptureUnmatched, "cudaErrorStreamCaptureUnmatched",
	  "the capture was not initiated in this stream" },
	{ cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined", "capturing stream has unjoined work" },
	{ cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
	  "dependency created on uncaptured work in another stream" },
	{ cudaErrorCapturedEvent, "cudaErrorCapturedEvent", "operation not permitted on an event last recorded in a capturing stream" },
	{ cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
	  "attempt to terminate a thread-local capture sequence from another thread" },
};
/* clang-format on */

static const struct error *find_error(cudaError_t rc)
{
	for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
		if (errors[i].rc == rc)
			return &errors[i];
	double_misuse("error %d is none of the double's", (int)rc);
}

const char *cudaGetErrorString(cudaError_t rc)
{
	return find_error(rc)->text;
}

const char *cudaGetErrorName(cudaError_t rc)
{
	return find_error(rc)->name;
}

cudaError_t double_error(cudaError_t rc)
{
	if (rc != cudaSuccess)
		last_error = rc;
	return rc;
}

cudaError_t cudaPeekAtLastError(void)
{
	return last_error;
}

cudaError_t cudaGetLastError(void)
{
	cudaError_t rc = last_error;
	last_error = cudaSuccess;
	return rc;
}
