/* programs: checks the programs and libraries that muster loads. */
#include "launcher/agent_path.h"
#include "launcher/doctor/doctor.h"

#include "launcher/child.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define AGENT_SECONDS 8.0

void doctor_check_agent(const struct needs *n, struct findings *f)
{
	char path[PATH_MAX];
	struct err e = ERR_INIT;
	struct buf out = BUF_INIT;
	(void)n;
	if (launcher_agent_path(path, sizeof path, &e)) {
		doctor_found_bad(f, FINDING_FAIL, "muster-agent",
				 "build it with make, or set MUSTER_AGENT to its path", "%s",
				 e.text);
		return;
	}
	char *const argv[] = { path, "ckpt", "--help", NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	if (launcher_child_run(&c, AGENT_SECONDS, &out, &e))
		doctor_found_bad(f, FINDING_FAIL, "muster-agent",
				 "install on this node the packages that make setup installs, or "
				 "build muster "
				 "on a node like this one",
				 "%s", e.text);
	else if (!strstr(buf_str(&out), "muster ckpt"))
		doctor_found_bad(f, FINDING_FAIL, "muster-agent",
				 "set MUSTER_AGENT to the path of muster-agent, or unset it",
				 "%s is another program", path);
	else
		doctor_found_ok(f, "muster-agent", "%s", path);
	buf_fini(&out);
}

/* muster is linked with libpmix, but a node may have another version installed. */
void doctor_check_pmix(const struct needs *n, struct findings *f)
{
	const char *(*version)(void) = (const char *(*)(void))dlsym(RTLD_DEFAULT,
								    "PMIx_Get_version");
	char text[64];
	(void)n;
	snprintf(text, sizeof text, "%s", version ? version() : "unknown version");
	text[strcspn(text, ",(\n")] = '\0';
	for (size_t len = strlen(text); len && text[len - 1] == ' ';)
		text[--len] = '\0';
	doctor_found_ok(f, "PMIx", "%s", text);
}

static bool is_in_path(const char *program)
{
	char path[PATH_MAX];
	const char *at = getenv("PATH");
	while (at && *at) {
		int n = (int)strcspn(at, ":");
		snprintf(path, sizeof path, "%.*s/%s", n < 3000 ? n : 3000, at, program);
		if (!access(path, X_OK))
			return true;
		at += n + (at[n] == ':');
	}
	return false;
}

/* Optional: without them the states and system calls of the threads are still known. */
void doctor_check_debugger(const struct needs *n, struct findings *f)
{
	static const char without[] =
		"; gdb or elfutils would also name the functions of ranks that hang";
	const char *native = is_in_path("gdb") ? "gdb" : is_in_path("eu-stack") ? "eu-stack" : NULL;
	bool python = is_in_path("py-spy");
	(void)n;
	doctor_found_ok(f, "debugger", "%s%s%s",
			native   ? native
			: python ? "py-spy"
				 : "none",
			native && python ? ", py-spy" : "", native ? "" : without);
}

/* What is missing for training on GPUs is a failure only if the job trains on them. */
static enum finding_level level_of(const struct needs *n)
{
	return n->cuda && !n->program ? FINDING_FAIL : FINDING_WARN;
}

/* Finds the first BLAS that is installed here, in the order of kernels/cpu/blas.c. */
void doctor_check_blas(const struct needs *n, struct findings *f)
{
	static const char *const names[] = { "libopenblas.so.0", "libopenblas.so", "libblis.so.4",
					     "libblas.so.3" };
	(void)n;
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		void *lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
		if (!lib || !dlsym(lib, "cblas_sgemm"))
			continue;
		char *(*core)(void) = (char *(*)(void))dlsym(lib, "openblas_get_corename");
		if (i < 3)
			doctor_found_ok(f, "BLAS", "%s%s%s", names[i], core ? ", for " : "",
					core ? core() : "");
		else
			doctor_found_bad(
				f, FINDING_WARN, "BLAS", "apt install libopenblas0",
				"%s is the reference BLAS, many times slower than OpenBLAS",
				names[i]);
		return;
	}
	doctor_found_bad(f, n->cuda || n->program ? FINDING_WARN : FINDING_FAIL, "BLAS",
			 "apt install libopenblas0",
			 "there is none, so agents cannot compute on the CPU");
}

bool doctor_has_driver(void)
{
	return !access("/proc/driver/nvidia/version", F_OK) || !access("/dev/nvidiactl", F_OK);
}

/* Reports a missing GPU library. It is a problem only if a job uses GPUs or the driver is
 * loaded. */
static void report_missing(const struct needs *n, struct findings *f, enum finding_level level,
			   const char *object, const char *remedy, const char *why)
{
	if (n->cuda || doctor_has_driver())
		doctor_found_bad(f, level, object, remedy, "%s", why);
	else
		doctor_found_ok(f, object, "not installed; only device = cuda needs it");
}

static const char *load_error(void)
{
	const char *text = dlerror();
	return text ? text : "cannot be loaded";
}

static void *cuda_agent(char path[PATH_MAX], struct err *e)
{
	if (launcher_cuda_library(path, PATH_MAX, e))
		return NULL;
	void *lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!lib)
		err_set(e, ERR_UNSUPPORTED, "%.900s", load_error());
	return lib;
}

/* The version of CUDA that libmuster-cuda.so was built with, such as 13000; 0: unknown. */
static int cuda_version_built_with(void *lib)
{
	const int *version = lib ? dlsym(lib, "muster_cuda_runtime") : NULL;
	return version ? *version : 0;
}

void doctor_check_cuda(const struct needs *n, struct findings *f)
{
	static const char remedy[] = "install the CUDA toolkit 12 or newer where muster is built "
				     "(CUDA_HOME names its folder), and run make again";
	char path[PATH_MAX];
	struct err e = ERR_INIT;
	void *lib = cuda_agent(path, &e);
	int cuda = cuda_version_built_with(lib);
	if (!lib && e.code == ERR_NOTFOUND)
		report_missing(n, f, level_of(n), "libmuster-cuda.so", remedy, e.text);
	else if (!lib)
		doctor_found_bad(f, level_of(n), "libmuster-cuda.so",
				 "build it on a node like this one", "%s", e.text);
	else if (cuda)
		doctor_found_ok(f, "libmuster-cuda.so", "can be loaded; built with CUDA %d.%d",
				cuda / 1000, cuda % 1000 / 10);
	else
		doctor_found_ok(f, "libmuster-cuda.so", "can be loaded");
}

/* A driver supports every CUDA of its own major version (CUDA Compatibility, "minor version
 * compatibility"). */
void doctor_check_driver(const struct needs *n, struct findings *f)
{
	static const char remedy[] = "install the NVIDIA driver; start a container with its GPUs "
				     "(--gpus all, --nv)";
	char path[PATH_MAX], update[160];
	int driver = 0;
	void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
	if (!lib) {
		report_missing(n, f, n->cuda ? FINDING_FAIL : FINDING_WARN, "CUDA driver", remedy,
			       load_error());
		return;
	}
	int (*version)(int *) = (int (*)(int *))dlsym(lib, "cuDriverGetVersion");
	if (!version || version(&driver) || driver <= 0) {
		doctor_found_bad(f, FINDING_WARN, "CUDA driver", remedy,
				 "libcuda.so.1 does not report its version");
		return;
	}
	int cuda = cuda_version_built_with(cuda_agent(path, NULL));
	snprintf(update, sizeof update,
		 "update the driver, or build muster with CUDA %d (CUDA_HOME)", driver / 1000);
	if (driver / 1000 < cuda / 1000)
		doctor_found_bad(f, level_of(n), "CUDA driver", update,
				 "it supports CUDA %d.%d, but muster was built with CUDA %d.%d",
				 driver / 1000, driver % 1000 / 10, cuda / 1000, cuda % 1000 / 10);
	else
		doctor_found_ok(f, "CUDA driver", "supports CUDA %d.%d", driver / 1000,
				driver % 1000 / 10);
}

/* The libraries that kernels/cuda and libcomm/device/cuda load, with the names that those try. All
 * report versions as major × 10000 + minor × 100 + patch (cublas_api.h; cudnn_version.h since 9.0;
 * nccl.h since 2.9). Before that NCCL and cuDNN reported major × 1000 + minor × 100 + patch. */
static const struct library {
	const char *label, *names[5], *version, *remedy;
	bool returned; /* it returns the version; otherwise it writes it to its argument */
	int least;
	bool optional, not_fp32; /* jobs in fp32 do not use it */
} libraries[] = {
	{ "cublasLt",
	  { "libcublasLt.so.13", "libcublasLt.so.12", "/usr/local/cuda/lib64/libcublasLt.so.13",
	    "/usr/local/cuda/lib64/libcublasLt.so.12", NULL },
	  "cublasLtGetVersion",
	  "install CUDA's libcublas, or name its folder "
	  "in LD_LIBRARY_PATH",
	  true,
	  120000,
	  false,
	  false },
	{ "NCCL",
	  { "libnccl.so.2" },
	  "ncclGetVersion",
	  "install libnccl2 (2.18 or newer), or name its folder in LD_LIBRARY_PATH; "
	  "without it ranks communicate through host memory, which is slow",
	  false,
	  21800,
	  true,
	  false },
	{ "cuDNN",
	  { "libcudnn.so.9", "/usr/local/cuda/lib64/libcudnn.so.9",
	    "/usr/local/cuda/lib/libcudnn.so.9", NULL },
	  "cudnnGetVersion",
	  "install libcudnn 9.15.1 or newer, or name its folder in LD_LIBRARY_PATH; without it "
	  "muster's own kernels compute attention, which is slower on newer GPUs",
	  true,
	  91501, /* DNN_OLDEST in kernels/cuda/dnn.h */
	  true,
	  true },
};

static int version_of(void *lib, const struct library *l)
{
	int version = 0;
	void *symbol = dlsym(lib, l->version);
	if (symbol && l->returned)
		version = (int)((size_t(*)(void))symbol)();
	else if (symbol && ((int (*)(int *))symbol)(&version))
		version = 0;
	return version < 10000 ? version / 1000 * 10000 + version % 1000 : version;
}

static void check_library(const struct needs *n, struct findings *f, const struct library *l)
{
	void *lib = NULL;
	const char *const *name = l->names;
	char why[400] = "";
	for (; *name && !(lib = dlopen(*name, RTLD_NOW | RTLD_LOCAL)); name++)
		if (!*why)
			snprintf(why, sizeof why, "%s", load_error());
	int version = lib ? version_of(lib, l) : 0;
	if (!lib && l->optional && n->cuda)
		doctor_found_bad(f, FINDING_WARN, l->label, l->remedy, "%s", why);
	else if (!lib)
		report_missing(n, f, level_of(n), l->label, l->remedy, why);
	else if (version < l->least)
		doctor_found_bad(f, l->optional ? FINDING_WARN : level_of(n), l->label, l->remedy,
				 "%s is version %d.%d.%d, but muster needs %d.%d.%d", *name,
				 version / 10000, version / 100 % 100, version % 100,
				 l->least / 10000, l->least / 100 % 100, l->least % 100);
	else
		doctor_found_ok(f, l->label, "%d.%d.%d (%s)", version / 10000, version / 100 % 100,
				version % 100, *name);
}

void doctor_check_libraries(const struct needs *n, struct findings *f)
{
	for (size_t i = 0; i < sizeof libraries / sizeof *libraries; i++)
		if (!n->fp32 || !libraries[i].not_fp32)
			check_library(n, f, &libraries[i]);
}
