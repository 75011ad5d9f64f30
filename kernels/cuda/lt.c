#include "kernels/cuda/lt.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static struct lt lt;
static struct err load_error; /* of the only attempt */
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

/* Opens the first library that loads. The dynamic loader does not always search the toolkit's own
 * folder. why: the error for the first name, which describes a library that exists but does not
 * load. */
static void *open_library(char *why, size_t size)
{
	static const char *const names[] = {
		"libcublasLt.so.13",
		"libcublasLt.so.12",
		"/usr/local/cuda/lib64/libcublasLt.so.13",
		"/usr/local/cuda/lib64/libcublasLt.so.12",
	};
	void *lib = NULL;
	for (int i = 0; i < (int)(sizeof names / sizeof names[0]) && !lib; i++)
		if (!(lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL)) && i == 0)
			snprintf(why, size, "%s", dlerror());
	return lib;
}

static void load_once(void)
{
	char why[400] = "";
	void *lib = open_library(why, sizeof why);
	if (!lib) {
		err_set(&load_error, ERR_NOTFOUND,
			"backend cuda: cannot load cuBLASLt: %s; install CUDA's libraries "
			"(libcublas), or add their folder to LD_LIBRARY_PATH",
			why);
		return;
	}
#define LT_FIND(f) \
	if (!(*(void **)(void *)&lt.f = dlsym(lib, "cublasLt" #f))) \
		err_set(&load_error, ERR_UNSUPPORTED, \
			"backend cuda: cuBLASLt has no cublasLt" #f \
			"; install the one of CUDA 12 or newer");
	LT_FUNCTIONS(LT_FIND)
#undef LT_FIND
}

int lt_load(const struct lt **out, struct err *e)
{
	pthread_once(&loaded, load_once);
	if (load_error.code)
		return err_set(e, load_error.code, "%s", load_error.text);
	*out = &lt;
	return 0;
}
