/*
 * cluster — the hardware: nodes, their devices and network adapters, the links between them, and the
 * switches.
 *
 * The description is the same whether it was discovered, read from a file (topo/read/), or built
 * from a preset ("dgx-h100:128"). Units: bytes, bytes/s, seconds, FLOP/s. Bandwidths are for one
 * direction. A figure of 0 and an index of -1 mean "unknown".
 *
 * Nodes of one kind are equal. A kind always has totals. Where they are known, it also has parts:
 * each device, each network adapter, and the link between any two devices. Parts and totals agree.
 *
 * Each node is attached to a leaf switch, and the switches form a tree. Nodes of one `domain` also
 * share an NVLink fabric (GB200 NVL72: 18 trays of 4 GPUs): their devices communicate at the kind's
 * `link_bandwidth`, as they do inside a node.
 */
#ifndef MUSTER_TOPO_CLUSTER_H
#define MUSTER_TOPO_CLUSTER_H

#include "base/buf.h"
#include "base/err.h"
#include "topo/measured.h"
#include "topo/measured_chip.h"

#include <stdbool.h>
#include <stdint.h>

enum { TOPO_NAME = 64, TOPO_CPUS = 128 };

/* The path between two parts of a node, named after the slowest bridge on it. The order is that of
 * nvidia-smi: later values are nearer. */
enum link_kind {
	LINK_UNKNOWN,
	LINK_SYS,      /* between NUMA domains, over the socket interconnect */
	LINK_NODE,     /* between host bridges of one NUMA domain */
	LINK_PHB,      /* over one PCIe host bridge, the CPU */
	LINK_PXB,      /* over several PCIe switches */
	LINK_PIX,      /* over one PCIe switch */
	LINK_XGMI,     /* a direct link between AMD GPUs */
	LINK_NVLINK,   /* direct */
	LINK_NVSWITCH, /* through a switch: every pair can use the full bandwidth of its devices */
	LINK_SELF,
	LINK_KINDS
};
/* "SYS", "PIX", "NVL", … */
const char *topo_link_word(enum link_kind kind);

/* Between two devices of a node. */
struct topo_link {
	enum link_kind kind;
	/* parallel NVLink or xGMI links; 0: another kind of link, or unknown */
	int lanes;
	double bandwidth, latency;
};

struct topo_device {
	char name[TOPO_NAME]; /* "GPU0" */
	char bus[16];         /* PCI address, "0000:1b:00.0", or "" */
	int numa;             /* domain, counted from 0 */
	char cpus[TOPO_CPUS]; /* nearest cores, a kernel cpu list, or "" */
	int nic;              /* nearest adapter, index into nics */
	enum link_kind nic_link;
	int pcie,
		pcie_width; /* highest generation and width of the device and its slot; 0: unknown */
	int nvlink;         /* generation of its NVLinks; 0: none, or unknown */
	bool mig;           /* partitioned (MIG): a process gets one instance */
};

struct topo_nic {
	char name[TOPO_NAME]; /* "mlx5_0" */
	char bus[16];
	int numa;
	double bandwidth;
};

struct node_kind {
	char name[TOPO_NAME];   /* "dgx-h100", "local" */
	char device[TOPO_NAME]; /* "H100-SXM5-80GB", "cpu" */
	int devices;            /* slots for agents on a node */
	int cores, numa;        /* physical cores, NUMA domains */
	int packages, caches;   /* sockets; last-level caches */
	double cache;           /* bytes of one last-level cache */
	double memory;          /* host memory of the node */
	double device_memory;
	double device_flops;     /* dense matrix products in 2-byte types; for CPUs in fp32 */
	double device_bandwidth; /* memory bandwidth of a device */
	/* from a device to the others of its node: all of its links together where a switch
	 * connects them, otherwise the best link of a pair */
	double link_bandwidth, link_latency;
	double net_bandwidth, net_latency; /* between nodes, per device */
	/* all pairs can use the full bandwidth at once, as with NVSwitch */
	bool switched;
	/* Parts; NULL where they are unknown. */
	struct topo_device *parts; /* [devices] */
	struct topo_nic *nics;     /* [n_nics] */
	int n_nics;
	struct measured *measured;  /* one allocation; NULL: not calibrated */
	struct measured_chip *chip; /* of GPUs, likewise */
	/* [devices × devices]; row i holds the links of device i; the diagonal is LINK_SELF */
	struct topo_link *links;
	/* what the source does not contain, for people, such as "NVLinks, which this file
	 * leaves to the driver", and what is assumed in its place; or "" */
	char unsaid[512];
};

struct cluster_node {
	char name[TOPO_NAME];
	int kind;   /* index into kinds */
	int leaf;   /* index into switches */
	int domain; /* the NVLink fabric that it shares with other nodes, counted from 0 */
};

struct cluster_switch {
	char name[TOPO_NAME];
	int parent; /* index into switches, lower than its own; -1: a root */
	/* bandwidth of all links to the parent together; 0: as much as its children can send */
	double up;
};

struct cluster {
	char name[TOPO_NAME];
	struct node_kind *kinds;
	int n_kinds;
	struct cluster_node *nodes;
	int n_nodes;
	struct cluster_switch *switches; /* NULL: all nodes are equally far apart */
	int n_switches;
	/* rail-optimized: a leaf connects the n-th adapters of its nodes; other adapters are
	 * connected one level higher */
	bool rails;
	/* source of figures that are neither a preset's nor estimates, or "" */
	char figures[320];
};

/* Opens the cluster that `spec` names:
 *   "local"                             this host with `devices` slots; 0: one per core
 *   "slurm"                             the allocation that this process runs in
 *   PRESET[:NODES][+PRESET[:NODES]…]    presets
 *   PATH[:NODES]                        a file in a format of topo/read/; the path contains '/' or
 *                                       ends in .xml, .json or .txt */
int topo_cluster_open(const char *spec, int devices, struct cluster *out, struct err *e);
/* As topo_cluster_open, but examines the machines. On a host with GPUs ("auto" and "local") the GPUs
 * are the slots, with their links and adapters. The nodes of an allocation ("auto" and "slurm") are
 * examined in one job step; unless `fresh`, the results of nodes that have not rebooted since come
 * from a cache. This takes tens of milliseconds on a host, and a second or more for the step. */
int topo_cluster_probe(const char *spec, bool fresh, struct cluster *out, struct err *e);
/* Appends this host's report of such a step: lines that the asking process reads
 * (topo/discover/internal.h). */
int topo_cluster_report(struct buf *out, struct err *e);
void topo_cluster_free(struct cluster *c);

int topo_cluster_devices(const struct cluster *c);
const struct node_kind *topo_cluster_kind(const struct cluster *c, int node);

/* A device of a node that an agent can use. */
struct cluster_slot {
	int node, device;
};
/* A copy of `all` without the slots `gone`; device -1: the whole node. A node without devices is left
 * out, so nodes and devices get other indices, and names and PCI addresses stay. ERR_NOFIT: nothing
 * is left. */
int topo_cluster_without(const struct cluster *all, const struct cluster_slot *gone, int n,
			 struct cluster *out, struct err *e);
/* The link between two devices of a node of this kind: from the parts, otherwise from the totals. */
struct topo_link topo_cluster_link(const struct node_kind *k, int a, int b);
/* Levels of switches that a message between two nodes passes: 0 for the same node, 1 for the same
 * leaf, and one more per level. Nodes without a common switch: one more than the height of the tree.
 * Without switches: 1. */
int topo_cluster_hops(const struct cluster *c, int a, int b);
/* Whether the devices of two nodes share an NVLink fabric; true also for the same node. */
bool topo_cluster_share_nvlink(const struct cluster *c, int a, int b);

#endif
