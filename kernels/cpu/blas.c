#include "kernels/cpu/blas.h"

#include "base/process.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

blas_sgemm_fn *cpu_blas_sgemm;

/* In order of preference. All export cblas_sgemm with 32-bit sizes. */
static const char *const libraries[] = {
	"libopenblas.so.0",
	"libopenblas.so",
	"libblis.so.4",
	"libblas.so.3",
};
enum { LIBRARIES = sizeof libraries / sizeof libraries[0] };

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char name[80];
static char failure[400];
static void *library;

/* OpenBLAS has buffers for twice its largest number of threads, which is 64 or more. */
enum { RESERVE_MAX = 64 };

/* Runs before main, when no other thread can read the environment. */
__attribute__((constructor)) static void blas_environment(void)
{
	setenv("OPENBLAS_NUM_THREADS", "1", 1);
	setenv("BLIS_NUM_THREADS", "1", 1);
}

static void blas_describe(void *lib, const char *file)
{
	char *(*core)(void) = (char *(*)(void))dlsym(lib, "openblas_get_corename");
	if (core)
		snprintf(name, sizeof name, "%s (%s)", file, core());
	else
		snprintf(name, sizeof name, "%s", file);
}

static void blas_load(void)
{
	for (int i = 0; i < LIBRARIES; i++) {
		void *lib = dlopen(libraries[i], RTLD_NOW | RTLD_LOCAL);
		if (!lib) {
			if (!failure[0])
				snprintf(failure, sizeof failure, "%s", dlerror());
			continue;
		}
		cpu_blas_sgemm = (blas_sgemm_fn *)dlsym(lib, "cblas_sgemm");
		if (cpu_blas_sgemm) {
			library = lib;
			blas_describe(lib, libraries[i]);
			return;
		}
		dlclose(lib);
	}
}

/* OpenBLAS keeps the buffers that it has allocated once. Other BLAS libraries lack these functions,
 * and need no reservation. */
static void blas_reserve(int threads)
{
	void *(*take)(int) = (void *(*)(int))dlsym(library, "blas_memory_alloc");
	void (*give)(void *) = (void (*)(void *))dlsym(library, "blas_memory_free");
	void *buffers[RESERVE_MAX];
	int n = 0;
	while (take && give && n < threads && n < RESERVE_MAX)
		buffers[n++] = take(0);
	while (n--)
		give(buffers[n]);
}

static int blas_open_limited(int threads, struct err *e)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static int reserved;
	pthread_mutex_lock(&lock);
	int missing = threads > reserved ? threads - reserved : 0;
	int rc = missing ? process_check_memory("BLAS", BLAS_LOAD + missing * BLAS_BUFFER, e) : 0;
	if (!rc)
		pthread_once(&once, blas_load);
	if (!rc && missing && library) {
		blas_reserve(threads);
		reserved = threads;
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

int cpu_blas_open(int threads, struct err *e)
{
	if (process_address_limit() && blas_open_limited(threads, e))
		return -1;
	pthread_once(&once, blas_load);
	if (!cpu_blas_sgemm)
		return err_set(e, ERR_NOTFOUND, "BLAS: %s; install libopenblas0",
			       failure[0] ? failure : "no library has cblas_sgemm");
	return 0;
}

const char *cpu_blas_name(void)
{
	return name;
}
