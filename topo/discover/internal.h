/* internal — declarations for the files of topo/discover/ and their tests only. */
#ifndef MUSTER_TOPO_DISCOVER_INTERNAL_H
#define MUSTER_TOPO_DISCOVER_INTERNAL_H

#include "base/buf.h"
#include "topo/cluster.h"
#include "topo/discover/gpu_state.h"
#include "topo/discover/nvml.h"
#include "topo/discover/nvml_api.h"
#include "topo/host.h"
#include "topo/hostlist.h"

/*
 * pci.c: completes a kind from hwloc's PCI devices: packages, caches and adapters (k->nics). Each
 * part is found by its bus address and gets its NUMA domain, cores, nearest adapter, and its paths
 * to the other parts (those of k->links that are LINK_UNKNOWN). Parts that hwloc does not show are
 * not changed.
 */
int topo_pci_fill(struct node_kind *k, struct err *e);

/* Bandwidth of one adapter, bytes/s in one direction, from sysfs; 0: unknown. infiniband:
 * the name is one like "mlx5_0", otherwise one like "eth0". */
double topo_net_of_adapter(const char *name, bool infiniband);

/*
 * probe.c: this host with its parts. Its slots are the GPUs that the driver shows. Without GPUs it
 * is topo_kind_of_host's result with adapters. fabric: as in nvml_host. library: NVML's path.
 */
int topo_probe_kind(const char *library, struct node_kind *out, char fabric[NVML_FABRIC],
		    struct err *e);
/* As topo_probe_kind, as a cluster of one node. */
int topo_cluster_probe_local(const char *library, struct cluster *out, char fabric[NVML_FABRIC],
			     struct err *e);

/* gpu_state.c: the state of one GPU; *d: its handle. And only why its clock is reduced. */
void topo_gpu_read_state(const struct nvml_api *a, unsigned index, nvml_device_t *d,
			 struct gpu_state *g);
void topo_gpu_read_slow(const struct nvml_api *a, nvml_device_t d, struct gpu_state *g);

/* kinds.c: whether nodes are equal, ignoring what also differs between identical machines. */
bool topo_kind_equal(const struct node_kind *a, const struct node_kind *b);
/* Node i of c is of[i]; equal ones become one kind. c has room for n kinds. Takes ownership of
 * everything in `of`; returns the number of kinds. */
int topo_kind_merge(struct node_kind *of, int n, struct cluster *c);

enum { TOPOLOGY_MAX = 64 << 20 }; /* limit of an answer of Slurm's controller, bytes */

/* slurm.c: the allocation from the environment, per node. */
struct allocation {
	struct hostlist nodes;
	int *devices, *cpus; /* cpus 0: unknown */
};
int topo_allocation_read(struct allocation *a, struct err *e);
void topo_allocation_free(struct allocation *a);
/* Describes node i as if it were this host, with the devices and cores from the environment. */
int topo_allocation_kind(const struct allocation *a, int i, struct node_kind *out, struct err *e);

/*
 * report.c: the report of one node when all are examined (nodes.h), with the tag "muster-topo": the
 * fabric of nvml_host ("-": none), a space, and the node as a cluster of one node (topo/json.h) on
 * one line.
 */
struct report {
	bool there;
	struct node_kind kind; /* owned */
	char fabric[NVML_FABRIC];
};
int topo_report_print(const struct cluster *local, const char *fabric, struct buf *out,
		      struct err *e);
/* Fills the reports of the nodes whose reports are complete. */
int topo_report_parse(const char *text, const struct hostlist *nodes, struct report *reports,
		      struct err *e);
/* Examines every node of the allocation. It fails if no node answered; otherwise nodes that did not
 * answer have no report. */
int topo_report_ask(const struct hostlist *nodes, struct report *reports, struct err *e);

/*
 * cache.c: results of examined clusters, one file per list of nodes, in $XDG_CACHE_HOME/muster or
 * ~/.cache/muster. An entry is valid for allocations of the same share of the same nodes until one
 * of them reboots, and for one day at most.
 */
enum { CACHE_SHARE = 24 };
struct cache_key {
	const struct hostlist *nodes;
	char (*boots)[32];       /* [nodes]: BootTime */
	char share[CACHE_SHARE]; /* the part of each node that belongs to the allocation */
};
struct slurm_node;
/* Sets a key's share from Slurm's environment and from what the controller reports about each of
 * the n nodes (scontrol.h). */
void topo_cache_share(const struct slurm_node *nodes, int n, char out[CACHE_SHARE]);
/* ERR_NOTFOUND: there is no entry; ERR_STALE: it is not valid any more. */
int topo_cache_read(const struct cache_key *key, struct cluster *out, struct err *e);
int topo_cache_write(const struct cache_key *key, const struct cluster *c, struct err *e);

/* examined.c: the allocation, with every node examined; fresh: without the cache. */
int topo_cluster_of_nodes(bool fresh, struct cluster *out, struct err *e);

#endif
