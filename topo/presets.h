/*
 * presets — well-known machines, so that a job can be planned before there is an allocation.
 *
 * One table of boxes (presets.c) with the source of every figure; a box becomes a node_kind with
 * all its parts, and so many of them a cluster with its switches (fabric.c). To add one: a row in
 * presets.c. For this room and its tests alone.
 */
#ifndef MUSTER_TOPO_PRESETS_H
#define MUSTER_TOPO_PRESETS_H

#include "topo/cluster.h"

#include <stddef.h>

enum { BOX_DEVICES = 16 };

struct box {
	const char *name, *gpu; /* gpu: a row of gpus.c, whose figures hold */
	/* threads a core; cores lie in NUMA order, second threads after all cores */
	int devices, cores, threads, numa;
	double memory;
	/* NVSWITCH: whole ports; NVLINK, XGMI: direct, `lanes`; UNKNOWN: PCIe alone */
	enum link_kind join;
	const char *lanes; /* devices × devices digits, NULL: one lane between any two */
	const char *homes; /* NUMA domain of each device, a digit each */
	/* between two devices that nothing else joins: in a NUMA domain, between two */
	double pcie, cross;
	const char *nics;    /* names, parted by blanks */
	const char *nearest; /* place in `nics` of each device's adapter, a hex digit each */
	enum link_kind nic_link;
	double nic_bandwidth, nic_latency;
	/* Between nodes. */
	int domain; /* nodes that one NVLink fabric joins; 0: none */
	/* nodes a leaf, leaves a spine; unit 0: not known, all nodes alike far apart */
	int unit, group;
	bool rails;
};

/* The row of that name (`len` characters), NULL when there is none; row i, NULL past the end. */
const struct box *topo_box_named(const char *name, size_t len);
const struct box *topo_box_at(int i);

/* A kind with its parts, owned by the caller (topo_cluster_free). */
int topo_box_kind(const struct box *b, struct node_kind *out, struct err *e);

/* The switches over the nodes of a cluster of boxes: boxes[k] is kind k. Nodes of one kind lie side
 * by side. Sets the nodes' leaves and domains, and rails. */
int topo_fabric_build(struct cluster *c, const struct box *const *boxes, struct err *e);

#endif
