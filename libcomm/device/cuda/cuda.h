/*
 * cuda — libcomm's device table for NVIDIA GPUs, in libmuster-cuda.so.
 *
 * The CUDA runtime is linked statically and loads the driver itself; NCCL is loaded when it is
 * first needed. So the library can be opened on any machine, and a machine without NCCL still has
 * the staged backend. Only libcomm/device/device.h is visible outside.
 */
#ifndef MUSTER_LIBCOMM_DEVICE_CUDA_CUDA_H
#define MUSTER_LIBCOMM_DEVICE_CUDA_CUDA_H

#include "libcomm/device/device.h"

#include <cuda_runtime.h>

struct device {
	int index;
};

/* The agent looks this function up by its name. */
const struct comm_device *muster_comm_cuda(void);

/* Makes d the current device of this thread. */
int cuda_use(const struct device *d, struct err *e);
/* 0, or -1 with the error of a CUDA call. */
int cuda_check(cudaError_t rc, const char *what, struct err *e);

extern const struct device_collectives cuda_nccl;

#endif
