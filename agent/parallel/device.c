#include "agent/parallel/device.h"

#include "libcomm/device/device.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define LIBRARY "libmuster-cuda.so"

typedef const struct comm_device *table_fn(void);

/* The library's path beside the running program. */
static int library_path(char out[PATH_MAX], struct err *e)
{
	char program[PATH_MAX];
	ssize_t n = readlink("/proc/self/exe", program, sizeof program - 1);
	if (n < 0)
		return err_errno(e, ERR_IO, "/proc/self/exe: cannot be read, to find " LIBRARY " beside it");
	program[n] = '\0';
	char *slash = strrchr(program, '/');
	if (slash)
		*slash = '\0';
	if (snprintf(out, PATH_MAX, "%s/" LIBRARY, program) >= PATH_MAX)
		return err_set(e, ERR_UNSUPPORTED, "%s: the path is too long for " LIBRARY " beside it; install muster elsewhere", program);
	return 0;
}

int device_table(const struct comm_device **out, struct err *e)
{
	char path[PATH_MAX];
	if (library_path(path, e))
		return -1;
	void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!library)
		return err_set(e, ERR_UNSUPPORTED, "groups on the device: %s; build muster where CUDA 12 or newer is (make), or set job.device = cpu",
			       dlerror());
	table_fn *table;
	*(void **)(void *)&table = dlsym(library, "muster_comm_cuda");
	if (!table)
		return err_set(e, ERR_UNSUPPORTED, "%s: it has no muster_comm_cuda: another version's; build it anew (make)", path);
	*out = table();
	return 0;
}

int device_count(void)
{
	const struct comm_device *table;
	struct device *d;
	int n = 0;
	if (device_table(&table, NULL))
		return 0;
	while (!table->open(n, &d, NULL)) {
		table->close(d);
		n++;
	}
	return n;
}

int device_of_slot(int slot)
{
	int n = device_count();
	return n && slot >= 0 ? slot % n : 0;
}
