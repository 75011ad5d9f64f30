/* internal — what the discovery's files share; for them and their tests alone. */
#ifndef MUSTER_TOPO_DISCOVER_INTERNAL_H
#define MUSTER_TOPO_DISCOVER_INTERNAL_H

#include "topo/cluster.h"
#include "topo/discover/nvml.h"
#include "topo/host.h"

/*
 * pci.c: fills in what hwloc's view of the PCI devices tells of a kind: packages and caches, the adapters (k->nics), and for
 * each part, found by its bus address, its NUMA domain, cores and nearest adapter, and the way to each other part
 * (k->links, where it is LINK_UNKNOWN). Parts that hwloc does not show stay as they are.
 */
int pci_fill(struct node_kind *k, struct err *e);

/* Bandwidth of one adapter, bytes/s in one direction, from sysfs; 0: not told. infiniband: "mlx5_0", else "eth0". */
double net_of_adapter(const char *name, bool infiniband);

/*
 * probe.c: this host with its parts. GPUs are its slots where the driver shows any; else it is kind_of_host's, with its adapters.
 * `fabric` is nvml_host's. library: NVML's.
 */
int probe_kind(const char *library, struct node_kind *out, char fabric[NVML_FABRIC], struct err *e);
/* The same as a cluster of one node. */
int cluster_probe_local(const char *library, struct cluster *out, char fabric[NVML_FABRIC], struct err *e);

/* kinds.c: whether nodes are equal, but for what differs between equal machines too. */
bool kind_same(const struct node_kind *a, const struct node_kind *b);
/* Node i of c, which has room for n kinds, is of[i]: equal ones become one kind. Takes all that `of` owns; the number of kinds. */
int kinds_join(struct node_kind *of, int n, struct cluster *c);

#endif
