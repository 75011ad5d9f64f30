/*
 * cuda — libcomm's device table for NVIDIA GPUs, in libmuster-cuda.so.
 *
 * The CUDA runtime is linked in statically and itself loads the driver, NCCL is loaded when it is
 * first asked for: so the library can be opened on any machine, and one without NCCL still has the
 * staged backend. Only libcomm/device/device.h knows what is here.
 */
#ifndef MUSTER_LIBCOMM_DEVICE_CUDA_CUDA_H
#define MUSTER_LIBCOMM_DEVICE_CUDA_CUDA_H

#include "libcomm/device/device.h"

#include <cuda_runtime.h>

struct device {
	int index;
};

/* What the agent looks up by its name. */
const struct comm_device *muster_comm_cuda(void);

/* Makes d this thread's device. */
int cuda_use(const struct device *d, struct err *e);
/* 0, or the error of a call. */
int cuda_check(cudaError_t rc, const char *what, struct err *e);

extern const struct device_collectives cuda_nccl;

#endif
