/*
 * text: prints a cluster for a terminal.
 *
 * It prints a summary in one line, the switches and nodes as a tree, and a card for each kind of
 * node: its NUMA domains, devices and NICs, and the matrix of its links.
 */
#include "topo/draw/internal.h"

#include "base/human.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CARDS = 8 /* kinds shown in full */, NUMAS = 64, LINES = 100 /* of the tree */ };

struct page {
	const struct cluster *c;
	bool colour;
	struct buf *out;
	int lines; /* lines of the tree so far */
};

static const char *coloured(const struct page *p, enum ink i)
{
	return topo_draw_colour(i, p->colour);
}

static void put_head(struct page *p)
{
	const struct cluster *c = p->c;
	int devices = topo_cluster_devices(c);
	buf_puts(p->out, coloured(p, INK_BOLD));
	topo_draw_plain(p->out, c->name);
	buf_printf(p->out, "%s: %d node%s, %d device%s", coloured(p, INK_NONE), c->n_nodes,
		   human_s(c->n_nodes), devices, human_s(devices));
	if (c->n_switches)
		buf_printf(p->out, ", %d switch%s%s", c->n_switches, c->n_switches == 1 ? "" : "es",
			   c->rails ? " with rails" : "");
	buf_puts(p->out, "\n");
	if (*c->figures) {
		buf_puts(p->out, "figures: ");
		topo_draw_plain(p->out, c->figures);
		buf_puts(p->out, "\n");
	}
}

/* --- The tree of switches and nodes --- */

static void put_nodes(struct page *p, const struct group *g, bool sample)
{
	const struct node_kind *k = &p->c->kinds[g->kind];
	topo_group_name(p->c, g, p->out);
	buf_printf(p->out, "%s  %s", sample ? ", …" : "", coloured(p, INK_DIM));
	if (g->n > 1)
		buf_printf(p->out, "%d × ", g->n);
	topo_draw_plain(p->out, k->name);
	buf_puts(p->out, coloured(p, INK_NONE));
	if (k->devices) {
		buf_printf(p->out, " %s%d × ", coloured(p, INK_DEVICE), k->devices);
		topo_draw_plain(p->out, k->device);
		buf_puts(p->out, coloured(p, INK_NONE));
	}
	buf_puts(p->out, "\n");
}

static void put_holder(struct page *p, const struct group *g, bool sample)
{
	char up[HUMAN];
	int nodes, devices;
	topo_group_count(p->c, g, &nodes, &devices);
	topo_group_name(p->c, g, p->out);
	buf_printf(p->out, "%s%s", sample ? ", …" : "", coloured(p, INK_DIM));
	if (g->n > 1)
		buf_printf(p->out, "  %d of these, each", g->n);
	buf_printf(p->out, "  %d node%s, %d device%s", nodes, human_s(nodes), devices,
		   human_s(devices));
	if (g->what == GROUP_SWITCH && p->c->switches[g->members[0]].up > 0)
		buf_printf(p->out, ", %s up",
			   human_count(p->c->switches[g->members[0]].up, "B/s", up));
	buf_printf(p->out, "%s\n", coloured(p, INK_NONE));
}

/* sample: a group above represents several equal ones, and so does each group here. */
static void put_groups(struct page *p, struct group *const *g, int n, const char *indent,
		       bool sample)
{
	char deeper[256];
	for (int i = 0; i < n && p->lines <= LINES; i++) {
		bool last = i == n - 1;
		if (p->lines++ == LINES) {
			buf_printf(p->out, "%s└─ … and so on; --json lists all\n", indent);
			return;
		}
		buf_printf(p->out, "%s%s%s%s ", indent, coloured(p, INK_DIM), last ? "└─" : "├─",
			   coloured(p, INK_NONE));
		if (g[i]->what == GROUP_NODES)
			put_nodes(p, g[i], sample);
		else
			put_holder(p, g[i], sample);
		snprintf(deeper, sizeof deeper, "%s%s", indent, last ? "   " : "│  ");
		put_groups(p, g[i]->below, g[i]->n_below, deeper, sample || g[i]->n > 1);
	}
}

/* --- A kind of node --- */

/* Begins a line of the card, such as "  links     …". */
static void put_label(struct page *p, const char *label)
{
	buf_printf(p->out, "  %s%-10s%s", coloured(p, INK_DIM), label, coloured(p, INK_NONE));
}

/* Whether all devices have equal ports, so that one line describes them. Otherwise each device's
 * line does. */
static bool ports_alike(const struct node_kind *k)
{
	for (int i = 1; k->parts && i < k->devices; i++)
		if (k->parts[i].pcie != k->parts[0].pcie ||
		    k->parts[i].pcie_width != k->parts[0].pcie_width ||
		    k->parts[i].nvlink != k->parts[0].nvlink || k->parts[i].mig != k->parts[0].mig)
			return false;
	return k->parts && k->devices;
}

void topo_port_summary(const struct topo_device *d, struct buf *out)
{
	size_t before = out->len;
	if (d->pcie && d->pcie_width)
		buf_printf(out, "PCIe %d.0 × %d", d->pcie, d->pcie_width);
	if (d->nvlink)
		buf_printf(out, "%sNVLink %d", out->len > before ? ", " : "", d->nvlink);
	if (d->mig)
		buf_printf(out, "%spartitioned (MIG)", out->len > before ? ", " : "");
}

static void put_ports(struct page *p, const struct node_kind *k)
{
	struct buf text = BUF_INIT;
	if (ports_alike(k))
		topo_port_summary(&k->parts[0], &text);
	if (text.len) {
		put_label(p, "ports");
		buf_printf(p->out, "%s\n", buf_str(&text));
	}
	buf_fini(&text);
}

static void put_figures(struct page *p, const struct node_kind *k)
{
	char a[HUMAN], b[HUMAN], f[HUMAN];
	put_label(p, "device");
	buf_printf(p->out, "%s of memory, %s, %s\n",
		   k->device_memory > 0 ? human_bytes(k->device_memory, a) : "unknown size",
		   k->device_bandwidth > 0 ? human_count(k->device_bandwidth, "B/s", b)
					   : "bandwidth unknown",
		   k->device_flops > 0 ? human_count(k->device_flops, "FLOP/s", f)
				       : "compute rate unknown");
	put_ports(p, k);
	struct buf links = BUF_INIT;
	topo_links_summary(k, &links);
	if (links.len) {
		put_label(p, "links");
		buf_printf(p->out, "%s\n", buf_str(&links));
	}
	buf_fini(&links);
	put_label(p, "network");
	if (k->net_bandwidth > 0)
		buf_printf(p->out, "%s per device", human_count(k->net_bandwidth, "B/s", a));
	else
		buf_puts(p->out, "unknown");
	if (k->net_latency > 0)
		buf_printf(p->out, ", %s", human_seconds(k->net_latency, a));
	if (k->n_nics)
		buf_printf(p->out, ", %d adapter%s", k->n_nics, human_s(k->n_nics));
	buf_puts(p->out, "\n");
}

static void put_host(struct page *p, const struct node_kind *k)
{
	char text[HUMAN];
	put_label(p, "host");
	if (k->packages)
		buf_printf(p->out, "%d package%s, ", k->packages, human_s(k->packages));
	if (k->cores)
		buf_printf(p->out, "%d core%s, ", k->cores, human_s(k->cores));
	if (k->numa)
		buf_printf(p->out, "%d NUMA domain%s, ", k->numa, human_s(k->numa));
	buf_printf(p->out, "memory %s", k->memory > 0 ? human_bytes(k->memory, text) : "unknown");
	if (k->caches && k->cache > 0)
		buf_printf(p->out, ", %d last-level cache%s of %s", k->caches, human_s(k->caches),
			   human_bytes(k->cache, text));
	buf_puts(p->out, "\n");
	if (*k->unsaid) {
		buf_printf(p->out, "  %s%-10s%s", coloured(p, INK_WARN), "missing",
			   coloured(p, INK_NONE));
		topo_draw_plain(p->out, k->unsaid);
		buf_puts(p->out, "\n");
	}
}

static void put_nic(struct page *p, const struct topo_nic *nic, bool rate_too)
{
	char rate[HUMAN];
	buf_puts(p->out, coloured(p, INK_NIC));
	topo_draw_plain(p->out, nic->name);
	buf_puts(p->out, coloured(p, INK_NONE));
	if (nic->bandwidth > 0 && rate_too)
		buf_printf(p->out, " %s", human_count(nic->bandwidth, "B/s", rate));
}

static int known_devices(const struct node_kind *k)
{
	return k->parts ? k->devices : 0;
}

/* Whether the device's nearest NIC is nearest to no other device. Such a NIC is printed in the
 * device's line. */
static bool owns_nic(const struct node_kind *k, int device)
{
	int nic = k->parts[device].nic, users = 0;
	if (nic < 0 || nic >= k->n_nics)
		return false;
	for (int i = 0; i < k->devices; i++)
		users += k->parts[i].nic == nic;
	return users == 1;
}

static bool nic_owned(const struct node_kind *k, int nic)
{
	for (int i = 0; i < known_devices(k); i++)
		if (k->parts[i].nic == nic && owns_nic(k, i))
			return true;
	return false;
}

static void put_device(struct page *p, const struct node_kind *k, int i, const char *shared_cpus)
{
	const struct topo_device *d = &k->parts[i];
	buf_puts(p->out, coloured(p, INK_DEVICE));
	topo_draw_plain(p->out, *d->name ? d->name : "device");
	buf_puts(p->out, coloured(p, INK_NONE));
	if (*d->bus) {
		buf_puts(p->out, "  ");
		topo_draw_plain(p->out, d->bus);
	}
	struct buf port = BUF_INIT;
	if (!ports_alike(k))
		topo_port_summary(d, &port);
	if (port.len)
		buf_printf(p->out, "  %s", buf_str(&port));
	buf_fini(&port);
	if (*d->cpus && strcmp(d->cpus, shared_cpus)) {
		buf_puts(p->out, "  cores ");
		topo_draw_plain(p->out, d->cpus);
	}
	if (d->nic >= 0 && d->nic < k->n_nics) {
		buf_printf(p->out, "  %s── %s ──%s ",
			   coloured(p, topo_draw_link_colour(d->nic_link)),
			   topo_link_word(d->nic_link), coloured(p, INK_NONE));
		put_nic(p, &k->nics[d->nic], owns_nic(k, i));
	}
	buf_puts(p->out, "\n");
}

/* The number of CPU slots from `at` on that differ only in their cores. They share a line. */
static int alike_from(const struct node_kind *k, int at)
{
	const struct topo_device *d = &k->parts[at];
	int end = at + 1;
	while (!strcmp(k->device, "cpu") && !owns_nic(k, at) && end < k->devices &&
	       k->parts[end].numa == d->numa && k->parts[end].nic == d->nic &&
	       k->parts[end].nic_link == d->nic_link)
		end++;
	return end - at;
}

/* Prints several slots as one, such as "CPU0 to CPU23". */
static void put_alike(struct page *p, const struct node_kind *k, int first, int n)
{
	const struct topo_device *d = &k->parts[first];
	buf_puts(p->out, coloured(p, INK_DEVICE));
	topo_draw_plain(p->out, d->name);
	buf_puts(p->out, " to ");
	topo_draw_plain(p->out, k->parts[first + n - 1].name);
	buf_puts(p->out, coloured(p, INK_NONE));
	if (d->nic >= 0 && d->nic < k->n_nics) {
		buf_printf(p->out, "  %s── %s ──%s ",
			   coloured(p, topo_draw_link_colour(d->nic_link)),
			   topo_link_word(d->nic_link), coloured(p, INK_NONE));
		put_nic(p, &k->nics[d->nic], false);
	}
	buf_puts(p->out, "\n");
}

/* The cores that all devices of a domain share; "": they differ. */
static const char *cpus_of(const struct node_kind *k, int numa)
{
	const char *cpus = NULL;
	for (int i = 0; i < known_devices(k); i++) {
		if (k->parts[i].numa != numa)
			continue;
		if (cpus && strcmp(cpus, k->parts[i].cpus))
			return "";
		cpus = k->parts[i].cpus;
	}
	return cpus ? cpus : "";
}

static void put_domain(struct page *p, const struct node_kind *k, int numa, bool last)
{
	const char *cpus = cpus_of(k, numa), *bar = last ? "   " : "│  ";
	int devices = known_devices(k), parts = 0, at = 0;
	for (int i = 0; i < devices; i += alike_from(k, i))
		parts += k->parts[i].numa == numa;
	for (int i = 0; i < k->n_nics; i++)
		parts += k->nics[i].numa == numa && !nic_owned(k, i);
	buf_printf(p->out, "    %s%s%s ", coloured(p, INK_DIM), last ? "└─" : "├─",
		   coloured(p, INK_NONE));
	if (numa < 0)
		buf_puts(p->out, "NUMA domain unknown");
	else
		buf_printf(p->out, "NUMA %d", numa);
	if (*cpus) {
		buf_puts(p->out, "  cores ");
		topo_draw_plain(p->out, cpus);
	}
	buf_puts(p->out, "\n");
	for (int i = 0, n; i < devices + k->n_nics; i += n) {
		int nic = i - devices;
		n = nic < 0 ? alike_from(k, i) : 1;
		if (nic < 0 ? k->parts[i].numa != numa
			    : k->nics[nic].numa != numa || nic_owned(k, nic))
			continue;
		buf_printf(p->out, "    %s%s%s%s ", coloured(p, INK_DIM), bar,
			   ++at == parts ? "└─" : "├─", coloured(p, INK_NONE));
		if (nic < 0 && n > 1)
			put_alike(p, k, i, n);
		else if (nic < 0)
			put_device(p, k, i, cpus);
		if (nic < 0)
			continue;
		put_nic(p, &k->nics[nic], true);
		if (*k->nics[nic].bus) {
			buf_puts(p->out, "  ");
			topo_draw_plain(p->out, k->nics[nic].bus);
		}
		buf_puts(p->out, "\n");
	}
}

static bool in_domain(const struct node_kind *k, int numa)
{
	for (int i = 0; i < known_devices(k); i++)
		if (k->parts[i].numa == numa)
			return true;
	for (int i = 0; i < k->n_nics; i++)
		if (k->nics[i].numa == numa)
			return true;
	return false;
}

static void put_domains(struct page *p, const struct node_kind *k)
{
	int last = -2;
	for (int d = -1; d < NUMAS; d++)
		last = in_domain(k, d) ? d : last;
	for (int d = -1; d <= last; d++)
		if (in_domain(k, d) || (d >= 0 && d < k->numa))
			put_domain(p, k, d, d == last);
}

static void put_card(struct page *p, const struct node_kind *k, int nodes)
{
	buf_printf(p->out, "\n%s", coloured(p, INK_BOLD));
	topo_draw_plain(p->out, k->name);
	buf_printf(p->out, "%s  %d node%s", coloured(p, INK_NONE), nodes, human_s(nodes));
	if (k->devices) {
		buf_printf(p->out, " of %s%d × ", coloured(p, INK_DEVICE), k->devices);
		topo_draw_plain(p->out, k->device);
		buf_puts(p->out, coloured(p, INK_NONE));
	}
	buf_puts(p->out, "\n");
	if (k->devices)
		put_figures(p, k);
	put_host(p, k);
	if (k->parts || k->nics)
		put_domains(p, k);
	if (k->links && k->devices > 1 && k->devices <= MATRIX_MAX) {
		buf_puts(p->out, "\n");
		topo_draw_matrix(k, p->colour, p->out);
	}
}

static void put_odd(struct page *p)
{
	struct buf odd = BUF_INIT;
	topo_draw_outliers(p->c, &odd);
	if (odd.len)
		buf_printf(p->out, "\n%soutliers%s\n", coloured(p, INK_WARN),
			   coloured(p, INK_NONE));
	for (const char *at = buf_str(&odd), *end; *at; at = end + 1) {
		end = strchr(at, '\n');
		buf_printf(p->out, "  %.*s\n", (int)(end - at), at);
	}
	buf_fini(&odd);
}

void topo_draw_cluster(const struct cluster *c, bool colour, struct buf *out)
{
	struct page p = { .c = c, .colour = colour, .out = out };
	int n = 0, shown = 0, left = 0;
	put_head(&p);
	if (c->n_nodes > 1 || c->n_switches) {
		struct group **groups = topo_group_cluster(c, &n);
		buf_puts(out, "\n");
		put_groups(&p, groups, groups ? n : 0, "", false);
		topo_group_free(groups, n);
	}
	for (int i = 0; i < c->n_kinds; i++) {
		int nodes = topo_nodes_of_kind(c, i);
		if (nodes && shown++ < CARDS)
			put_card(&p, &c->kinds[i], nodes);
		else
			left += nodes > 0;
	}
	if (left)
		buf_printf(out, "\n%d more kind%s of node; --json lists all\n", left,
			   human_s(left));
	put_odd(&p);
}
