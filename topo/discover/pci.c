#include "topo/discover/internal.h"
#include "topo/internal.h"

#include <hwloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Estimates for comparing plans: the share of a PCIe port's rate that copies between devices reach,
 * and the rate of a PCIe 3.0 × 16 port for ports whose rate is unknown. */
#define PCIE_SHARE 0.8
#define PORT_GUESS 15.75e9

/* hwloc's GPU components are disabled, because they query drivers, sometimes for seconds. NVML is
 * queried once, elsewhere. */
static hwloc_topology_t load_topology(struct err *e)
{
	static const char *const slow[] = { "x86",  "opencl", "gl",       "cuda",
					    "nvml", "rsmi",   "levelzero" };
	hwloc_topology_t t;
	if (hwloc_topology_init(&t)) {
		err_set(e, ERR_NOMEM, "this host: no memory for its topology");
		return NULL;
	}
	for (size_t i = 0; i < sizeof slow / sizeof *slow; i++)
		hwloc_topology_set_components(t, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, slow[i]);
	if (hwloc_topology_set_io_types_filter(t, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) ||
	    hwloc_topology_load(t)) {
		hwloc_topology_destroy(t);
		err_errno(e, ERR_UNSUPPORTED,
			  "this host: hwloc cannot read its devices (see the output of lstopo)");
		return NULL;
	}
	return t;
}

static hwloc_obj_t at_bus(hwloc_topology_t t, const char *bus)
{
	unsigned domain, b, d, f;
	if (sscanf(bus, "%x:%x:%x.%x", &domain, &b, &d, &f) != 4)
		return NULL;
	return hwloc_get_pcidev_by_busid(t, domain, b, d, f);
}

/* The NUMA domain of an I/O object; -1: it is equally near to several. */
static int numa_of(hwloc_topology_t t, hwloc_obj_t o)
{
	hwloc_obj_t home = hwloc_get_non_io_ancestor_obj(t, o);
	if (!home || !home->nodeset || hwloc_bitmap_weight(home->nodeset) != 1)
		return -1;
	hwloc_obj_t node =
		hwloc_get_numanode_obj_by_os_index(t, (unsigned)hwloc_bitmap_first(home->nodeset));
	return node ? (int)node->logical_index : -1;
}

static void cpus_of(hwloc_topology_t t, hwloc_obj_t o, char out[TOPO_CPUS])
{
	hwloc_obj_t home = hwloc_get_non_io_ancestor_obj(t, o);
	if (!home || !home->cpuset ||
	    hwloc_bitmap_list_snprintf(out, TOPO_CPUS, home->cpuset) >= TOPO_CPUS)
		out[0] = '\0';
}

static bool is_bridge(hwloc_obj_t o)
{
	return o->type == HWLOC_OBJ_BRIDGE && o->attr->bridge.upstream_type == HWLOC_OBJ_BRIDGE_PCI;
}

/* The number of PCI bridges between an object and one above it. */
static int bridges_below(hwloc_obj_t o, hwloc_obj_t top)
{
	int n = 0;
	for (o = o->parent; o && o != top; o = o->parent)
		n += is_bridge(o);
	return n;
}

static hwloc_obj_t lowest_common_bridge(hwloc_obj_t a, hwloc_obj_t b)
{
	for (; a; a = a->parent)
		for (hwloc_obj_t at = b; at; at = at->parent)
			if (at == a)
				return a;
	return NULL;
}

/* Classifies the path as nvidia-smi does. If both devices are below one switch, each has at most
 * the bridge of its own port there. */
static enum link_kind link_between(hwloc_obj_t a, hwloc_obj_t b)
{
	hwloc_obj_t top = lowest_common_bridge(a, b);
	if (!top)
		return LINK_UNKNOWN;
	if (is_bridge(top) || top->type == HWLOC_OBJ_PCI_DEVICE)
		return bridges_below(a, top) <= 1 && bridges_below(b, top) <= 1 ? LINK_PIX
										: LINK_PXB;
	if (top->type == HWLOC_OBJ_BRIDGE)
		return LINK_PHB;
	return top->nodeset && hwloc_bitmap_weight(top->nodeset) <= 1 ? LINK_NODE : LINK_SYS;
}

/* The rate of a PCIe port in one direction, bytes/s: 2.5 GT/s per lane in generation 1, 5 in
 * generation 2, 8 in generation 3, then doubling. Generations 1 and 2 send 8 bits as 10; later ones
 * send 128 bits as 130 (PCI Express Base Specification 5.0, table 4-1). */
static double pcie_rate(int generation, int lanes)
{
	static const double transfers[] = { 0, 2.5e9, 5e9 };
	double rate = generation < 3 ? transfers[generation] * 0.8
				     : 8e9 * (1 << (generation - 3)) * 128 / 130;
	return rate * lanes / 8;
}

/* hwloc reports the current rate of the link, which falls while a GPU idles. The driver reports the
 * port's maximum. */
static double port_rate(const struct topo_device *d, hwloc_obj_t o)
{
	if (d->pcie > 0 && d->pcie_width > 0)
		return pcie_rate(d->pcie, d->pcie_width);
	double rate = o && o->type == HWLOC_OBJ_PCI_DEVICE ? (double)o->attr->pcidev.linkspeed * 1e9
							   : 0;
	return rate > 0 ? rate : PORT_GUESS;
}

/* The link of two devices over PCIe. If hwloc does not show one of them (NULL), the path is unknown
 * and gets at most the bandwidth of a path between sockets. */
static struct topo_link over_pcie(const struct topo_device *x, hwloc_obj_t a,
				  const struct topo_device *y, hwloc_obj_t b)
{
	enum link_kind kind = a && b ? link_between(a, b) : LINK_UNKNOWN;
	double rate = port_rate(x, a) < port_rate(y, b) ? port_rate(x, a) : port_rate(y, b);
	rate *= PCIE_SHARE;
	if ((kind == LINK_SYS || kind == LINK_UNKNOWN) && rate > SYS_BANDWIDTH)
		rate = SYS_BANDWIDTH;
	return (struct topo_link){ .kind = kind,
				   .bandwidth = rate,
				   .latency = topo_link_latency(kind) };
}

static hwloc_obj_t pci_of(hwloc_obj_t os)
{
	while (os && os->type == HWLOC_OBJ_OS_DEVICE)
		os = os->parent;
	return os && os->type == HWLOC_OBJ_PCI_DEVICE ? os : NULL;
}

/* Reads the InfiniBand and similar NICs if there are any, otherwise the Ethernet NICs; `at` gets
 * their PCI devices. */
static int read_nics(hwloc_topology_t t, struct node_kind *k, hwloc_obj_t **at, struct err *e)
{
	int want = HWLOC_OBJ_OSDEV_NETWORK, most = 0;
	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(t, o)); most++)
		if (o->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS && pci_of(o))
			want = HWLOC_OBJ_OSDEV_OPENFABRICS;
	k->nics = calloc((size_t)most + 1, sizeof *k->nics);
	*at = calloc((size_t)most + 1, sizeof **at);
	if (!k->nics || !*at)
		return err_set(e, ERR_NOMEM, "this host: no memory for its adapters");
	for (hwloc_obj_t o = NULL; (o = hwloc_get_next_osdev(t, o));) {
		hwloc_obj_t pci = pci_of(o);
		if ((int)o->attr->osdev.type != want || !pci || !o->name)
			continue;
		struct topo_nic *nic = &k->nics[k->n_nics];
		snprintf(nic->name, sizeof nic->name, "%s", o->name);
		snprintf(nic->bus, sizeof nic->bus, "%04x:%02x:%02x.%x",
			 (unsigned)pci->attr->pcidev.domain & 0xffff,
			 (unsigned)pci->attr->pcidev.bus, (unsigned)pci->attr->pcidev.dev & 0x1f,
			 (unsigned)pci->attr->pcidev.func & 7);
		nic->numa = numa_of(t, pci);
		nic->bandwidth = topo_net_of_adapter(nic->name,
						     want == HWLOC_OBJ_OSDEV_OPENFABRICS);
		(*at)[k->n_nics++] = pci;
	}
	return 0;
}

/* Chooses the nearest NIC. Among equally near ones it takes the one that the fewest devices use so
 * far. */
static void choose_nic(struct node_kind *k, int device, hwloc_obj_t pci, hwloc_obj_t const *nics)
{
	struct topo_device *d = &k->parts[device];
	int least = 0;
	for (int i = 0; i < k->n_nics; i++) {
		enum link_kind link = link_between(pci, nics[i]);
		int users = 0;
		for (int x = 0; x < device; x++)
			users += k->parts[x].nic == i;
		if (d->nic < 0 || link > d->nic_link || (link == d->nic_link && users < least)) {
			d->nic = i;
			d->nic_link = link;
			least = users;
		}
	}
}

static void read_host(hwloc_topology_t t, struct node_kind *k)
{
	static const hwloc_obj_type_t caches[] = { HWLOC_OBJ_L3CACHE, HWLOC_OBJ_L2CACHE };
	int packages = hwloc_get_nbobjs_by_type(t, HWLOC_OBJ_PACKAGE);
	k->packages = packages > 0 ? packages : 0;
	for (size_t i = 0; i < sizeof caches / sizeof *caches && !k->caches; i++) {
		int n = hwloc_get_nbobjs_by_type(t, caches[i]);
		hwloc_obj_t first = n > 0 ? hwloc_get_obj_by_type(t, caches[i], 0) : NULL;
		if (first && first->attr->cache.size) {
			k->caches = n;
			k->cache = (double)first->attr->cache.size;
		}
	}
}

static void fill_links(struct node_kind *k, hwloc_obj_t const *pci)
{
	for (int i = 0; i < k->devices; i++)
		for (int j = 0; j < k->devices; j++) {
			struct topo_link *l = &k->links[i * k->devices + j];
			if (i != j && l->kind == LINK_UNKNOWN)
				*l = over_pcie(&k->parts[i], pci[i], &k->parts[j], pci[j]);
		}
}

int topo_pci_fill(struct node_kind *k, struct err *e)
{
	hwloc_topology_t t = load_topology(e);
	if (!t)
		return -1;
	hwloc_obj_t *nics = NULL, *pci = calloc((size_t)k->devices + 1, sizeof *pci);
	int rc = pci ? read_nics(t, k, &nics, e)
		     : err_set(e, ERR_NOMEM, "this host: no memory for its devices");
	if (!rc)
		read_host(t, k);
	for (int i = 0; !rc && k->parts && i < k->devices; i++) {
		pci[i] = at_bus(t, k->parts[i].bus);
		if (!pci[i])
			continue;
		k->parts[i].numa = numa_of(t, pci[i]);
		cpus_of(t, pci[i], k->parts[i].cpus);
		choose_nic(k, i, pci[i], nics);
	}
	if (!rc && k->parts && k->links)
		fill_links(k, pci);
	free(nics);
	free(pci);
	hwloc_topology_destroy(t);
	return rc;
}
