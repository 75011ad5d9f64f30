/*
 * A double of all libraries whose versions `muster doctor` asks for: CUDA's driver, cublasLt, NCCL,
 * cuDNN and libmuster-cuda.so. A test gives it the names of the libraries that should exist.
 * CUDA_DOUBLE=WORD=NUMBER[,…] sets other versions than those below. A driver version of 0 makes the
 * call fail.
 */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static int version(const char *word, int usual)
{
	const char *script = getenv("CUDA_DOUBLE"), *at = script ? strstr(script, word) : NULL;
	return at ? atoi(at + strlen(word) + 1) : usual;
}

extern const int muster_cuda_runtime;
const int muster_cuda_runtime = 13000;

int cuDriverGetVersion(int *out);
size_t cublasLtGetVersion(void);
int ncclGetVersion(int *out);
size_t cudnnGetVersion(void);

int cuDriverGetVersion(int *out)
{
	*out = version("driver", 13000);
	return *out ? 0 : 999;
}

size_t cublasLtGetVersion(void)
{
	return (size_t)version("cublasLt", 130100);
}

int ncclGetVersion(int *out)
{
	*out = version("nccl", 22803);
	return 0;
}

size_t cudnnGetVersion(void)
{
	return (size_t)version("cudnn", 91900);
}
