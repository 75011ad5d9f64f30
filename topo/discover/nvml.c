#include "topo/discover/nvml.h"

#include "topo/discover/nvml_api.h"
#include "topo/discover/visible.h"
#include "topo/read/found.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FABRIC_VERSION NVML_VERSION(struct nvml_fabric, 2)

/* Reads the MIG instances of a GPU in MIG mode. These calls accept an instance's handle like a
 * GPU's. */
static void read_instances(const struct nvml_api *a, nvml_device_t d, struct nvml_gpu *g)
{
	unsigned now = NVML_OFF, next, most = 0;
	if (!a->mig || a->mig(d, &now, &next) != NVML_OK || now != NVML_ON)
		return;
	g->mig = true;
	if (!a->mig_most || !a->mig_handle || a->mig_most(d, &most) != NVML_OK)
		return;
	for (unsigned i = 0; i < most && i < NVML_INSTANCES_MAX; i++) {
		struct nvml_instance *in = &g->instances[g->n_instances];
		struct nvml_memory memory = { 0 };
		nvml_device_t part;
		if (a->mig_handle(d, i, &part) != NVML_OK)
			continue;
		if (!a->uuid || a->uuid(part, in->uuid, sizeof in->uuid - 1) != NVML_OK)
			in->uuid[0] = '\0';
		in->uuid[sizeof in->uuid - 1] = '\0';
		if (a->memory(part, &memory) == NVML_OK)
			in->memory = (double)memory.total;
		g->n_instances++;
	}
}

static int figure_of(nvml_code_t (*call)(nvml_device_t, unsigned *), nvml_device_t d, unsigned most)
{
	unsigned n = 0;
	return call && call(d, &n) == NVML_OK && n <= most ? (int)n : 0;
}

static int read_gpu(const struct nvml_api *a, unsigned index, nvml_device_t *d, struct nvml_gpu *g,
		    struct err *e)
{
	struct nvml_pci pci = { .domain = 0 };
	struct nvml_memory memory = { 0 };
	char name[128] = "", what[48];
	nvml_code_t code = a->handle(index, d);
	int major = 0, minor = 0;
	snprintf(what, sizeof what, "GPU %u", index);
	if (code == NVML_OK)
		code = a->pci(*d, &pci);
	if (code != NVML_OK)
		return topo_nvml_failed(a, what, code, e);
	topo_nvml_bus(&pci, g->bus);
	g->index = (int)index;
	g->vendor = (int)(pci.id & 0xffff);
	g->id = (int)(pci.id >> 16);
	if (a->name(*d, name, sizeof name - 1) != NVML_OK)
		name[0] = '\0';
	name[sizeof name - 1] = '\0';
	topo_found_text(g->name, sizeof g->name, name);
	if (!a->uuid || a->uuid(*d, g->uuid, sizeof g->uuid - 1) != NVML_OK)
		g->uuid[0] = '\0';
	g->uuid[sizeof g->uuid - 1] = '\0';
	if (a->memory(*d, &memory) == NVML_OK)
		g->memory = (double)memory.total;
	if (a->capability && a->capability(*d, &major, &minor) == NVML_OK && major > 0 &&
	    major < 1000 && minor >= 0 && minor < 10)
		g->arch = 10 * major + minor;
	g->pcie = figure_of(a->pcie_most, *d, PCIE_MAX);
	g->pcie_width = figure_of(a->pcie_width_most, *d, PCIE_WIDTH_MAX);
	read_instances(a, *d, g);
	return 0;
}

static int gpu_at_bus(const struct nvml_host *h, const char *bus)
{
	for (int i = 0; i < h->n; i++)
		if (!strcmp(h->gpus[i].bus, bus))
			return i;
	return -1;
}

/* Counts one link of GPU i. It leads to a switch or to another GPU. If the driver does not report
 * the type, the address of the other end decides. */
static void read_link(const struct nvml_api *a, nvml_device_t d, unsigned link, int i,
		      struct nvml_host *h)
{
	unsigned active = 0, type = NVML_PEER_GPU, version = 0;
	struct nvml_pci remote = { .domain = 0 };
	char bus[16];
	if (a->link_state(d, link, &active) != NVML_OK)
		return;
	if (active != 1) {
		h->gpus[i].down++;
		return;
	}
	if (!h->gpus[i].nvlink && a->link_version && a->link_version(d, link, &version) == NVML_OK)
		h->gpus[i].nvlink = topo_nvml_generation(version);
	bool typed = a->link_type && a->link_type(d, link, &type) == NVML_OK;
	if (typed && type == NVML_PEER_SWITCH) {
		h->gpus[i].ports++;
		return;
	}
	if ((typed && type != NVML_PEER_GPU) || !a->link_remote ||
	    a->link_remote(d, link, &remote) != NVML_OK)
		return;
	topo_nvml_bus(&remote, bus);
	int j = gpu_at_bus(h, bus);
	if (j >= 0 && j != i)
		h->lanes[i * h->n + j]++;
	else if (!typed && j < 0)
		h->gpus[i].ports++; /* not a GPU of this host: older drivers report a switch so */
}

/* A link counts only if both of its ends report it. */
static void peers_agree(struct nvml_host *h)
{
	for (int i = 0; i < h->n; i++)
		for (int j = i + 1; j < h->n; j++) {
			int *to = &h->lanes[i * h->n + j], *back = &h->lanes[j * h->n + i];
			*to = *back = *to < *back ? *to : *back;
		}
}

static void read_peers(const struct nvml_api *a, const nvml_device_t *d, struct nvml_host *h)
{
	for (int i = 0; a->p2p && i < h->n; i++)
		for (int j = i + 1; j < h->n; j++) {
			unsigned status = NVML_P2P_UNTOLD;
			h->cut += a->p2p(d[i], d[j], NVML_P2P_READ, &status) == NVML_OK &&
				  status != NVML_P2P_FINE && status < NVML_P2P_UNTOLD;
		}
}

/* Sets the host's fabric. All GPUs must be in one clique, and the cluster's UUID must not be all
 * zeros, which means that the host is not part of a multi-node fabric. */
static void read_fabric(const struct nvml_api *a, const nvml_device_t *d, struct nvml_host *h)
{
	static const unsigned char none[16];
	char text[NVML_FABRIC], first[NVML_FABRIC] = "";
	for (int i = 0; a->fabric && i < h->n; i++) {
		struct nvml_fabric f = { .version = FABRIC_VERSION };
		if (a->fabric(d[i], &f) != NVML_OK || f.state != NVML_JOINED ||
		    f.status != NVML_OK || !memcmp(f.cluster, none, sizeof none))
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

static int read_all(const struct nvml_api *a, struct nvml_host *h, struct err *e)
{
	unsigned n = 0;
	nvml_device_t devices[NVML_GPUS_MAX] = { NULL };
	nvml_code_t code = a->count(&n);
	if (code != NVML_OK)
		return topo_nvml_failed(a, "number of GPUs", code, e);
	if (!n)
		return err_set(e, ERR_NOTFOUND,
			       "NVIDIA driver: shows no GPU that this process may use");
	if (n > NVML_GPUS_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "NVIDIA driver: shows %u GPUs, more than the limit of %d", n,
			       NVML_GPUS_MAX);
	h->gpus = calloc(n, sizeof *h->gpus);
	h->lanes = calloc((size_t)n * n, sizeof *h->lanes);
	if (!h->gpus || !h->lanes)
		return err_set(e, ERR_NOMEM, "NVIDIA driver: no memory for %u GPUs", n);
	for (unsigned i = 0; i < n; i++) {
		struct err why = ERR_INIT;
		if (!read_gpu(a, i, &devices[h->n], &h->gpus[h->n], &why))
			h->n++;
		else if (!h->lost++)
			snprintf(h->trouble, sizeof h->trouble, "%.*s", (int)sizeof h->trouble - 1,
				 why.text);
	}
	if (!h->n)
		return err_set(e, ERR_UNSUPPORTED, "%s", h->trouble);
	for (int i = 0; a->link_state && i < h->n; i++)
		for (unsigned link = 0; link < NVML_LINKS_MAX; link++)
			read_link(a, devices[i], link, i, h);
	peers_agree(h);
	read_peers(a, devices, h);
	read_fabric(a, devices, h);
	return 0;
}

int topo_nvml_keep(struct nvml_host *h, const char *visible)
{
	struct gpu_id ids[NVML_GPUS_MAX];
	int old[NVML_GPUS_MAX], part[NVML_GPUS_MAX];
	for (int i = 0; i < h->n; i++)
		ids[i] = (struct gpu_id){ .index = h->gpus[i].index,
					  .uuid = h->gpus[i].uuid,
					  .instances = h->gpus[i].instances,
					  .n_instances = h->gpus[i].n_instances };
	int kept = topo_visible_select(visible, ids, h->n, old, part), n = h->n;
	struct nvml_gpu *gpus = calloc((size_t)n + 1, sizeof *gpus);
	int *lanes = calloc((size_t)n * (size_t)n + 1, sizeof *lanes);
	if (!gpus || !lanes)
		kept = 0;
	for (int i = 0; i < kept; i++) {
		gpus[i] = h->gpus[old[i]];
		if (part[i] >= 0)
			gpus[i].memory = gpus[i].instances[part[i]].memory;
		for (int j = 0; j < kept; j++)
			lanes[i * kept + j] = h->lanes[old[i] * n + old[j]];
	}
	free(h->gpus);
	free(h->lanes);
	h->gpus = gpus;
	h->lanes = lanes;
	h->n = gpus && lanes ? kept : 0;
	return h->n ? 0 : -1;
}

int topo_nvml_read(const char *library, struct nvml_host *out, struct err *e)
{
	struct nvml_api a;
	struct nvml_host h = { .n = 0 };
	if (topo_nvml_open(library, &a, e))
		return -1;
	int rc = read_all(&a, &h, e);
	topo_nvml_close(&a);
	if (rc)
		topo_nvml_free(&h);
	else
		*out = h;
	return rc;
}

void topo_nvml_free(struct nvml_host *h)
{
	free(h->gpus);
	free(h->lanes);
	*h = (struct nvml_host){ 0 };
}
