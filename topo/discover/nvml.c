/*
 * The interface is that of nvml.h in the CUDA toolkit, declared again: only names that the library exports since
 * driver 450 are needed, newer ones are used where they are.
 */
#include "topo/discover/nvml.h"

#include "topo/read/machine.h"

#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct nvml_device *device_t;

enum { SUCCESS = 0 };
enum { REMOTE_GPU = 0, REMOTE_SWITCH = 2 };
enum { P2P_READ = 0, P2P_OK = 0, P2P_UNKNOWN = 6 };
enum { FABRIC_COMPLETED = 3 };

struct memory {
	unsigned long long total, free, used;
};

struct pci {
	char legacy[16];
	unsigned domain, bus, device, id, subsystem; /* id: device << 16 | vendor */
	char text[32];
};

/* nvmlGpuFabricInfo_v2_t. */
struct fabric {
	unsigned version;
	unsigned char cluster[16];
	int status;
	unsigned clique;
	unsigned char state;
	unsigned health;
};
#define FABRIC_VERSION (unsigned)(sizeof(struct fabric) | 2u << 24)

struct api {
	void *library;
	int (*init)(void);
	int (*shutdown)(void);
	const char *(*error)(int code);
	int (*count)(unsigned *n);
	int (*handle)(unsigned index, device_t *out);
	int (*name)(device_t d, char *text, unsigned size);
	int (*memory)(device_t d, struct memory *out);
	int (*pci)(device_t d, struct pci *out);
	/* Optional. */
	int (*uuid)(device_t d, char *text, unsigned size);
	int (*capability)(device_t d, int *major, int *minor);
	int (*link_state)(device_t d, unsigned link, unsigned *active);
	int (*link_remote)(device_t d, unsigned link, struct pci *out);
	int (*link_type)(device_t d, unsigned link, unsigned *type);
	int (*p2p)(device_t a, device_t b, unsigned what, unsigned *status);
	int (*fabric)(device_t d, struct fabric *out);
};

static const struct symbol {
	const char *name;
	size_t offset;
	bool needed;
} symbols[] = {
	{ "nvmlInit_v2", offsetof(struct api, init), true },
	{ "nvmlShutdown", offsetof(struct api, shutdown), true },
	{ "nvmlErrorString", offsetof(struct api, error), false },
	{ "nvmlDeviceGetCount_v2", offsetof(struct api, count), true },
	{ "nvmlDeviceGetHandleByIndex_v2", offsetof(struct api, handle), true },
	{ "nvmlDeviceGetName", offsetof(struct api, name), true },
	{ "nvmlDeviceGetMemoryInfo", offsetof(struct api, memory), true },
	{ "nvmlDeviceGetPciInfo_v3", offsetof(struct api, pci), true },
	{ "nvmlDeviceGetUUID", offsetof(struct api, uuid), false },
	{ "nvmlDeviceGetCudaComputeCapability", offsetof(struct api, capability), false },
	{ "nvmlDeviceGetNvLinkState", offsetof(struct api, link_state), false },
	{ "nvmlDeviceGetNvLinkRemotePciInfo_v2", offsetof(struct api, link_remote), false },
	{ "nvmlDeviceGetNvLinkRemoteDeviceType", offsetof(struct api, link_type), false },
	{ "nvmlDeviceGetP2PStatus", offsetof(struct api, p2p), false },
	{ "nvmlDeviceGetGpuFabricInfoV", offsetof(struct api, fabric), false },
};
enum { SYMBOLS = sizeof symbols / sizeof *symbols };

static int load(const char *library, struct api *a, struct err *e)
{
	*a = (struct api){ .library = dlopen(library, RTLD_NOW | RTLD_LOCAL) };
	if (!a->library)
		return err_set(e, ERR_NOTFOUND, "%s: not on this host, so there is no driver for NVIDIA GPUs here", library);
	for (int i = 0; i < SYMBOLS; i++) {
		void *f = dlsym(a->library, symbols[i].name);
		memcpy((char *)a + symbols[i].offset, &f, sizeof f);
		if (f || !symbols[i].needed)
			continue;
		dlclose(a->library);
		return err_set(e, ERR_UNSUPPORTED, "%s: has no %s; the driver is older than 450: update it", library, symbols[i].name);
	}
	return 0;
}

static int failed(const struct api *a, const char *what, int code, struct err *e)
{
	const char *text = a->error ? a->error(code) : NULL;
	return err_set(e, ERR_UNSUPPORTED, "NVIDIA driver: %s: %.200s (%d); see what nvidia-smi says", what, text ? text : "fails", code);
}

/* Its address from the numbers; the library's text has more digits of the domain. */
static void bus_of(const struct pci *p, char out[16])
{
	snprintf(out, 16, "%04x:%02x:%02x.0", p->domain & 0xffff, p->bus & 0xff, p->device & 0x1f);
}

static int read_gpu(const struct api *a, unsigned index, device_t *d, struct nvml_gpu *g, struct err *e)
{
	struct pci pci = { .domain = 0 };
	struct memory memory = { 0 };
	char name[128] = "", what[48];
	int code = a->handle(index, d), major = 0, minor = 0;
	snprintf(what, sizeof what, "GPU %u", index);
	if (code == SUCCESS)
		code = a->pci(*d, &pci);
	if (code != SUCCESS)
		return failed(a, what, code, e);
	bus_of(&pci, g->bus);
	g->index = (int)index;
	g->vendor = (int)(pci.id & 0xffff);
	g->id = (int)(pci.id >> 16);
	if (a->name(*d, name, sizeof name - 1) != SUCCESS)
		name[0] = '\0';
	name[sizeof name - 1] = '\0';
	machine_text(g->name, sizeof g->name, name);
	if (!a->uuid || a->uuid(*d, g->uuid, sizeof g->uuid - 1) != SUCCESS)
		g->uuid[0] = '\0';
	if (a->memory(*d, &memory) == SUCCESS)
		g->memory = (double)memory.total;
	if (a->capability && a->capability(*d, &major, &minor) == SUCCESS && major > 0 && major < 1000 && minor >= 0 && minor < 10)
		g->arch = 10 * major + minor;
	return 0;
}

static int gpu_at_bus(const struct nvml_host *h, const char *bus)
{
	for (int i = 0; i < h->n; i++)
		if (!strcmp(h->gpus[i].bus, bus))
			return i;
	return -1;
}

/* One link of GPU i: into a switch, to another GPU, or, where the type is not told, to whatever its address is. */
static void read_link(const struct api *a, device_t d, unsigned link, int i, struct nvml_host *h)
{
	unsigned active = 0, type = REMOTE_GPU;
	struct pci remote = { .domain = 0 };
	char bus[16];
	if (a->link_state(d, link, &active) != SUCCESS)
		return;
	if (active != 1) {
		h->gpus[i].down++;
		return;
	}
	bool typed = a->link_type && a->link_type(d, link, &type) == SUCCESS;
	if (typed && type == REMOTE_SWITCH) {
		h->gpus[i].ports++;
		return;
	}
	if ((typed && type != REMOTE_GPU) || !a->link_remote || a->link_remote(d, link, &remote) != SUCCESS)
		return;
	bus_of(&remote, bus);
	int j = gpu_at_bus(h, bus);
	if (j >= 0 && j != i)
		h->lanes[i * h->n + j]++;
	else if (!typed && j < 0)
		h->gpus[i].ports++; /* to no GPU of this host: older drivers tell a switch so */
}

/* A link has two ends: what only one of them tells is not taken for one. */
static void agree(struct nvml_host *h)
{
	for (int i = 0; i < h->n; i++)
		for (int j = i + 1; j < h->n; j++) {
			int *to = &h->lanes[i * h->n + j], *back = &h->lanes[j * h->n + i];
			*to = *back = *to < *back ? *to : *back;
		}
}

static void read_peers(const struct api *a, const device_t *d, struct nvml_host *h)
{
	for (int i = 0; a->p2p && i < h->n; i++)
		for (int j = i + 1; j < h->n; j++) {
			unsigned status = P2P_UNKNOWN;
			h->cut += a->p2p(d[i], d[j], P2P_READ, &status) == SUCCESS && status != P2P_OK && status < P2P_UNKNOWN;
		}
}

/* All GPUs must be of one clique, and the cluster's UUID is not all zero: that is what a host of its own says. */
static void read_fabric(const struct api *a, const device_t *d, struct nvml_host *h)
{
	static const unsigned char none[16];
	char text[NVML_FABRIC], first[NVML_FABRIC] = "";
	for (int i = 0; a->fabric && i < h->n; i++) {
		struct fabric f = { .version = FABRIC_VERSION };
		if (a->fabric(d[i], &f) != SUCCESS || f.state != FABRIC_COMPLETED || f.status != SUCCESS || !memcmp(f.cluster, none, sizeof none))
			return;
		for (int b = 0; b < 16; b++)
			snprintf(text + 2 * b, 3, "%02x", f.cluster[b]);
		snprintf(text + 32, sizeof text - 32, ".%u", f.clique);
		if (i && strcmp(first, text))
			return;
		memcpy(first, text, sizeof first);
	}
	memcpy(h->fabric, first, sizeof first);
}

static int read_all(const struct api *a, struct nvml_host *h, struct err *e)
{
	unsigned n = 0;
	device_t devices[NVML_GPUS_MOST] = { NULL };
	int code = a->count(&n);
	if (code != SUCCESS)
		return failed(a, "number of GPUs", code, e);
	if (!n)
		return err_set(e, ERR_NOTFOUND, "NVIDIA driver: names no GPU that this process may use");
	if (n > NVML_GPUS_MOST)
		return err_set(e, ERR_UNSUPPORTED, "NVIDIA driver: names %u GPUs, more than the %d that muster takes", n, NVML_GPUS_MOST);
	h->gpus = calloc(n, sizeof *h->gpus);
	h->lanes = calloc((size_t)n * n, sizeof *h->lanes);
	if (!h->gpus || !h->lanes)
		return err_set(e, ERR_NOMEM, "NVIDIA driver: no memory for %u GPUs", n);
	for (unsigned i = 0; i < n; i++) {
		struct err why = ERR_INIT;
		if (!read_gpu(a, i, &devices[h->n], &h->gpus[h->n], &why))
			h->n++;
		else if (!h->lost++)
			snprintf(h->trouble, sizeof h->trouble, "%.*s", (int)sizeof h->trouble - 1, why.text);
	}
	if (!h->n)
		return err_set(e, ERR_UNSUPPORTED, "%s", h->trouble);
	for (int i = 0; a->link_state && i < h->n; i++)
		for (unsigned link = 0; link < NVML_LINKS_MOST; link++)
			read_link(a, devices[i], link, i, h);
	agree(h);
	read_peers(a, devices, h);
	read_fabric(a, devices, h);
	return 0;
}

/* Whether the list names it, by its number or by how its UUID begins; "-1" ends the list, as it does CUDA's. -1: it is no list of such. */
static int names(const char *list, const struct nvml_gpu *g)
{
	int found = 0;
	for (const char *at = list;; at++) {
		size_t len = strcspn(at, ","), digits = strspn(at, "0123456789");
		if (digits && digits == len)
			found |= strtol(at, NULL, 10) == g->index;
		else if (len > 4 && !strncmp(at, "GPU-", 4))
			found |= !strncmp(at, g->uuid, len);
		else
			return len == 2 && !strncmp(at, "-1", 2) ? found : -1;
		at += len;
		if (!*at)
			return found;
	}
}

int nvml_keep(struct nvml_host *h, const char *visible)
{
	int kept = 0, old[NVML_GPUS_MOST];
	if (!visible || !h->n || names(visible, &h->gpus[0]) < 0)
		return 0;
	for (int i = 0; i < h->n; i++)
		if (names(visible, &h->gpus[i]))
			old[kept++] = i;
	for (int i = 0; i < kept; i++)
		h->gpus[i] = h->gpus[old[i]];
	/* Rows and columns move to the front, so that none is read after it was written. */
	for (int i = 0; i < kept; i++)
		for (int j = 0; j < kept; j++)
			h->lanes[i * kept + j] = h->lanes[old[i] * h->n + old[j]];
	h->n = kept;
	return kept ? 0 : -1;
}

int nvml_read(const char *library, struct nvml_host *out, struct err *e)
{
	struct api a;
	struct nvml_host h = { .n = 0 };
	if (load(library, &a, e))
		return -1;
	int code = a.init(), rc = code == SUCCESS ? 0 : failed(&a, "start", code, e);
	if (!rc) {
		rc = read_all(&a, &h, e);
		a.shutdown();
	}
	dlclose(a.library);
	if (rc)
		nvml_free(&h);
	else
		*out = h;
	return rc;
}

void nvml_free(struct nvml_host *h)
{
	free(h->gpus);
	free(h->lanes);
	*h = (struct nvml_host){ 0 };
}
