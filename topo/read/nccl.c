/*
 * nccl: reads the topology XML of NCCL and RCCL, which NCCL_TOPO_DUMP_FILE writes and
 * NCCL_TOPO_FILE reads (src/graph/xml.cc of both).
 *
 *     <system>
 *       <cpu>             a NUMA domain: numaid, affinity, host_hash
 *         <pci>           busid, class, link_speed, link_width; a <pci> may contain others.
 *                         Class 0x0604 is a switch, whose ports are not listed
 *           <gpu>         dev, sm (compute capability); gcn for AMD
 *             <nvlink>    or <xgmi>: target, count, tclass (the target's class)
 *           <nic>
 *             <net>       name, speed in Mb/s
 *
 * A dump contains the links. A file that a person wrote for NCCL_TOPO_FILE has no <gpu>, because
 * NCCL then takes NVLinks from the driver; what such a machine has is assumed (assume.h).
 */
#include "topo/read/nccl.h"

#include "topo/read/assume.h"
#include "topo/read/found.h"
#include "topo/read/nics.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SPEED_MAX = 10000000 }; /* Mb/s of a NIC: a larger number is in another unit */

struct host_reader {
	struct found_node *m;
	const char *file, *text, *host;
	int domains[MACHINE_NUMA];                   /* places; -1: none yet */
	const struct xml *elements[MACHINE_DEVICES]; /* <gpu> of each GPU, or NULL */
	/* the processor is Arm: NVIDIA Grace, whose GPUs are other models */
	bool arm;
	bool circular; /* a link leads to its own GPU */
	bool any_gpu;  /* there is a <gpu>, so the file is a dump and has the links */
	struct err *e;
};

bool topo_nccl_of_host(const struct xml *cpu, const char *host)
{
	const char *own = topo_xml_get(cpu, "host_hash");
	return !strcmp(own ? own : "", host);
}

static const char *attribute(const struct xml *x, const char *name)
{
	const char *v = topo_xml_get(x, name);
	return v ? v : "";
}

static int refuse_element(const struct host_reader *r, const struct xml *x, const char *why)
{
	return err_set(r->e, ERR_USAGE, "%s:%d: <%.20s>: %s", r->file, x->line, x->name, why);
}

/* The payload of a link such as "16 GT/s" or "32.0 GT/s PCIe" × 16 lanes. Generations 1 and 2 lose
 * a fifth to encoding, later ones 2 bits in 130. */
static double link_payload(const struct xml *pci)
{
	double rate = strtod(attribute(pci, "link_speed"), NULL),
	       width = strtod(attribute(pci, "link_width"), NULL);
	if (!(rate > 0 && rate < 1000 && width > 0 && width <= 64))
		return 0;
	return topo_found_payload(rate * 1e9 / 8 * width * (rate < 8 ? 0.8 : 128.0 / 130));
}

static unsigned hex_value(const struct xml *x, const char *name)
{
	return (unsigned)(strtoul(attribute(x, name), NULL, 16) & 0xffffff);
}

/* The architecture of a gcn attribute: "910" and "gfx90a:sramecc+" are 0x90a; "940" and "gfx942"
 * are 0x942. */
static int gcn_of(const char *text)
{
	static const struct {
		long from, to;
	} old[] = { { 0x910, 0x90a }, { 0x940, 0x942 }, { 0x941, 0x942 } };
	long v = strtol(!strncmp(text, "gfx", 3) ? text + 3 : text, NULL, 16);
	for (size_t i = 0; i < sizeof old / sizeof *old; i++)
		if (v == old[i].from)
			return (int)old[i].to;
	return v > 0 && v < 0x10000 ? (int)v : 0;
}

static const struct gpu_model *model_of(struct host_reader *r, const struct xml *pci,
					const struct xml *gpu, struct found_gpu *g)
{
	unsigned vendor = hex_value(pci, "vendor"), device = hex_value(pci, "device");
	const struct gpu_model *m = topo_gpu_of_pci((int)vendor, (int)device);
	const char *gcn = gpu ? topo_xml_get(gpu, "gcn") : NULL;
	int arch = gcn ? gcn_of(gcn) : gpu ? atoi(attribute(gpu, "sm")) : 0;
	bool usual = !vendor || vendor == 0xffff || vendor == PCI_NVIDIA || vendor == PCI_AMD;
	if (!m && arch > 0 && usual) {
		const char *grace = !r->arm || gcn ? NULL
				    : arch == 90   ? "GH200-96GB"
				    : arch == 100  ? "GB200-186GB"
				    : arch == 103  ? "GB300-288GB"
						   : NULL;
		m = grace ? topo_gpu_of_name(grace)
			  : topo_gpu_of_arch(gcn ? PCI_AMD : PCI_NVIDIA, arch);
		if (m)
			topo_found_add_unknown(r->m, "the GPUs' exact model: it is taken for the "
						     "commonest of its architecture");
	}
	if (!m) {
		if (vendor && device && vendor != 0xffff)
			snprintf(g->label, sizeof g->label, "GPU %04x:%04x", vendor, device);
		else if (gcn)
			snprintf(g->label, sizeof g->label, "AMD gfx%x", arch);
		else if (arch)
			snprintf(g->label, sizeof g->label, "NVIDIA sm_%d", arch);
		if (g->label[0])
			topo_found_add_unknown(r->m,
					       "which GPUs these are, their memory and rates");
	}
	g->vendor = m                            ? m->vendor
		    : vendor && vendor != 0xffff ? (int)vendor
		    : gcn                        ? PCI_AMD
		    : arch                       ? PCI_NVIDIA
						 : 0;
	return m;
}

static int add_gpu(struct host_reader *r, const struct xml *pci, const struct xml *gpu, int place,
		   int numa, const char *cpus)
{
	struct found_gpu g = {
		.place = place, .numa = numa, .order = -1, .pcie = link_payload(pci)
	};
	topo_found_bus(attribute(pci, "busid"), g.bus);
	topo_found_mask(cpus, g.cpus);
	g.model = model_of(r, pci, gpu, &g);
	if (gpu && topo_xml_get(gpu, "dev"))
		g.order = atoi(topo_xml_get(gpu, "dev"));
	int added = topo_found_add_gpu(r->m, &g, r->e);
	if (added < 0)
		return -1;
	r->elements[added] = gpu;
	r->any_gpu = r->any_gpu || gpu;
	return 0;
}

static double latency_of(const struct xml *pci)
{
	double unused, latency;
	topo_nic_figures(pci ? hex_value(pci, "class") >> 8 : 0x0200,
			 pci ? hex_value(pci, "vendor") : 0, pci ? hex_value(pci, "device") : 0, 0,
			 &unused, &latency);
	return latency;
}

/* Whether a port that is not a PCI device has been read before. In a container it is listed below
 * every CPU, although it is only one. */
static bool stood_before(struct host_reader *r, const char *name)
{
	for (int i = 0; i < r->m->n_nics; i++)
		if (!r->m->nics[i].bus[0] && !strcmp(r->m->nics[i].name, name)) {
			r->m->nics[i].place = r->m->nics[i].numa = -1;
			topo_found_add_unknown(r->m, "where some network adapters are");
			return true;
		}
	return false;
}

/* Adds a port through which NCCL sends. */
static int add_net(struct host_reader *r, const struct xml *pci, const struct xml *net, int place,
		   int numa)
{
	struct found_nic n = { .place = place, .numa = numa, .latency = latency_of(pci) };
	double mbits = strtod(attribute(net, "speed"), NULL);
	topo_found_bus(pci ? attribute(pci, "busid") : "", n.bus);
	topo_found_text(n.name, sizeof n.name, attribute(net, "name"));
	if (!pci && n.name[0] && stood_before(r, n.name))
		return 0;
	if (!strncmp(n.name, "mlx", 3))
		n.latency = NIC_INFINIBAND_LATENCY; /* possibly Ethernet, but with RoCE */
	if (mbits > 0 && mbits <= SPEED_MAX)
		n.bandwidth = mbits * 1e6 / 8;
	else
		topo_found_add_unknown(r->m, "speeds of some network adapters");
	return topo_found_add_nic(r->m, &n, r->e) < 0 ? -1 : 0;
}

/* Adds a PCI device that is a NIC by its class; its ports have no names. */
static int add_unnamed(struct host_reader *r, const struct xml *pci, int place, int numa)
{
	struct found_nic n = { .place = place, .numa = numa };
	topo_found_bus(attribute(pci, "busid"), n.bus);
	topo_nic_figures(hex_value(pci, "class") >> 8, hex_value(pci, "vendor"),
			 hex_value(pci, "device"), link_payload(pci), &n.bandwidth, &n.latency);
	topo_found_add_unknown(r->m, n.bandwidth > 0 ? "the network adapters' names"
						     : "the network adapters' names and speeds");
	return topo_found_add_nic(r->m, &n, r->e) < 0 ? -1 : 0;
}

/* Adds one NIC for each port in a <nic>. pci: the device that contains it, or NULL. */
static int add_nic(struct host_reader *r, const struct xml *pci, const struct xml *nic, int place,
		   int numa)
{
	const struct xml *net = topo_xml_child(nic->first, "net");
	if (!net && pci)
		return add_unnamed(r, pci, place, numa);
	for (; net; net = topo_xml_child(net->next, "net"))
		if (add_net(r, pci, net, place, numa))
			return -1;
	return 0;
}

/* Platforms whose files leave out the class, because the driver knows it, but whose slots are
 * known. In the file "g5.48xlarge" of AWS's documentation the eight GPUs start at 00:16; the other
 * device is the EFA NIC. */
static const struct platform {
	const char *name, *gpu;
	unsigned first, last; /* PCI device numbers of GPUs */
} platforms[] = { { "g5.48xlarge", "A10G", 0x16, 0x1d } };

static int add_by_platform(struct host_reader *r, const struct xml *pci, int place, int numa,
			   const char *cpus)
{
	const char *bus = attribute(pci, "busid");
	unsigned domain, b, device = 0;
	const struct platform *p = NULL;
	for (size_t i = 0; i < sizeof platforms / sizeof *platforms; i++)
		if (strstr(r->text, platforms[i].name))
			p = &platforms[i];
	if (!p || sscanf(bus, "%8x:%2x:%2x", &domain, &b, &device) != 3)
		return refuse_element(
			r, pci,
			"it has no class, so the file does not say whether it is a GPU or a "
			"network adapter; write class=\"0x030200\" "
			"(GPU) or class=\"0x020000\" (adapter)");
	topo_found_add_unknown(r->m,
			       "what its PCI devices are (they have no class): they are taken "
			       "for those of the platform it names");
	if (device < p->first || device > p->last)
		return add_unnamed(r, pci, place, numa);
	struct found_gpu g = { .place = place,
			       .numa = numa,
			       .order = -1,
			       .pcie = link_payload(pci),
			       .vendor = PCI_NVIDIA,
			       .model = topo_gpu_of_name(p->gpu) };
	topo_found_bus(bus, g.bus);
	topo_found_mask(cpus, g.cpus);
	return topo_found_add_gpu(r->m, &g, r->e) < 0 ? -1 : 0;
}

/* Adds the device that a PCI element is: a GPU or NICs, by the elements in it or by its class. */
static int add_device(struct host_reader *r, const struct xml *pci, int above, int numa,
		      const char *cpus)
{
	unsigned class = hex_value(pci, "class") >> 8;
	const struct xml *gpu = topo_xml_child(pci->first, "gpu"),
			 *nic = topo_xml_child(pci->first, "nic");
	if (gpu && add_gpu(r, pci, gpu, above, numa, cpus))
		return -1;
	for (const struct xml *n = nic; n; n = topo_xml_child(n->next, "nic"))
		if (add_nic(r, pci, n, above, numa))
			return -1;
	if (gpu || nic)
		return 0;
	if (!topo_xml_get(pci, "class"))
		return topo_xml_child(pci->first, "pci")
			       ? 0
			       : add_by_platform(r, pci, above, numa, cpus);
	/* NCCL itself writes the short classes 0x03 and 0x02 for devices that it cannot query. */
	if (class >> 8 == 0x03 || class == 0x1200 || hex_value(pci, "class") == 0x03)
		return add_gpu(r, pci, NULL, above, numa, cpus);
	if (class >> 8 == 0x02 || class == 0x0c06 || hex_value(pci, "class") == 0x02)
		return add_unnamed(r, pci, above, numa);
	return 0;
}

/* A PCI element that contains others is a switch. If it is a device too, the device is below the
 * switch, next to the others. */
static int add_pci(struct host_reader *r, const struct xml *pci, int above, int numa,
		   const char *cpus)
{
	const struct xml *inner = topo_xml_child(pci->first, "pci");
	int place = above;
	if (inner) {
		place = topo_found_add_place(r->m, FOUND_SWITCH, above, r->e);
		if (place < 0)
			return -1;
		r->m->places[place].bandwidth = link_payload(pci);
	}
	if (add_device(r, pci, place, numa, cpus))
		return -1;
	for (; inner; inner = topo_xml_child(inner->next, "pci"))
		if (add_pci(r, inner, place, numa, cpus))
			return -1;
	return 0;
}

/* Intel's processors until Cascade Lake (family 6, model 85) and AMD's before Rome (family 23, model
 * 49) have PCIe 3.0. */
static bool has_old_pcie(const struct xml *cpu)
{
	static const struct {
		const char *vendor;
		int family, below;
	} old[] = { { "GenuineIntel", 6, 86 }, { "AuthenticAMD", 23, 49 } };
	int family = atoi(attribute(cpu, "familyid")), model = atoi(attribute(cpu, "modelid"));
	for (size_t i = 0; i < sizeof old / sizeof *old; i++)
		if (!strcmp(attribute(cpu, "vendor"), old[i].vendor) && family == old[i].family &&
		    model > 0 && model < old[i].below)
			return true;
	return false;
}

static int add_cpu(struct host_reader *r, const struct xml *cpu)
{
	char *end;
	const char *id = attribute(cpu, "numaid");
	long numa = strtol(id, &end, 10);
	if (end == id || *end)
		return refuse_element(r, cpu,
				      "it has no numaid; NCCL writes one, -1 where there is none");
	if (numa < -1 || numa >= MACHINE_NUMA)
		return refuse_element(r, cpu, "its numaid is not the number of a NUMA domain");
	/* All devices of one domain meet at its host bridges. NCCL does not distinguish these, and
	 * calls the path PHB. */
	int *known = numa >= 0 ? &r->domains[numa] : NULL;
	int place = known && *known >= 0 ? *known : topo_found_add_place(r->m, FOUND_HOST, 0, r->e);
	if (place < 0)
		return -1;
	if (known)
		*known = place;
	if (numa >= r->m->numa)
		r->m->numa = (int)numa + 1;
	r->m->pcie_3 |= has_old_pcie(cpu);
	r->arm = !strcmp(attribute(cpu, "arch"), "arm64");
	for (const struct xml *c = cpu->first; c; c = c->next) {
		if (!strcmp(c->name, "pci") &&
		    add_pci(r, c, place, (int)numa, attribute(cpu, "affinity")))
			return -1;
		if (!strcmp(c->name, "nic") && add_nic(r, NULL, c, place, (int)numa))
			return -1;
	}
	return 0;
}

/* Second pass: adds the links, once all GPUs are known by their bus ids. */
struct bus_row {
	const char *bus;
	int gpu;
};

static int by_bus(const void *a, const void *b)
{
	const struct bus_row *x = a, *y = b;
	int c = strcmp(x->bus, y->bus);
	return c ? c : x->gpu - y->gpu;
}

static int add_link(struct host_reader *r, const struct bus_row *rows, int from,
		    const struct xml *x, enum link_kind kind)
{
	char bus[16];
	struct found_gpu *g = &r->m->gpus[from];
	long count = strtol(topo_xml_get(x, "count") ? topo_xml_get(x, "count") : "1", NULL, 10);
	unsigned tclass = hex_value(x, "tclass");
	double lane = g->model && g->model->lane > 0 ? g->model->lane : NVLINK_LANE;
	if (count < 1 || count > 1000)
		return refuse_element(r, x, "its count is not a number of links");
	if (tclass >> 8 == 0x0680) {
		/* 0x068001 is the POWER9 processor. */
		if (tclass & 0xff)
			return 0;
		g->port_lanes += (int)count;
		g->port = g->port_lanes * lane;
		return 0;
	}
	topo_found_bus(attribute(x, "target"), bus);
	const struct bus_row key = { bus, -1 };
	int low = 0, high = r->m->n_gpus;
	while (low < high) {
		int mid = (low + high) / 2;
		if (by_bus(&rows[mid], &key) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	/* The dump of a job that uses some of a node's GPUs still names the others. */
	if (low == r->m->n_gpus || strcmp(rows[low].bus, bus))
		return 0;
	if (rows[low].gpu == from) {
		topo_found_add_unknown(
			r->m, "where the direct links lead: it points them at their own GPU");
		r->circular = true;
		return 0;
	}
	const struct found_link l = { from, rows[low].gpu, kind, (int)count, (double)count * lane };
	return topo_found_add_link(r->m, &l, r->e) < 0 ? -1 : 0;
}

static int add_links(struct host_reader *r)
{
	struct bus_row *rows = calloc((size_t)r->m->n_gpus + 1, sizeof *rows);
	int result = 0;
	if (!rows)
		return err_set(r->e, ERR_NOMEM, "%s: no memory for its links", r->file);
	for (int i = 0; i < r->m->n_gpus; i++)
		rows[i] = (struct bus_row){ r->m->gpus[i].bus, i };
	qsort(rows, (size_t)r->m->n_gpus, sizeof *rows, by_bus);
	for (int i = 0; i < r->m->n_gpus && !result; i++)
		for (const struct xml *l = r->elements[i] ? r->elements[i]->first : NULL;
		     l && !result; l = l->next) {
			enum link_kind kind = !strcmp(l->name, "nvlink") ? LINK_NVLINK
					      : !strcmp(l->name, "xgmi") ? LINK_XGMI
									 : LINK_UNKNOWN;
			if (kind != LINK_UNKNOWN)
				result = add_link(r, rows, i, l, kind);
		}
	free(rows);
	return result;
}

/* A file without <gpu> leaves the links to the driver. */
static int assume_links(struct host_reader *r)
{
	if (r->any_gpu && (!r->circular || r->m->n_links))
		return 0;
	int known = topo_assume_links(r->m, r->circular, r->e);
	if (!known && !r->any_gpu)
		topo_found_add_unknown(r->m, "NVLink or xGMI links, which it leaves to the driver");
	return known < 0 ? -1 : 0;
}

static int read_host(struct host_reader *r, const struct xml *system, int devices,
		     struct node_kind *out)
{
	struct found_node *m = r->m;
	for (int i = 0; i < MACHINE_NUMA; i++)
		r->domains[i] = -1;
	if (topo_found_add_place(m, FOUND_MACHINE, -1, r->e) < 0)
		return -1;
	for (const struct xml *c = topo_xml_child(system->first, "cpu"); c;
	     c = topo_xml_child(c->next, "cpu"))
		if (topo_nccl_of_host(c, r->host) && add_cpu(r, c))
			return -1;
	if (!m->n_gpus)
		return refuse_element(
			r, system,
			"it names no GPU; dump it with NCCL_TOPO_DUMP_FILE from a job that "
			"uses them");
	topo_assume_models(m);
	if (add_links(r))
		return -1;
	if (assume_links(r))
		return -1;
	if (!m->n_nics)
		topo_found_add_unknown(m, "network adapters");
	topo_found_add_unknown(m, "cores and host memory");
	return topo_found_finish(m, devices, out, r->e);
}

int topo_nccl_host(const struct topo_text *in, const struct xml *system, const char *host,
		   struct node_kind *out, struct err *e)
{
	struct found_node m;
	struct host_reader *r = calloc(1, sizeof *r);
	if (!r)
		return err_set(e, ERR_NOMEM, "%s: no memory to read it", in->file);
	topo_found_init(&m, in->file);
	*r = (struct host_reader){
		.m = &m, .file = in->file, .text = in->text, .host = host, .e = e
	};
	int result = read_host(r, system, in->devices, out);
	topo_found_fini(&m);
	free(r);
	return result;
}
