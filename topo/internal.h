/* internal — what the files of this room share; for them and their tests alone. */
#ifndef MUSTER_TOPO_INTERNAL_H
#define MUSTER_TOPO_INTERNAL_H

#include "topo/cluster.h"
#include "topo/host.h"

#include <stddef.h>

/* Each sets *out only on success; the caller frees it with topo_cluster_free. */
int topo_cluster_local(int devices, struct cluster *out, struct err *e);
int topo_cluster_slurm(struct cluster *out, struct err *e);
int topo_cluster_preset(const char *spec, struct cluster *out, struct err *e);

/* Nodes that a cluster may have. */
enum { NODES_MOST = 65536 };
/* A number of nodes from 1 to NODES_MOST, written in digits alone; else -1. */
long topo_nodes_in(const char *text, size_t len);

/* An empty cluster with that many kinds and nodes, zeroed. */
int topo_cluster_alloc(const char *name, int kinds, int nodes, struct cluster *out, struct err *e);

/* Seconds from one device to another over such a link: an estimate that orders plans. */
double topo_link_latency(enum link_kind kind);
/* What two sockets pass on of PCIe traffic at most: between NCCL's 9 GB/s for Broadwell's QPI
 * and 22 for Sapphire Rapids (src/graph/topo.h). */
#define SYS_BANDWIDTH 16e9

/* Frees a kind's parts. */
void topo_kind_free(struct node_kind *k);

/* What is known of this host without asking a device: a kind with `devices` CPU slots that share
 * it. */
int topo_kind_of_host(int devices, struct node_kind *out, struct err *e);

/* Bytes that this process's control groups allow, by the lines of `membership` (/proc/self/cgroup)
 * and the limits below `mount` (/sys/fs/cgroup), of either version; 0: no limit. */
double topo_cgroup_memory(const char *membership, const char *mount);

/* Bandwidth (one direction, bytes/s) and latency (s) of this host's fastest network, from sysfs. */
void topo_net_of_host(double *bandwidth, double *latency);

/* topo_bind_cpus on any machine. */
int topo_bind_on(const struct host *h, int slots, int slot, int threads, char *list, int size,
		 struct err *e);

#endif
