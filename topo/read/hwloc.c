/*
 * hwloc: reads XML that hwloc wrote (lstopo FILE.xml, hwloc_topology_export_xml, PMIx's local
 * topology), versions 1, 2 and 3.
 *
 * It does not use hwloc's own loader, because hwloc 2, which Debian 12 has, refuses files of
 * version 3, and its errors name no line. It reads cores, NUMA nodes, PCIe bridges and devices, OS
 * devices, and the matrices of direct links (distances.c). The tests compare it with hwloc on
 * hwloc's synthetic machines.
 */
#include "topo/read/hwloc.h"

#include "base/hash.h"
#include "topo/read/nics.h"
#include "topo/read/read.h"
#include "topo/read/xml.h"

#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool sniff_hwloc(const struct topo_text *in)
{
	return topo_xml_begins_with(in->text, "topology") || topo_xml_begins_with(in->text, "root");
}

enum { OS_INDEX_MAX = 4096 }; /* of NUMA nodes: POWER9 counts its GPUs' memory down from 255 */

struct numa {
	int number; /* our number */
	long os_index;
	uint64_t cpus; /* a digest of its cpuset */
	/* has no cores: version 1 writes a second memory of the same cores so */
	bool bare;
};

struct hwloc_reader {
	struct found_node *m;
	const char *file;
	struct hwloc_ids *ids;
	struct numa numa[MACHINE_NUMA]; /* in the file's order */
	int n_numa;
	int of_os_index[OS_INDEX_MAX]; /* 1 + index into numa; 0: none */
	int cores, pus, pci;
	struct err *e;
};

/* The location of an element; elements below it inherit it unless they have their own. */
struct where {
	int numa; /* -1: unknown, or several */
	char cpus[TOPO_CPUS];
};

static bool has_type(const struct xml *x, const char *type)
{
	const char *t = topo_xml_get(x, "type");
	return t && !strcmp(t, type);
}

static const char *attribute(const struct xml *x, const char *name)
{
	const char *v = topo_xml_get(x, name);
	return v ? v : "";
}

static const char *info_value(const struct xml *x, const char *name)
{
	for (const struct xml *i = topo_xml_child(x->first, "info"); i;
	     i = topo_xml_child(i->next, "info"))
		if (!strcmp(attribute(i, "name"), name))
			return attribute(i, "value");
	return NULL;
}

static bool on_a_gpu(const struct xml *numa)
{
	return !strcmp(attribute(numa, "subtype"), "GPUMemory");
}

static int count_numa(struct hwloc_reader *w, const struct xml *x)
{
	if (w->n_numa == MACHINE_NUMA)
		return err_set(w->e, ERR_USAGE,
			       "%s:%d: more than %d NUMA nodes; it does not describe one machine",
			       w->file, x->line, MACHINE_NUMA);
	const char *os = topo_xml_get(x, "os_index");
	struct numa *n = &w->numa[w->n_numa++];
	*n = (struct numa){ .number = w->n_numa - 1,
			    .os_index = os ? strtol(os, NULL, 10) : w->n_numa - 1,
			    .cpus = hash_text(attribute(x, "cpuset")) };
	struct mask_bits cpus = topo_mask_bits(attribute(x, "cpuset"));
	n->bare = topo_mask_next(&cpus) < 0;
	if (n->os_index >= 0 && n->os_index < OS_INDEX_MAX && !w->of_os_index[n->os_index])
		w->of_os_index[n->os_index] = w->n_numa;
	return 0;
}

/* First pass: counts and finds what must be known before a device can be placed. */
static int count_objects(struct hwloc_reader *w, const struct xml *x)
{
	if (has_type(x, "NUMANode") && !on_a_gpu(x) && count_numa(w, x))
		return -1;
	w->cores += has_type(x, "Core");
	w->pus += has_type(x, "PU");
	w->pci += has_type(x, "PCIDev");
	const char *memory = on_a_gpu(x) ? NULL : topo_xml_get(x, "local_memory");
	double bytes = memory ? strtod(memory, NULL) : 0;
	if (bytes > 0 && bytes < 1e18)
		w->m->memory += bytes;
	for (const struct xml *c = topo_xml_child(x->first, "object"); c;
	     c = topo_xml_child(c->next, "object"))
		if (count_objects(w, c))
			return -1;
	return 0;
}

/* Numbers the NUMA nodes like the kernel if it counts from 0 without gaps, otherwise in the file's
 * order. */
static void number_numa(struct hwloc_reader *w)
{
	for (int i = 0; i < w->n_numa; i++)
		if (!w->of_os_index[i])
			return;
	for (int i = 0; i < w->n_numa; i++)
		w->numa[w->of_os_index[i] - 1].number = i;
}

/* The domain of a nodeset: the lowest of its NUMA nodes if all have the same cores, otherwise -1.
 * Bare nodes count only if there are no others. */
static int numa_in(const struct hwloc_reader *w, const char *set)
{
	struct mask_bits bits = topo_mask_bits(set);
	const struct numa *best = NULL;
	for (long bit; (bit = topo_mask_next(&bits)) >= 0 && bit < OS_INDEX_MAX;) {
		const struct numa *n = w->of_os_index[bit] ? &w->numa[w->of_os_index[bit] - 1]
							   : NULL;
		if (!n || (n->bare && best))
			continue;
		if (best && !best->bare && n->cpus != best->cpus)
			return -1;
		if (!best || best->bare || n->number < best->number)
			best = n;
	}
	return best ? best->number : w->n_numa <= 1 ? 0 : -1;
}

static struct where where_is(const struct hwloc_reader *w, const struct xml *x,
			     const struct where *above)
{
	struct where at = *above;
	const char *nodes = topo_xml_get(x, "nodeset"), *cpus = topo_xml_get(x, "cpuset");
	if (nodes)
		at.numa = numa_in(w, nodes);
	if (cpus)
		topo_found_mask(cpus, at.cpus);
	return at;
}

/* Parses "0302 [10de:1db8] [10de:131d] a1 00". */
static void ids_of(const struct xml *x, unsigned *class, unsigned *vendor, unsigned *device)
{
	*class = *vendor = *device = 0;
	sscanf(attribute(x, "pci_type"), "%4x [%4x:%4x]", class, vendor, device);
}

/* Reads a number in KiB, with or without the unit; returns bytes. */
static double memory_in(const char *text)
{
	return text ? strtod(text, NULL) * 1024 : 0;
}

/* Information about a GPU from the OS devices below its PCI device. */
struct said {
	const char *model;
	double memory;
	int order;
	bool computes;
};

static void set_callbacks(const struct xml *pci, struct said *s)
{
	static const char *const sizes[] = { "CUDAGlobalMemorySize", "OpenCLGlobalMemorySize",
					     "RSMIVRAMSize", "LevelZeroHBMSize" };
	for (const struct xml *o = topo_xml_child(pci->first, "object"); o;
	     o = topo_xml_child(o->next, "object")) {
		const char *name = attribute(o, "name"), *model = info_value(o, "GPUModel");
		bool compute = !strncmp(name, "nvml", 4) || !strncmp(name, "cuda", 4) ||
			       !strncmp(name, "rsmi", 4) || !strncmp(name, "ze", 2) ||
			       (!strncmp(name, "opencl", 6) &&
				!strcmp(info_value(o, "OpenCLDeviceType")
						? info_value(o, "OpenCLDeviceType")
						: "GPU",
					"GPU"));
		if (!has_type(o, "OSDev") || !compute)
			continue;
		s->computes = true;
		if (model && (!s->model || !strncmp(name, "nvml", 4)))
			s->model = model;
		for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
			if (memory_in(info_value(o, sizes[i])) > s->memory)
				s->memory = memory_in(info_value(o, sizes[i]));
		/* The management libraries number devices like the driver. */
		if ((!strncmp(name, "nvml", 4) || !strncmp(name, "rsmi", 4)) &&
		    isdigit((unsigned char)name[4]) && strlen(name) < 9)
			s->order = atoi(name + 4);
	}
}

/* Whether a PCI device is a GPU that computes. Only display controllers and accelerators can be.
 * All of NVIDIA are; those of AMD unless their class is VGA; those of any vendor if the model is
 * known, if a compute library sees them, or if the class is "other" display. This excludes the
 * small graphics chip of a server board. */
static bool is_gpu(unsigned class, unsigned vendor, const struct gpu_model *model,
		   const struct said *s)
{
	bool display = class >> 8 == 0x03, accelerator = class == 0x1200;
	if (!display && !accelerator)
		return false;
	return vendor == PCI_NVIDIA || model || s->computes ||
	       (vendor == PCI_AMD && class != 0x0300) || (display && class == 0x0380);
}

static int add_gpu(struct hwloc_reader *w, const struct xml *x, int place, const struct where *at,
		   const struct said *s, const struct gpu_model *model)
{
	unsigned class, vendor, device;
	ids_of(x, &class, &vendor, &device);
	struct found_gpu g = { .model = model,
			       .vendor = (int)vendor,
			       .place = place,
			       .numa = at->numa,
			       .order = s->order,
			       .memory = s->memory };
	topo_found_bus(attribute(x, "pci_busid"), g.bus);
	memcpy(g.cpus, at->cpus, sizeof g.cpus);
	if (s->model)
		topo_found_text(g.label, sizeof g.label, s->model);
	else
		snprintf(g.label, sizeof g.label, "GPU %04x:%04x", vendor, device);
	double speed = strtod(attribute(x, "pci_link_speed"), NULL) * 1e9;
	g.pcie = speed > 0 && speed < 1e15 ? topo_found_payload(speed) : 0;
	if (!model)
		topo_found_add_unknown(w->m, "rates of the GPUs, which are of no model known here");
	int gpu = topo_found_add_gpu(w->m, &g, w->e);
	if (gpu < 0 || topo_hwloc_id(w->ids, x, HWLOC_GPU, gpu, w->e))
		return -1;
	for (const struct xml *o = topo_xml_child(x->first, "object"); o;
	     o = topo_xml_child(o->next, "object"))
		if (topo_hwloc_id(w->ids, o, HWLOC_GPU, gpu, w->e))
			return -1;
	return 0;
}

/* The name of a NIC. An RDMA name such as mlx5_0 is preferred to the name of a network interface
 * such as ib0 or eth0. */
static const char *nic_name(const struct xml *x)
{
	const char *best = "";
	for (const struct xml *o = topo_xml_child(x->first, "object"); o;
	     o = topo_xml_child(o->next, "object")) {
		const char *name = attribute(o, "name");
		bool rdma = strchr(name, '_') != NULL;
		if (has_type(o, "OSDev") && (!best[0] || (rdma && !strchr(best, '_'))))
			best = name;
	}
	return best;
}

static int add_nic(struct hwloc_reader *w, const struct xml *x, int place, const struct where *at)
{
	unsigned class, vendor, device;
	ids_of(x, &class, &vendor, &device);
	struct found_nic n = { .place = place, .numa = at->numa };
	topo_found_bus(attribute(x, "pci_busid"), n.bus);
	topo_found_text(n.name, sizeof n.name, nic_name(x));
	double speed = strtod(attribute(x, "pci_link_speed"), NULL) * 1e9;
	topo_nic_figures(class, vendor, device,
			 speed > 0 && speed < 1e15 ? topo_found_payload(speed) : 0, &n.bandwidth,
			 &n.latency);
	if (!n.bandwidth)
		topo_found_add_unknown(w->m, "speeds of some network adapters");
	return topo_found_add_nic(w->m, &n, w->e) < 0 ? -1 : 0;
}

static int add_pci(struct hwloc_reader *w, const struct xml *x, int place, const struct where *at)
{
	unsigned class, vendor, device;
	struct said s = { .order = -1 };
	ids_of(x, &class, &vendor, &device);
	set_callbacks(x, &s);
	const struct gpu_model *model = topo_gpu_of_pci((int)vendor, (int)device);
	if (!model && s.model)
		model = topo_gpu_of_driver_name(s.model);
	if (is_gpu(class, vendor, model, &s))
		return add_gpu(w, x, place, at, &s, model);
	if (!strcmp(attribute(x, "subtype"), "NVSwitch") ||
	    (class == 0x0680 && vendor == PCI_NVIDIA))
		return topo_hwloc_id(w->ids, x, HWLOC_SWITCH, topo_hwloc_switch(w->ids), w->e);
	if (class >> 8 == 0x02 || class == 0x0c06)
		return add_nic(w, x, place, at);
	return 0;
}

/* Adds the place of a bridge. The parent of a host bridge is its NUMA domain if that is known,
 * otherwise the machine. */
static int add_bridge(struct hwloc_reader *w, const struct xml *x, int place)
{
	bool host = !strncmp(attribute(x, "bridge_type"), "0-", 2);
	double speed = strtod(attribute(x, "pci_link_speed"), NULL) * 1e9;
	int added = topo_found_add_place(w->m, host ? FOUND_HOST : FOUND_PORT, place, w->e);
	if (added >= 0 && !host && speed > 0 && speed < 1e15)
		w->m->places[added].bandwidth = topo_found_payload(speed);
	return added;
}

/* domains[d]: the place of domain d; the last entry is the machine's. A place that has no PCI
 * bridge above it follows the domain of the element. */
static int read_objects(struct hwloc_reader *w, const struct xml *x, int place,
			const struct where *above, const int *domains)
{
	for (const struct xml *c = topo_xml_child(x->first, "object"); c;
	     c = topo_xml_child(c->next, "object")) {
		struct where at = where_is(w, c, above);
		int below = place;
		if (w->m->places[place].kind <= FOUND_NUMA)
			below = at.numa >= 0 ? domains[at.numa] : domains[w->m->numa];
		if (has_type(c, "Bridge"))
			below = add_bridge(w, c, below);
		else if (has_type(c, "PCIDev") && add_pci(w, c, below, &at))
			return -1;
		if (below < 0 || read_objects(w, c, below, &at, domains))
			return -1;
	}
	return 0;
}

static void add_cores(struct hwloc_reader *w, const struct xml *x, const char *type,
		      const struct where *above)
{
	for (const struct xml *c = topo_xml_child(x->first, "object"); c;
	     c = topo_xml_child(c->next, "object")) {
		struct where at = where_is(w, c, above);
		if (has_type(c, type)) {
			struct topo_device *d = &w->m->cores[w->m->n_cores++];
			d->numa = at.numa;
			memcpy(d->cpus, at.cpus, sizeof d->cpus);
		} else {
			add_cores(w, c, type, &at);
		}
	}
}

static int read_cores(struct hwloc_reader *w, const struct xml *root)
{
	int n = w->cores ? w->cores : w->pus;
	if (n > MACHINE_CORES)
		return err_set(w->e, ERR_USAGE,
			       "%s: more than %d cores; it does not describe one machine", w->file,
			       MACHINE_CORES);
	w->m->cores = n ? calloc((size_t)n, sizeof *w->m->cores) : NULL;
	if (n && !w->m->cores)
		return err_set(w->e, ERR_NOMEM, "%s: no memory for its cores", w->file);
	const struct where nowhere = { .numa = w->n_numa <= 1 ? 0 : -1 };
	add_cores(w, root, w->cores ? "Core" : "PU", &nowhere);
	return 0;
}

static int read_machine(struct hwloc_reader *w, const struct xml *root)
{
	int domains[MACHINE_NUMA + 1];
	const struct where nowhere = { .numa = -1 };
	if (count_objects(w, root))
		return -1;
	number_numa(w);
	w->m->numa = w->n_numa ? w->n_numa : 1;
	int machine = topo_found_add_place(w->m, FOUND_MACHINE, -1, w->e);
	domains[w->m->numa] = machine;
	for (int i = 0; i < w->m->numa; i++)
		if (machine < 0 ||
		    (domains[i] = topo_found_add_place(w->m, FOUND_NUMA, machine, w->e)) < 0)
			return -1;
	if (read_cores(w, root) || read_objects(w, root, machine, &nowhere, domains) ||
	    topo_hwloc_links(w->ids, root, w->m, w->e))
		return -1;
	for (int i = 0; i < w->m->n_gpus; i++)
		if (w->m->gpus[i].numa < 0)
			topo_found_add_unknown(w->m, "which NUMA domain some GPUs are next to");
	return 0;
}

static int read_hwloc(const struct topo_text *in, struct cluster *out, struct err *e)
{
	struct xml_doc *doc;
	struct found_node m;
	if (topo_xml_parse(in->file, in->text, in->len, &doc, e))
		return -1;
	topo_found_init(&m, in->file);
	struct hwloc_reader *w = calloc(1, sizeof *w);
	struct hwloc_ids *ids = topo_hwloc_ids_open(in->file);
	struct node_kind kind;
	int result = -1;
	if (!w || !ids) {
		err_set(e, ERR_NOMEM, "%s: no memory to read it", in->file);
	} else {
		*w = (struct hwloc_reader){ .m = &m, .file = in->file, .ids = ids, .e = e };
		if (!read_machine(w, topo_xml_root(doc))) {
			if (!w->pci)
				topo_found_add_unknown(&m,
						       "GPUs and network adapters: it was written "
						       "without I/O devices");
			else if (!m.n_nics)
				topo_found_add_unknown(&m, "network adapters");
			result = topo_found_finish(&m, in->devices, &kind, e);
		}
	}
	free(w);
	topo_hwloc_ids_close(ids);
	topo_found_fini(&m);
	topo_xml_free(doc);
	return result ? -1 : topo_cluster_of_node("hwloc XML", in, &kind, out, e);
}

const struct topo_format topo_format_hwloc = { .name = "hwloc XML",
					       .sniff = sniff_hwloc,
					       .read = read_hwloc };
