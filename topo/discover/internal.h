/* internal — what the discovery's files share; for them and their tests alone. */
#ifndef MUSTER_TOPO_DISCOVER_INTERNAL_H
#define MUSTER_TOPO_DISCOVER_INTERNAL_H

#include "base/buf.h"
#include "topo/cluster.h"
#include "topo/discover/nvml.h"
#include "topo/host.h"
#include "topo/hostlist.h"

/*
 * pci.c: fills in what hwloc's view of the PCI devices tells of a kind: packages and caches, the
 * adapters (k->nics), and for each part, found by its bus address, its NUMA domain, cores and
 * nearest adapter, and the way to each other part (k->links, where it is LINK_UNKNOWN). Parts that
 * hwloc does not show stay as they are.
 */
int topo_pci_fill(struct node_kind *k, struct err *e);

/* Bandwidth of one adapter, bytes/s in one direction, from sysfs; 0: not told. infiniband:
 * "mlx5_0", else "eth0". */
double topo_net_of_adapter(const char *name, bool infiniband);

/*
 * probe.c: this host with its parts. GPUs are its slots where the driver shows any; else it is
 * topo_kind_of_host's, with its adapters. `fabric` is nvml_host's. library: NVML's.
 */
int topo_probe_kind(const char *library, struct node_kind *out, char fabric[NVML_FABRIC],
		    struct err *e);
/* The same as a cluster of one node. */
int topo_cluster_probe_local(const char *library, struct cluster *out, char fabric[NVML_FABRIC],
			     struct err *e);

/* kinds.c: whether nodes are equal, but for what differs between equal machines too. */
bool topo_kind_same(const struct node_kind *a, const struct node_kind *b);
/* Node i of c, which has room for n kinds, is of[i]: equal ones become one kind. Takes all that
 * `of` owns; the number of kinds. */
int topo_kinds_join(struct node_kind *of, int n, struct cluster *c);

enum { TOPOLOGY_MOST = 64 << 20 }; /* bytes of an answer of Slurm's controller */

/* slurm.c: what the environment tells of the allocation, per node. */
struct allocation {
	struct hostlist nodes;
	int *devices, *cpus; /* cpus 0: not told */
};
int topo_allocation_read(struct allocation *a, struct err *e);
void topo_allocation_free(struct allocation *a);
/* Node i as if it were this host, with the devices and cores that the environment tells. */
int topo_allocation_kind(const struct allocation *a, int i, struct node_kind *out, struct err *e);

/*
 * report.c: what a node tells of itself when all are asked (nodes.h), as "muster-topo": the fabric
 * of nvml_host ("-": none), a blank, and the node as a cluster of one (topo/json.h) on one line.
 */
struct report {
	bool there;
	struct node_kind kind; /* owned */
	char fabric[NVML_FABRIC];
};
int topo_report_print(const struct cluster *local, const char *fabric, struct buf *out,
		      struct err *e);
/* Fills the reports of the nodes that told all of theirs. */
int topo_report_parse(const char *text, const struct hostlist *nodes, struct report *reports,
		      struct err *e);
/* Asks every node of the allocation. Fails when not one told anything; else a node that is
 * silent has no report. */
int topo_report_ask(const struct hostlist *nodes, struct report *reports, struct err *e);

/*
 * cache.c: clusters that were asked for, one file a list of nodes, in $XDG_CACHE_HOME/muster, else
 * ~/.cache/muster. An entry holds for allocations of the same share of the same nodes as long as
 * each of them has not booted, a day at the most.
 */
enum { CACHE_SHARE = 24 };
struct cache_key {
	const struct hostlist *nodes;
	char (*boots)[32];       /* [nodes]: BootTime */
	char share[CACHE_SHARE]; /* what of each node belongs to the allocation */
};
/* 0, or -1 with the reason, which is ERR_NOTFOUND when there is simply none and ERR_STALE when
 * it does not hold. */
int topo_cache_read(const struct cache_key *key, struct cluster *out, struct err *e);
int topo_cache_write(const struct cache_key *key, const struct cluster *c, struct err *e);

/* asked.c: the allocation, every node asked; fresh: without the cache. */
int topo_cluster_asked(bool fresh, struct cluster *out, struct err *e);

#endif
