#include "boxes.h"

#include <stdio.h>
#include <stdlib.h>

#define GIB (1024.0 * 1024 * 1024)

void box_of_four(struct node_kind *k)
{
	*k = (struct node_kind){
		.name = "four",
		.device = "A100-PCIe-80GB",
		.devices = 4,
		.cores = 64,
		.numa = 2,
		.packages = 2,
		.caches = 2,
		.cache = 32 << 20,
		.memory = 512 * GIB,
		.device_memory = 80 * GIB,
		.device_flops = 312e12,
		.device_bandwidth = 1935e9,
		.link_bandwidth = 50e9,
		.link_latency = 2e-6,
		.net_bandwidth = 12.5e9,
		.net_latency = 5e-6,
		.n_nics = 2,
	};
	k->parts = calloc(4, sizeof *k->parts);
	k->nics = calloc(2, sizeof *k->nics);
	k->links = calloc(16, sizeof *k->links);
	for (int i = 0; i < 2; i++) {
		k->nics[i] = (struct topo_nic){ .numa = i, .bandwidth = 25e9 };
		snprintf(k->nics[i].name, TOPO_NAME, "mlx5_%d", i);
	}
	for (int i = 0; i < 4; i++) {
		k->parts[i] = (struct topo_device){ .numa = i / 2,
						    .nic = i / 2,
						    .nic_link = i % 2 ? LINK_NODE : LINK_PIX };
		snprintf(k->parts[i].name, TOPO_NAME, "GPU%d", i);
		snprintf(k->parts[i].bus, sizeof k->parts[i].bus, "0000:%02x:00.0",
			 0x21 + 0x20 * i);
		snprintf(k->parts[i].cpus, TOPO_CPUS, "%d-%d", i / 2 * 32, i / 2 * 32 + 31);
		for (int j = 0; j < 4; j++)
			k->links[4 * i + j] =
				i == j           ? (struct topo_link){ .kind = LINK_SELF }
				: i / 2 == j / 2 ? (struct topo_link){ LINK_NVLINK, 2, 50e9, 2e-6 }
						 : (struct topo_link){ LINK_SYS, 0, 10e9, 10e-6 };
	}
}

void boxes(int kinds, int nodes, struct cluster *c)
{
	*c = (struct cluster){ .name = "boxes", .n_kinds = kinds, .n_nodes = nodes };
	c->kinds = calloc((size_t)kinds, sizeof *c->kinds);
	c->nodes = calloc((size_t)nodes, sizeof *c->nodes);
	for (int i = 0; i < kinds; i++)
		box_of_four(&c->kinds[i]);
	for (int i = 0; i < nodes; i++) {
		c->nodes[i] = (struct cluster_node){ .leaf = -1, .domain = -1 };
		snprintf(c->nodes[i].name, TOPO_NAME, "n%d", i + 1);
	}
}

void three_levels(struct cluster *c, int below)
{
	int leaves = (c->n_nodes + below - 1) / below, spines = (leaves + below - 1) / below;
	c->n_switches = leaves + spines + 1;
	c->switches = calloc((size_t)c->n_switches, sizeof *c->switches);
	for (int i = 0; i < c->n_nodes; i++)
		c->nodes[i].leaf = i / below;
	for (int i = 0; i < leaves; i++) {
		c->switches[i].parent = leaves + i / below;
		snprintf(c->switches[i].name, TOPO_NAME, "leaf%d", i);
	}
	for (int i = 0; i < spines; i++) {
		c->switches[leaves + i].parent = leaves + spines;
		snprintf(c->switches[leaves + i].name, TOPO_NAME, "spine%d", i);
	}
	c->switches[leaves + spines].parent = -1;
	snprintf(c->switches[leaves + spines].name, TOPO_NAME, "core");
}
