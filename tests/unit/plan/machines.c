#include "machines.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GIB (1024.0 * 1024 * 1024)

static struct topo_link *link_of(struct node_kind *k, int a, int b)
{
	return &k->links[a * k->devices + b];
}

static void join(struct node_kind *k, int a, int b, struct topo_link link)
{
	*link_of(k, a, b) = *link_of(k, b, a) = link;
}

/* Adds devices and NICs, per_nic devices to a NIC, in two sockets. The links go over PCIe until the
 * caller sets better ones. */
static void add_parts(struct node_kind *k, int per_nic, double nic)
{
	k->n_nics = k->devices / per_nic;
	k->numa = 2;
	k->parts = calloc((size_t)k->devices, sizeof *k->parts);
	k->nics = calloc((size_t)k->n_nics, sizeof *k->nics);
	k->links = calloc((size_t)(k->devices * k->devices), sizeof *k->links);
	for (int i = 0; i < k->n_nics; i++) {
		snprintf(k->nics[i].name, sizeof k->nics[i].name, "mlx5_%d", i);
		k->nics[i].bandwidth = nic;
		k->nics[i].numa = i * 2 / k->n_nics;
	}
	for (int a = 0; a < k->devices; a++) {
		struct topo_device *d = &k->parts[a];
		snprintf(d->name, sizeof d->name, "GPU%d", a);
		d->numa = a * 2 / k->devices;
		d->nic = a / per_nic;
		d->nic_link = LINK_PIX;
		snprintf(d->cpus, sizeof d->cpus, "%d-%d,%d-%d", 16 * d->numa, 16 * d->numa + 15,
			 32 + 16 * d->numa, 32 + 16 * d->numa + 15);
		for (int b = 0; b < k->devices; b++) {
			bool far = b * 2 / k->devices != d->numa, near = b / 2 == a / 2;
			*link_of(k, a, b) = a == b ? (struct topo_link){ .kind = LINK_SELF }
						   : (struct topo_link){ far    ? LINK_SYS
									 : near ? LINK_PIX
										: LINK_PHB,
									 0,
									 far ? MACHINE_SOCKETS
									     : MACHINE_PCIE,
									 5e-6 };
		}
	}
}

/* NVIDIA DGX-1 with Tesla V100 (white paper, 2017): single and double NVLinks form a hybrid cube
 * mesh. */
static void cube_mesh(struct node_kind *k)
{
	static const struct {
		int a, b, lanes;
	} wires[] = {
		{ 0, 1, 1 }, { 0, 2, 1 }, { 0, 3, 2 }, { 0, 4, 2 }, { 1, 2, 2 }, { 1, 3, 1 },
		{ 1, 5, 2 }, { 2, 3, 2 }, { 2, 6, 1 }, { 3, 7, 1 }, { 4, 5, 1 }, { 4, 6, 1 },
		{ 4, 7, 2 }, { 5, 6, 2 }, { 5, 7, 1 }, { 6, 7, 2 },
	};
	for (size_t i = 0; i < sizeof wires / sizeof *wires; i++)
		join(k, wires[i].a, wires[i].b,
		     (struct topo_link){ LINK_NVLINK, wires[i].lanes,
					 wires[i].lanes * MACHINE_NVLINK, 2e-6 });
}

static void all_switched(struct node_kind *k)
{
	k->switched = true;
	for (int a = 0; a < k->devices; a++)
		for (int b = 0; b < k->devices; b++)
			if (a != b)
				*link_of(k, a, b) = (struct topo_link){ LINK_NVSWITCH, 0,
									k->link_bandwidth,
									k->link_latency };
}

static void fill_kind(enum machine what, struct node_kind *k)
{
	/* clang-format off */
	static const struct { const char *name; int devices; double link, net; } rows[MACHINES] = {
		[MACHINE_SWITCHED] = { "switched", 8, MACHINE_SWITCH, MACHINE_NET }, [MACHINE_DGX1] = { "dgx-1", 8, 2 * MACHINE_NVLINK, 6e9 },
		[MACHINE_DGX1_DEAD] = { "dgx-1-dead", 8, 2 * MACHINE_NVLINK, 6e9 }, [MACHINE_DGX2] = { "dgx-2", 16, 150e9, 6e9 },
		[MACHINE_H100] = { "dgx-h100", 8, MACHINE_SWITCH, MACHINE_NET }, [MACHINE_HALF] = { "hgx-4", 4, MACHINE_SWITCH, MACHINE_NET },
		[MACHINE_PCIE4] = { "pcie", 4, MACHINE_PCIE, 6e9 }, [MACHINE_TRAY] = { "tray", 4, 900e9, MACHINE_NET },
	};
	/* clang-format on */
	*k = (struct node_kind){
		.device = "V100",
		.devices = rows[what].devices,
		.cores = 32,
		.numa = 2,
		.memory = 512 * GIB,
		.device_memory = 80 * GIB,
		.device_flops = 312e12,
		.device_bandwidth = 2e12,
		.link_bandwidth = rows[what].link,
		.link_latency = 2e-6,
		.net_bandwidth = rows[what].net,
		.net_latency = 5e-6,
	};
	snprintf(k->name, sizeof k->name, "%s", rows[what].name);
	switch (what) {
	case MACHINE_SWITCHED:
		k->switched = true;
		break;
	case MACHINE_DGX1:
	case MACHINE_DGX1_DEAD:
		add_parts(k, 2, 12e9);
		cube_mesh(k);
		break;
	case MACHINE_DGX2:
		add_parts(k, 2, 12e9);
		all_switched(k);
		break;
	case MACHINE_PCIE4:
		add_parts(k, 4, 24e9);
		break;
	default:
		add_parts(k, 1, MACHINE_NET);
		all_switched(k);
	}
	if (what == MACHINE_DGX1_DEAD)
		join(k, 0, 3, (struct topo_link){ LINK_PHB, 0, MACHINE_PCIE, 5e-6 });
}

struct cluster machines(const enum machine *kinds, const int *nodes, int n)
{
	struct cluster c = { .n_kinds = n };
	for (int i = 0; i < n; i++)
		c.n_nodes += nodes[i];
	c.kinds = calloc((size_t)n, sizeof *c.kinds);
	c.nodes = calloc((size_t)c.n_nodes, sizeof *c.nodes);
	for (int i = 0, at = 0; i < n; i++) {
		fill_kind(kinds[i], &c.kinds[i]);
		for (int k = 0; k < nodes[i]; k++, at++) {
			c.nodes[at] = (struct cluster_node){ .kind = i,
							     .leaf = -1,
							     .domain = kinds[i] == MACHINE_TRAY
									       ? at / 18
									       : -1 };
			snprintf(c.nodes[at].name, sizeof c.nodes[at].name, "n%d", at);
		}
	}
	snprintf(c.name, sizeof c.name, "%.40s:%d", c.kinds[0].name, c.n_nodes);
	return c;
}

struct cluster machines_equal(enum machine kind, int nodes)
{
	return machines(&kind, &nodes, 1);
}

void machines_tree(struct cluster *c, int leaf, double over, bool rails)
{
	int leaves = (c->n_nodes + leaf - 1) / leaf;
	c->n_switches = leaves + 1;
	c->rails = rails;
	c->switches = calloc((size_t)c->n_switches, sizeof *c->switches);
	c->switches[leaves] = (struct cluster_switch){ .name = "spine", .parent = -1 };
	for (int i = 0; i < leaves; i++) {
		c->switches[i].parent = leaves;
		snprintf(c->switches[i].name, sizeof c->switches[i].name, "leaf%d", i);
		for (int k = i * leaf; k < c->n_nodes && k < (i + 1) * leaf; k++) {
			const struct node_kind *kind = &c->kinds[c->nodes[k].kind];
			c->nodes[k].leaf = i;
			c->switches[i].up += kind->devices * kind->net_bandwidth / over;
		}
	}
}
