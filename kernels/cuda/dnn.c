#include "kernels/cuda/dnn.h"

#ifdef HAVE_CUDNN

#include "base/library.h"

static struct dnn dnn;

static const struct library_symbol symbols[] = {
#define DNN_SYMBOL(f) LIBRARY_NEEDS(dnn, f, "cudnn" #f),
	DNN_FUNCTIONS(DNN_SYMBOL)
#undef DNN_SYMBOL
};

static int check_version(struct err *e)
{
	size_t v = dnn.GetVersion();
	if (v >= DNN_OLDEST)
		return 0;
	return err_set(
		e, ERR_UNSUPPORTED,
		"backend cuda: cuDNN %zu.%zu.%zu is too old for attention (needed: %d.%d.%d); "
		"muster's own kernels are used; install a newer libcudnn",
		v / 10000, v / 100 % 100, v % 100, DNN_OLDEST / 10000, DNN_OLDEST / 100 % 100,
		DNN_OLDEST % 100);
}

/* The dynamic loader does not always search the toolkit's own folder. */
static struct library cudnn = {
	.name = "backend cuda: cuDNN",
	.files = { "libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9",
		   "/usr/local/cuda/lib/libcudnn.so.9" },
	.code = ERR_NOTFOUND,
	.remedy = "install libcudnn 9, or add its folder to LD_LIBRARY_PATH; without it muster's "
		  "own kernels compute attention",
	.symbols = symbols,
	.count = sizeof symbols / sizeof *symbols,
	.table = &dnn,
	.start = check_version,
	.lock = PTHREAD_MUTEX_INITIALIZER,
};

int dnn_load(const struct dnn **out, struct err *e)
{
	if (library_load(&cudnn, e))
		return -1;
	*out = &dnn;
	return 0;
}

#endif
