/*
 * probe: this host with its devices: the driver reports GPUs and NVLinks, hwloc the PCI tree.
 *
 * NVLink's rate per lane and direction is the GPU model's (gpus.h); for an unknown model it is the
 * architecture's.
 */
#include "topo/discover/internal.h"

#include "base/human.h"
#include "topo/gpus.h"
#include "topo/internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Appends to the list of what is unknown. Text that does not fit is cut. */
static void __attribute__((format(printf, 2, 3))) unsaid(struct node_kind *k, const char *fmt, ...)
{
	size_t len = strlen(k->unsaid);
	va_list ap;
	if (len && len + 2 < sizeof k->unsaid) {
		strcpy(k->unsaid + len, "; ");
		len += 2;
	}
	va_start(ap, fmt);
	vsnprintf(k->unsaid + len, sizeof k->unsaid - len, fmt, ap);
	va_end(ap);
}

static const struct gpu_model *model_of(const struct nvml_gpu *g)
{
	const struct gpu_model *m = topo_gpu_of_driver_name(g->name);
	if (!m)
		m = topo_gpu_of_pci(g->vendor, g->id);
	return m ? m : topo_gpu_of_arch(PCI_NVIDIA, g->arch);
}

/* The rate of one lane. For an unknown model the compute capability gives the generation: NVLink 1
 * has 20 GB/s per lane, 2 to 4 have 25, 5 has 50. */
static double lane_rate(const struct nvml_gpu *g, const struct gpu_model *m)
{
	if (m && m->lane > 0)
		return m->lane;
	return g->arch >= 100 ? 50e9 : g->arch >= 70 ? 25e9 : 20e9;
}

static void name_devices(const struct nvml_host *h, struct node_kind *k)
{
	const struct nvml_gpu *g = &h->gpus[0];
	const struct gpu_model *m = model_of(g);
	if (m)
		topo_gpu_fill(m, k);
	else
		snprintf(k->device, sizeof k->device, "%s", *g->name ? g->name : "GPU");
	k->device_memory = m ? m->memory : 0;
	for (int i = 0; i < h->n; i++) {
		double memory = h->gpus[i].memory;
		if (memory > 0 && (!i || memory < k->device_memory))
			k->device_memory = memory;
		if (!i || !strcmp(h->gpus[i].name, g->name))
			continue;
		unsaid(k, "the performance data of GPU%d, which is another model: %s",
		       h->gpus[i].index, h->gpus[i].name);
		break;
	}
	if (!m) {
		k->device_flops = k->device_bandwidth = 0;
		unsaid(k, "the compute rate and memory bandwidth of this GPU model, which "
			  "muster does not know");
	}
}

/* Lists the faults that the driver reports. */
static void name_troubles(const struct nvml_host *h, struct node_kind *k)
{
	int down = 0;
	for (int i = 0; i < h->n; i++)
		down += h->gpus[i].down;
	if (h->lost)
		unsaid(k, "%d GPU%s that did not answer: %s", h->lost, human_s(h->lost),
		       h->trouble);
	if (down)
		unsaid(k, "%d NVLink%s that %s down", down, human_s(down),
		       down == 1 ? "is" : "are");
	if (h->cut)
		unsaid(k, "peer access between %d pair%s of GPUs", h->cut, human_s(h->cut));
}

static struct topo_link nvlink(const struct nvml_host *h, int i, int j)
{
	double lane = lane_rate(&h->gpus[i], model_of(&h->gpus[i]));
	int ports = h->gpus[i].ports < h->gpus[j].ports ? h->gpus[i].ports : h->gpus[j].ports,
	    direct = h->lanes[i * h->n + j];
	if (i == j)
		return (struct topo_link){ .kind = LINK_SELF };
	if (ports)
		return (struct topo_link){ .kind = LINK_NVSWITCH,
					   .lanes = ports,
					   .bandwidth = ports * lane,
					   .latency = topo_link_latency(LINK_NVSWITCH) };
	if (direct)
		return (struct topo_link){ .kind = LINK_NVLINK,
					   .lanes = direct,
					   .bandwidth = direct * lane,
					   .latency = topo_link_latency(LINK_NVLINK) };
	return (struct topo_link){ .kind = LINK_UNKNOWN };
}

static void name_instances(const struct nvml_host *h, struct node_kind *k)
{
	for (int i = 0; i < h->n; i++)
		if (h->gpus[i].mig) {
			unsaid(k,
			       "GPU%d is partitioned (MIG), %d instance%s: CUDA shows a process "
			       "one of "
			       "all of them, so one agent a node "
			       "computes",
			       h->gpus[i].index, h->gpus[i].n_instances,
			       human_s(h->gpus[i].n_instances));
			return;
		}
}

static void fill_parts(const struct nvml_host *h, struct node_kind *k)
{
	k->switched = h->n > 1;
	for (int i = 0; i < h->n; i++) {
		const struct nvml_gpu *g = &h->gpus[i];
		k->parts[i] = (struct topo_device){ .numa = -1,
						    .nic = -1,
						    .pcie = g->pcie,
						    .pcie_width = g->pcie_width,
						    .nvlink = g->nvlink,
						    .mig = g->mig };
		snprintf(k->parts[i].name, sizeof k->parts[i].name, "GPU%d", h->gpus[i].index);
		snprintf(k->parts[i].bus, sizeof k->parts[i].bus, "%s", h->gpus[i].bus);
		k->switched &= h->gpus[i].ports > 0;
		for (int j = 0; j < h->n; j++)
			k->links[i * h->n + j] = nvlink(h, i, j);
	}
}

/* Sets the node's link and network rates from its links and NICs. */
static void fill_totals(struct node_kind *k)
{
	double net = 0;
	k->link_bandwidth = k->link_latency = 0;
	for (int i = 0; i < k->devices * k->devices; i++)
		if (k->links[i].bandwidth > k->link_bandwidth) {
			k->link_bandwidth = k->links[i].bandwidth;
			k->link_latency = k->links[i].latency;
		}
	for (int i = 0; i < k->n_nics; i++)
		net += k->nics[i].bandwidth;
	if (net > 0)
		k->net_bandwidth = net / k->devices;
}

static int gpus_of_host(const struct nvml_host *h, struct node_kind *k, struct err *e)
{
	if (topo_kind_of_host(h->n, k, e))
		return -1;
	k->parts = calloc((size_t)h->n, sizeof *k->parts);
	k->links = calloc((size_t)h->n * (size_t)h->n, sizeof *k->links);
	if (!k->parts || !k->links)
		return err_set(e, ERR_NOMEM, "this host: no memory for %d GPUs", h->n);
	name_devices(h, k);
	name_troubles(h, k);
	name_instances(h, k);
	fill_parts(h, k);
	if (topo_pci_fill(k, e))
		return -1;
	fill_totals(k);
	for (int i = 0; i < h->n; i++)
		if (!*k->parts[i].cpus) {
			unsaid(k, "where GPUs and adapters hang: hwloc shows no such PCI devices "
				  "(Debian's libhwloc-plugins brings them)");
			break;
		}
	return 0;
}

int topo_probe_kind(const char *library, struct node_kind *out, char fabric[NVML_FABRIC],
		    struct err *e)
{
	struct nvml_host h = { .n = 0 };
	struct node_kind k = { .devices = 0 };
	struct err why = ERR_INIT;
	int rc;
	fabric[0] = '\0';
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");
	if (!topo_nvml_read(library, &h, &why) && topo_nvml_keep(&h, visible)) {
		topo_nvml_free(&h);
		err_set(&why, ERR_UNSUPPORTED,
			visible && *visible ? "CUDA_VISIBLE_DEVICES names none that is here"
					    : "CUDA_VISIBLE_DEVICES is empty, which gives none");
	}
	if (h.n) {
		rc = gpus_of_host(&h, &k, e);
		memcpy(fabric, h.fabric, NVML_FABRIC);
		topo_nvml_free(&h);
	} else {
		rc = topo_kind_of_host(0, &k, e);
		if (!rc && why.code != ERR_NOTFOUND)
			unsaid(&k, "GPUs: %s", why.text);
		rc = rc ? rc : topo_pci_fill(&k, e);
	}
	if (rc)
		topo_kind_free(&k);
	else
		*out = k;
	return rc;
}

int topo_cluster_probe_local(const char *library, struct cluster *out, char fabric[NVML_FABRIC],
			     struct err *e)
{
	struct cluster c;
	if (topo_cluster_alloc("local", 1, 1, &c, e))
		return -1;
	if (topo_probe_kind(library, &c.kinds[0], fabric, e)) {
		topo_cluster_free(&c);
		return -1;
	}
	if (c.kinds[0].parts)
		snprintf(c.figures, sizeof c.figures,
			 "the driver and hwloc on this host; the rates of its device "
			 "model");
	if (gethostname(c.nodes[0].name, sizeof c.nodes[0].name - 1))
		snprintf(c.nodes[0].name, sizeof c.nodes[0].name, "localhost");
	*out = c;
	return 0;
}

int topo_cluster_probe(const char *spec, bool fresh, struct cluster *out, struct err *e)
{
	char fabric[NVML_FABRIC];
	if (!*spec || !strcmp(spec, "auto"))
		spec = getenv("SLURM_JOB_ID") ? "slurm" : "local";
	if (!strcmp(spec, "slurm"))
		return topo_cluster_of_nodes(fresh, out, e);
	if (!strcmp(spec, "local"))
		return topo_cluster_probe_local(NVML_LIBRARY, out, fabric, e);
	return topo_cluster_open(spec, 0, out, e);
}

int topo_cluster_report(struct buf *out, struct err *e)
{
	char fabric[NVML_FABRIC];
	struct cluster c;
	if (topo_cluster_probe_local(NVML_LIBRARY, &c, fabric, e))
		return -1;
	int rc = topo_report_print(&c, fabric, out, e);
	topo_cluster_free(&c);
	return rc;
}
