/* A kernel that does nothing: whether the library holds code that the device can run shows when
 * one is launched. */
#include "kernels/cuda/launch.cuh"

static __global__ void probe_kernel()
{
}

extern "C" void cuda_probe(struct backend *k)
{
	launch(k, "looking for code that it runs", probe_kernel, 1, 1, 0);
}
