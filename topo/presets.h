/*
 * presets — well-known machines, so that a job can be planned before there is an allocation.
 *
 * There is one table of presets (presets.c), with the source of every figure. A preset becomes a
 * node_kind with all its parts, and several nodes become a cluster with its switches (fabric.c). To
 * add a preset, add a row to presets.c. Only topo/ and its tests include this header.
 */
#ifndef MUSTER_TOPO_PRESETS_H
#define MUSTER_TOPO_PRESETS_H

#include "topo/cluster.h"

#include <stddef.h>

enum { BOX_DEVICES = 16 };

struct topo_preset {
	const char *name, *gpu; /* gpu: the name of a row of gpus.c */
	/* threads: per core. Cores are numbered in NUMA order, second threads after all cores. */
	int devices, cores, threads, numa;
	double memory;
	/* NVSWITCH: through switches; NVLINK, XGMI: direct, see `lanes`; UNKNOWN: PCIe only */
	enum link_kind join;
	const char *lanes; /* devices × devices digits; NULL: one lane between any two devices */
	const char *homes; /* NUMA domain of each device, one digit each */
	/* bandwidth between two devices without a direct link: inside a NUMA domain, across two */
	double pcie, cross;
	const char *nics; /* names, separated by spaces */
	const char *
		nearest; /* index in `nics` of each device's nearest adapter, one hexadecimal digit each */
	enum link_kind nic_link;
	double nic_bandwidth, nic_latency;
	/* Between nodes. */
	int domain; /* nodes of one NVLink fabric; 0: none */
	/* nodes per leaf, leaves per spine; unit 0: unknown, all nodes are equally far apart */
	int unit, group;
	bool rails;
};

/* The row with that name (`len` characters), or NULL; row i, or NULL past the end. */
const struct topo_preset *topo_preset_named(const char *name, size_t len);
const struct topo_preset *topo_preset_at(int i);

/* Makes a kind with its parts; the caller owns it (topo_cluster_free). */
int topo_preset_kind(const struct topo_preset *b, struct node_kind *out, struct err *e);

/* Builds the switches of a cluster of presets: boxes[k] is kind k, and the nodes of one kind are
 * consecutive. Sets the leaves and domains of the nodes, and `rails`. */
int topo_fabric_build(struct cluster *c, const struct topo_preset *const *boxes, struct err *e);

#endif
