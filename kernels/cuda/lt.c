#include "kernels/cuda/lt.h"

#include "base/library.h"

static struct lt lt;

static const struct library_symbol symbols[] = {
#define LT_SYMBOL(f) LIBRARY_NEEDS(lt, f, "cublasLt" #f),
	LT_FUNCTIONS(LT_SYMBOL)
#undef LT_SYMBOL
};

/* The dynamic loader does not always search the toolkit's own folder. */
static struct library cublaslt = {
	.name = "backend cuda: cuBLASLt",
	.files = { "libcublasLt.so.13", "libcublasLt.so.12",
		   "/usr/local/cuda/lib64/libcublasLt.so.13",
		   "/usr/local/cuda/lib64/libcublasLt.so.12" },
	.code = ERR_NOTFOUND,
	.remedy = "install CUDA's libraries (libcublas of CUDA 12 or newer), or add their folder "
		  "to LD_LIBRARY_PATH",
	.symbols = symbols,
	.count = sizeof symbols / sizeof *symbols,
	.table = &lt,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

int lt_load(const struct lt **out, struct err *e)
{
	if (library_load(&cublaslt, e))
		return -1;
	*out = &lt;
	return 0;
}
