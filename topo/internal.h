/* internal — declarations for the files of topo/ and their tests only. */
#ifndef MUSTER_TOPO_INTERNAL_H
#define MUSTER_TOPO_INTERNAL_H

#include "topo/cluster.h"
#include "topo/host.h"

#include <stddef.h>

/* Each sets *out only on success; the caller frees it with topo_cluster_free. */
int topo_cluster_local(int devices, struct cluster *out, struct err *e);
int topo_cluster_slurm(struct cluster *out, struct err *e);
int topo_cluster_preset(const char *spec, struct cluster *out, struct err *e);

/* The largest number of nodes of a cluster. */
enum { NODES_MAX = 65536 };
/* Parses a number of nodes from 1 to NODES_MAX that consists of digits only; otherwise -1. */
long topo_node_count_of(const char *text, size_t len);

/* Allocates a cluster with zeroed kinds and nodes. */
int topo_cluster_alloc(const char *name, int kinds, int nodes, struct cluster *out, struct err *e);

/* Estimated latency of a link in seconds, good enough to rank plans. */
double topo_link_latency(enum link_kind kind);
/* The highest bandwidth of PCIe traffic between two sockets, bytes/s: between NCCL's 9 GB/s for
 * Broadwell's QPI and 22 GB/s for Sapphire Rapids (src/graph/topo.h in NCCL). */
#define SYS_BANDWIDTH 16e9

/* Frees a kind's parts. */
void topo_kind_free(struct node_kind *k);

/* This host without its devices: a kind with `devices` CPU slots that share the host. */
int topo_kind_of_host(int devices, struct node_kind *out, struct err *e);

/* The memory limit of this process's control groups in bytes, version 1 or 2; 0: no limit.
 * membership: the text of /proc/self/cgroup; mount: the folder /sys/fs/cgroup. */
double topo_cgroup_memory(const char *membership, const char *mount);

/* Bandwidth (one direction, bytes/s) and latency (s) of this host's fastest network, from sysfs. */
void topo_net_of_host(double *bandwidth, double *latency);

/* topo_bind_cpus on any machine. */
int topo_bind_on(const struct host *h, int slots, int slot, int threads, char *list, int size,
		 struct err *e);

#endif
