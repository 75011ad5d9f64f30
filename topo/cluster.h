/*
 * cluster — what the hardware is: nodes, devices, links.
 *
 * One description, whether it was discovered with hwloc, read from Slurm, or
 * is a preset ("dgx-h100:128"). Units: bytes, bytes/s, seconds, FLOP/s. A figure of 0 is unknown.
 */
#ifndef MUSTER_TOPO_CLUSTER_H
#define MUSTER_TOPO_CLUSTER_H

#include "base/err.h"

#include <stdint.h>

struct node_kind {           /* nodes of one kind are equal */
	char name[64];       /* "dgx-h100", "local" */
	char device[64];     /* "H100-SXM5-80GB", "cpu" */
	int devices;         /* slots for agents on a node */
	int cores, numa;     /* physical cores, NUMA domains */
	double memory;       /* host memory of the node */
	double device_memory;
	double device_flops; /* dense matrix products, the training type */
	double device_bandwidth; /* memory bandwidth of a device */
	double link_bandwidth, link_latency; /* between two devices of a node, per device and direction */
	double net_bandwidth, net_latency;   /* between nodes, per device and direction */
};

struct cluster_node {
	char name[64];
	int kind;            /* index into kinds */
};

struct cluster {
	char name[64];
	struct node_kind *kinds;
	int n_kinds;
	struct cluster_node *nodes;
	int n_nodes;
	char figures[320];   /* where figures come from that are neither a preset's nor estimates, or "" */
};

void cluster_free(struct cluster *c);
int cluster_devices(const struct cluster *c);

/* "local" (this host, `devices` slots; 0: one a core), "slurm" (the allocation
 * this process runs in), or PRESET:NODES. */
int cluster_open(const char *spec, int devices, struct cluster *out, struct err *e);

#endif
