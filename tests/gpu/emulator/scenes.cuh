/* scenes — launches the scenes' kernels. */
#ifndef MUSTER_TESTS_GPU_SCENES_CUH
#define MUSTER_TESTS_GPU_SCENES_CUH

#include "tests/gpu/emulator/scenes.h"

#include "kernels/cuda/ptx.cuh"

template <class... P, class... A>
void start(cudaStream_t stream, void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
	   A... args)
{
	cudaLaunchConfig_t config = {};
	config.gridDim = grid;
	config.blockDim = block;
	config.dynamicSmemBytes = shared;
	config.stream = stream;
	cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...);
}

/* An array on the device, with a copy on the host. */
template <class T, int COUNT> struct both {
	T host[COUNT];
	T *device;

	both() : host()
	{
		cudaMalloc((void **)&device, sizeof host);
	}
	~both()
	{
		cudaFree(device);
	}
	void put()
	{
		cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice);
	}
	void get()
	{
		cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
	}
};

#endif
