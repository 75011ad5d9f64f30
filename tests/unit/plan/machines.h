/* machines — clusters made by hand, for tests of placement. The figures are round; the shapes are
 * those of the real machines. */
#ifndef MUSTER_TESTS_PLAN_MACHINES_H
#define MUSTER_TESTS_PLAN_MACHINES_H

#include "topo/cluster.h"

/* Bytes per second. */
#define MACHINE_NVLINK  25e9 /* one NVLink 2 */
#define MACHINE_PCIE    10e9
#define MACHINE_SOCKETS 8e9
#define MACHINE_SWITCH  450e9
#define MACHINE_NET     50e9

enum machine {
	MACHINE_SWITCHED, /* 8 devices behind a switch, a NIC each; no parts */
	/* 8 V100 in the hybrid cube mesh, 4 NICs, one for each PCIe switch of two */
	MACHINE_DGX1,
	MACHINE_DGX1_DEAD, /* the same, but the double NVLink between GPU 0 and GPU 3 is dead */
	MACHINE_DGX2,      /* 16 V100, NVSwitch, 8 NICs for two each */
	MACHINE_H100,      /* 8 H100, NVSwitch, a NIC each */
	MACHINE_HALF,      /* the same with 4 */
	MACHINE_PCIE4,     /* 4 devices, two on each of two sockets, one NIC */
	MACHINE_TRAY,      /* 4 devices of a fabric */
	MACHINES
};

/* Makes a cluster of nodes[i] nodes of kinds[i], in this order. It holds only the kinds that the
 * caller asks for. Free it with topo_cluster_free. */
struct cluster machines(const enum machine *kinds, const int *nodes, int n);
struct cluster machines_equal(enum machine kind, int nodes);
/* Puts the nodes on leaves of `leaf` nodes under one spine. A leaf's links to the spine have 1/over
 * of the bandwidth of its NICs. rails: as in the cluster. */
void machines_tree(struct cluster *c, int leaf, double over, bool rails);

#endif
