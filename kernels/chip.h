/*
 * chip — which device a process computes on, and with which libraries, so that what was measured
 * there is not taken for another one's.
 */
#ifndef MUSTER_KERNELS_CHIP_H
#define MUSTER_KERNELS_CHIP_H

#include "base/err.h"

enum { BACKEND_CHIP_NAME = 64 };

/* Versions as the libraries count them: 13000 is CUDA 13.0; 0: unknown. */
struct backend_chip {
	char name[BACKEND_CHIP_NAME]; /* as the driver calls it: "NVIDIA H200" */
	int units, capability;        /* multiprocessors; compute capability × 10 */
	double memory;                /* bytes of the device */
	int driver, cuda, cublaslt, nccl;
};

/* The number of CUDA devices that this process sees, which opens the driver. A process that asks
 * must not fork others that use the devices. ERR_UNSUPPORTED: there is no CUDA backend;
 * ERR_NOTFOUND: no device. */
int backend_cuda_count(int *count, struct err *e);
/* As above; device is below the count. */
int backend_cuda_chip(int device, struct backend_chip *out, struct err *e);

/* Exported by libmuster-cuda.so. */
typedef int cuda_count_fn(int *count, struct err *e);
typedef int cuda_chip_fn(int device, struct backend_chip *out, struct err *e);

#endif
