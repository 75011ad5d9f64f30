/* Loads the CUDA backend's library, which is built apart since not every machine has CUDA. */
#include "kernels/backend.h"
#include "kernels/chip.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char library[] = "libmuster-cuda.so";

/* The path of the library, which is beside the running program. */
static int find_library(char *path, size_t size, struct err *e)
{
	char program[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
	if (n < 0)
		return err_errno(e, ERR_IO,
				 "backend cuda: cannot read /proc/self/exe to find this program's "
				 "folder; mount /proc");
	program[n] = '\0';
	*strrchr(program, '/') = '\0';
	if ((size_t)snprintf(path, size, "%s/%s", program, library) >= size)
		return err_set(e, ERR_UNSUPPORTED, "backend cuda: the path of %s/%s is too long",
			       program, library);
	return 0;
}

int backend_cuda_symbol(const char *symbol, void **out, struct err *e)
{
	char path[PATH_MAX];
	if (find_library(path, sizeof path, e))
		return -1;
	if (access(path, R_OK) < 0)
		return err_errno(e, ERR_UNSUPPORTED,
				 "backend cuda: cannot read %s; build it on a machine with CUDA 12 "
				 "or newer and nvcc, and install it beside the program, or use "
				 "device = cpu",
				 path);
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		return err_set(e, ERR_UNSUPPORTED,
			       "backend cuda: %s; build it on a machine like this one", dlerror());
	*out = dlsym(lib, symbol);
	if (!*out)
		return err_set(e, ERR_UNSUPPORTED,
			       "backend cuda: %s has no %s: it is of another version; install the "
			       "one built with this program",
			       path, symbol);
	return 0;
}

int backend_cuda_open(struct backend *k, const char *storage, int device, struct err *e)
{
	void *at;
	cuda_open_fn *open;
	if (backend_cuda_symbol("muster_cuda_open", &at, e))
		return -1;
	memcpy(&open, &at, sizeof open);
	return open(k, sizeof *k, storage, device, e);
}

int backend_cuda_count(int *count, struct err *e)
{
	void *at;
	cuda_count_fn *ask;
	if (backend_cuda_symbol("muster_cuda_count", &at, e))
		return -1;
	memcpy(&ask, &at, sizeof ask);
	return ask(count, e);
}

int backend_cuda_chip(int device, struct backend_chip *out, struct err *e)
{
	void *at;
	cuda_chip_fn *ask;
	if (backend_cuda_symbol("muster_cuda_chip", &at, e))
		return -1;
	memcpy(&ask, &at, sizeof ask);
	return ask(device, out, e);
}
