#include "topo/discover/nvml_api.h"

#include "base/library.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static const struct library_symbol symbols[] = {
#define NVML_SYMBOL(result, member, symbol, needed, arguments) \
	{ #symbol, offsetof(struct nvml_api, member), !(needed) },
	NVML_CALLS(NVML_SYMBOL)
#undef NVML_SYMBOL
};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };

/* Reports why the library cannot be loaded. If the file exists but is broken, as in a container
 * image that was made without GPUs, this differs from a host without a driver. */
static int not_loaded(const char *library, const char *why, struct err *e)
{
	size_t len = strlen(library);
	if (!why || (!strncmp(why, library, len) && strstr(why + len, "No such file")))
		return err_set(e, ERR_NOTFOUND,
			       "%s: not on this host, so there is no driver for NVIDIA GPUs here",
			       library);
	return err_set(e, ERR_UNSUPPORTED, "NVIDIA driver: its library cannot be loaded: %.300s",
		       why);
}

static int load_symbols(const char *library, struct nvml_api *a, struct err *e)
{
	*a = (struct nvml_api){ .library = dlopen(library, RTLD_NOW | RTLD_LOCAL) };
	if (!a->library)
		return not_loaded(library, dlerror(), e);
	const char *missing = library_symbols(a->library, symbols, SYMBOLS, a);
	if (!missing)
		return 0;
	dlclose(a->library);
	return err_set(e, ERR_UNSUPPORTED, "%s: has no %s; the driver is older than 450: update it",
		       library, missing);
}

int topo_nvml_failed(const struct nvml_api *a, const char *what, nvml_code_t code, struct err *e)
{
	const char *text = a->error ? a->error(code) : NULL;
	return err_set(e, ERR_UNSUPPORTED,
		       "NVIDIA driver: %s: %.200s (%d); see the output of nvidia-smi", what,
		       text ? text : "fails", (int)code);
}

int topo_nvml_open(const char *library, struct nvml_api *out, struct err *e)
{
	struct nvml_api a;
	if (load_symbols(library, &a, e))
		return -1;
	nvml_code_t code = a.init();
	if (code != NVML_OK) {
		topo_nvml_failed(&a, "start", code, e);
		dlclose(a.library);
		return -1;
	}
	*out = a;
	return 0;
}

void topo_nvml_close(struct nvml_api *a)
{
	a->shutdown();
	dlclose(a->library);
}

void topo_nvml_bus(const struct nvml_pci *p, char out[16])
{
	snprintf(out, 16, "%04x:%02x:%02x.0", p->domain & 0xffff, p->bus & 0xff, p->device & 0x1f);
}

int topo_nvml_generation(unsigned version)
{
	static const int generations[NVML_NVLINKS] = { 0, 1, 2, 2, 3, 3, 4, 5, 6 };
	return version < NVML_NVLINKS ? generations[version] : 0;
}
