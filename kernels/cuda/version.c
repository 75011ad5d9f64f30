/* The CUDA that this library was built with, 13000 for 13.0: `muster doctor` holds the driver's
 * to it. */
#include <cuda_runtime_api.h>

extern const int muster_cuda_runtime;
__attribute__((visibility("default"))) const int muster_cuda_runtime = CUDART_VERSION;
