/*
 * launch — queues a kernel. All kernels are queued by this function.
 *
 *     launch(k, "gelu_fwd", gelu_fwd_kernel<T>, cuda_blocks(count, 1024), 256, 0, y, x, count);
 *
 * grid and block are dim3 or a number; `shared` is the bytes of dynamic shared memory. With a grid of
 * 0 blocks nothing is queued. Arguments are converted to the kernel's parameters.
 */
#ifndef MUSTER_KERNELS_CUDA_LAUNCH_CUH
#define MUSTER_KERNELS_CUDA_LAUNCH_CUH

#include <cuda_runtime.h>

#include "kernels/cuda/cuda.h"

template <class... Params, class... Args>
static void launch(struct backend *k, const char *op, void (*kernel)(Params...), dim3 grid,
		   dim3 block, size_t shared, Args... args)
{
	struct cuda_backend *c = cuda_of(k);
	if (grid.x == 0 || grid.y == 0 || grid.z == 0)
		return;
	if (shared > CUDA_SHARED_FREE && !cuda_allow_shared(k, (const void *)kernel, shared, op))
		return;
	cuda_choose(k);
	cudaLaunchConfig_t config = {};
	config.gridDim = grid;
	config.blockDim = block;
	config.dynamicSmemBytes = shared;
	config.stream = c->stream;
	c->last_op = op;
	cuda_ok(k, cudaLaunchKernelEx(&config, kernel, static_cast<Params>(args)...), op);
}

#endif
