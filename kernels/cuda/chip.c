/* Which device this is, and which libraries are there (kernels/chip.h). */
#include "kernels/chip.h"

#include "base/library.h"
#include "kernels/cuda/lt.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <string.h>

__attribute__((visibility("default"))) cuda_count_fn muster_cuda_count;
__attribute__((visibility("default"))) cuda_chip_fn muster_cuda_chip;

/* --- Versions of libraries ---------------------------------------------------------------- */

static struct nccl {
	int (*version)(int *out);
} nccl;

static const struct library_symbol nccl_symbols[] = {
	LIBRARY_NEEDS(nccl, version, "ncclGetVersion"),
};

static struct library nccl_library = {
	.name = "NCCL",
	.files = { "libnccl.so.2" },
	.code = ERR_NOTFOUND,
	.remedy = "install NCCL",
	.symbols = nccl_symbols,
	.count = 1,
	.table = &nccl,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

static int cublaslt_version(void)
{
	const struct lt *lt;
	return lt_load(&lt, NULL) ? 0 : (int)lt->GetVersion();
}

static int nccl_version(void)
{
	int version = 0;
	return library_load(&nccl_library, NULL) || nccl.version(&version) ? 0 : version;
}

/* --- The device --------------------------------------------------------------------------- */

static int no_device(cudaError_t rc, struct err *e)
{
	return err_set(e, ERR_NOTFOUND,
		       "no CUDA device: %s; run this on a node with a GPU, and check --gres and "
		       "CUDA_VISIBLE_DEVICES",
		       cudaGetErrorString(rc));
}

int muster_cuda_count(int *count, struct err *e)
{
	cudaError_t rc = cudaGetDeviceCount(count);
	if (rc == cudaSuccess && *count < 1)
		rc = cudaErrorNoDevice;
	return rc == cudaSuccess ? 0 : no_device(rc, e);
}

int muster_cuda_chip(int device, struct backend_chip *out, struct err *e)
{
	struct cudaDeviceProp p;
	struct backend_chip chip = { .cuda = CUDART_VERSION };
	cudaError_t rc = cudaGetDeviceProperties(&p, device);
	if (rc == cudaSuccess)
		rc = cudaDriverGetVersion(&chip.driver);
	if (rc != cudaSuccess)
		return no_device(rc, e);
	snprintf(chip.name, sizeof chip.name, "%.*s", (int)sizeof chip.name - 1, p.name);
	chip.units = p.multiProcessorCount;
	chip.capability = 10 * p.major + p.minor;
	chip.memory = (double)p.totalGlobalMem;
	chip.cublaslt = cublaslt_version();
	chip.nccl = nccl_version();
	*out = chip;
	return 0;
}
