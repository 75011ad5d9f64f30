/*
 * cluster — what the hardware is: nodes, their devices and adapters, the links between them, the
 * switches.
 *
 * One description, whether it was discovered, imported (topo/read/), or is a preset
 * ("dgx-h100:128"). Units: bytes, bytes/s, seconds, FLOP/s. Bandwidths are for one direction. A
 * figure of 0 is unknown, an index of -1 too.
 *
 * Nodes of one kind are equal. A kind has totals that every reader can use, and, where they are
 * known, its parts: each device, each network adapter, the link between any two devices. The totals
 * are always there; parts agree with them.
 *
 * Between nodes: a node hangs on a leaf switch, switches form a tree. Nodes of one `domain` also
 * share an NVLink fabric (GB200 NVL72: 18 trays of 4 GPUs): their devices reach each other at the
 * kind's `link_bandwidth`, as inside a node.
 */
#ifndef MUSTER_TOPO_CLUSTER_H
#define MUSTER_TOPO_CLUSTER_H

#include "base/buf.h"
#include "base/err.h"
#include "topo/measured.h"

#include <stdbool.h>
#include <stdint.h>

enum { TOPO_NAME = 64, TOPO_CPUS = 128 };

/* How two parts of a node reach each other: the worst bridge on the way. The order is
 * nvidia-smi's: what comes later is nearer. */
enum link_kind {
	LINK_UNKNOWN,
	LINK_SYS,      /* between NUMA domains, over the sockets' interconnect */
	LINK_NODE,     /* between host bridges of one NUMA domain */
	LINK_PHB,      /* over one PCIe host bridge, the CPU */
	LINK_PXB,      /* over several PCIe switches */
	LINK_PIX,      /* over one PCIe switch */
	LINK_XGMI,     /* AMD's direct link */
	LINK_NVLINK,   /* direct */
	LINK_NVSWITCH, /* over a fabric that gives every pair the devices' whole port */
	LINK_SELF,
	LINK_KINDS
};
/* "SYS", "PIX", "NVL", … */
const char *topo_link_word(enum link_kind kind);

/* Between two devices of a node. */
struct topo_link {
	enum link_kind kind;
	/* NVLinks or xGMI links side by side; 0: not of that sort, or not told */
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
	int pcie, pcie_width; /* generation and lanes that it and its slot can; 0: unknown */
	int nvlink;           /* generation of its NVLinks; 0: none, or unknown */
	bool mig;             /* parted (MIG): a process gets one instance of it */
};

struct topo_nic {
	char name[TOPO_NAME]; /* "mlx5_0" */
	char bus[16];
	int numa;
	double bandwidth;
};

struct node_kind {              /* nodes of one kind are equal */
	char name[TOPO_NAME];   /* "dgx-h100", "local" */
	char device[TOPO_NAME]; /* "H100-SXM5-80GB", "cpu" */
	int devices;            /* slots for agents on a node */
	int cores, numa;        /* physical cores, NUMA domains */
	int packages, caches;   /* sockets; last-level caches */
	double cache;           /* bytes of one of those */
	double memory;          /* host memory of the node */
	double device_memory;
	double device_flops;     /* dense matrix products in 2-byte types; of CPUs in fp32 */
	double device_bandwidth; /* memory bandwidth of a device */
	/* of a device to the others of its node: its whole port where a switch joins them, else
	 * a pair's best link */
	double link_bandwidth, link_latency;
	double net_bandwidth, net_latency; /* between nodes, per device */
	/* all pairs at once have the whole port: NVSwitch, or a GPU box's fabric */
	bool switched;
	/* Parts: NULL where they are not known. */
	struct topo_device *parts; /* [devices] */
	struct topo_nic *nics;     /* [n_nics] */
	int n_nics;
	struct measured *measured; /* one block; NULL: not calibrated */
	/* [devices × devices], row i: from device i; the diagonal is LINK_SELF */
	struct topo_link *links;
	/* what the source does not say, for people: "NVLinks, which this file leaves to the
	 * driver", or "" */
	char unsaid[256];
};

struct cluster_node {
	char name[TOPO_NAME];
	int kind;   /* index into kinds */
	int leaf;   /* index into switches */
	int domain; /* NVLink fabric that it shares with other nodes, counted from 0 */
};

struct cluster_switch {
	char name[TOPO_NAME];
	int parent; /* index into switches, above its own; -1: a top */
	/* of all links to the parent together; 0: as much as what hangs below can send */
	double up;
};

struct cluster {
	char name[TOPO_NAME];
	struct node_kind *kinds;
	int n_kinds;
	struct cluster_node *nodes;
	int n_nodes;
	struct cluster_switch *switches; /* NULL: all nodes are alike far apart */
	int n_switches;
	/* a leaf joins the n-th adapters of its nodes; adapters of different places meet one
	 * level higher */
	bool rails;
	/* where figures come from that are neither a preset's nor estimates, or "" */
	char figures[320];
};

/* "local" (this host, `devices` slots; 0: one a core), "slurm" (the allocation this process runs
 * in), a preset or a sum of such, PRESET[:NODES][+PRESET[:NODES]…], or a file that topo/read/
 * knows, PATH[:NODES] (a PATH holds a '/' or ends in .xml, .json or .txt). */
int topo_cluster_open(const char *spec, int devices, struct cluster *out, struct err *e);
/* The same after a closer look, where the machines can be asked: GPUs are the slots of a host that
 * has any ("auto" and "local"), with their links and adapters; an allocation's nodes are all asked
 * in one step of it ("auto" and "slurm"), or, unless `fresh`, taken from a cache where they were
 * asked since they booted. Takes tens of milliseconds; the step up to a second and more. */
int topo_cluster_probe(const char *spec, bool fresh, struct cluster *out, struct err *e);
/* What this host says in such a step: lines for the process that asks
 * (topo/discover/internal.h). */
int topo_cluster_report(struct buf *out, struct err *e);
void topo_cluster_free(struct cluster *c);

int topo_cluster_devices(const struct cluster *c);
const struct node_kind *topo_cluster_kind(const struct cluster *c, int node);

/* A place for an agent. */
struct cluster_slot {
	int node, device;
};
/* The link between two devices of a node of this kind: the parts' own, else the totals'. */
struct topo_link topo_cluster_link(const struct node_kind *k, int a, int b);
/* Levels of switches up to where two nodes meet: 0 the same node, 1 the same leaf, then one more a
 * level; one more than the tree is high where they meet nowhere. Without switches: 1. */
int topo_cluster_hops(const struct cluster *c, int a, int b);
/* Whether two nodes' devices reach each other over one NVLink fabric, or they are the same node. */
bool topo_cluster_joined(const struct cluster *c, int a, int b);

#endif
