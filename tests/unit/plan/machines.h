/* machines — clusters made by hand, for tests of placement. Figures are round; shapes are those
 * of the machines. */
#ifndef MUSTER_TESTS_PLAN_MACHINES_H
#define MUSTER_TESTS_PLAN_MACHINES_H

#include "topo/cluster.h"

/* Bytes a second. */
#define MACHINE_NVLINK  25e9 /* one NVLink 2 */
#define MACHINE_PCIE    10e9
#define MACHINE_SOCKETS 8e9
#define MACHINE_SWITCH  450e9
#define MACHINE_NET     50e9

enum machine {
	MACHINE_PLAIN, /* 8 devices behind a switch, an adapter each; no parts */
	/* 8 V100 in the hybrid cube mesh, 4 adapters, one for each PCIe switch of two */
	MACHINE_DGX1,
	MACHINE_DGX1_DEAD, /* the same, the double NVLink between GPU 0 and GPU 3 dead */
	MACHINE_DGX2,      /* 16 V100, NVSwitch, 8 adapters for two each */
	MACHINE_H100,      /* 8 H100, NVSwitch, an adapter each */
	MACHINE_HALF,      /* the same with 4 */
	MACHINE_PCIE4,     /* 4 devices, two on each of two sockets, one adapter */
	MACHINE_TRAY,      /* 4 of a fabric */
	MACHINES
};

/* So many nodes of each, in this order; kinds that are not asked for are not there. For
 * topo_cluster_free. */
struct cluster machines(const enum machine *kinds, const int *nodes, int n);
struct cluster machines_alike(enum machine kind, int nodes);
/* Leaves of so many nodes under one spine, whose links to it are 1/over of what the leaf's
 * adapters send; rails as told. */
void machines_tree(struct cluster *c, int leaf, double over, bool rails);

#endif
