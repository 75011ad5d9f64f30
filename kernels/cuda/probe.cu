/* A kernel that does nothing. Launching it shows whether the library has code for the device. */
#include "kernels/cuda/launch.cuh"

static __global__ void probe_kernel()
{
}

extern "C" void cuda_probe(struct backend *k)
{
	launch(k, "looking for code that it runs", probe_kernel, 1, 1, 0);
}
