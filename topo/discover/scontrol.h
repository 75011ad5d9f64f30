/*
 * scontrol — what Slurm's controller says of nodes and switches, read from the text of its command.
 *
 * Tried with Slurm 22.05; written after the source of newer ones: `scontrol --oneliner show node`
 * and `scontrol show topology` of the plugins tree (SwitchName=… Level=… Nodes=… Switches=…) and
 * block (BlockName=… BlockIndex=… Nodes=…). Keys that are not known are passed over, those that are
 * missing are unknown; whatever the text holds, the answer is a description or an error.
 */
#ifndef MUSTER_TOPO_DISCOVER_SCONTROL_H
#define MUSTER_TOPO_DISCOVER_SCONTROL_H

#include "topo/cluster.h"
#include "topo/hostlist.h"

struct slurm_node {
	char name[TOPO_NAME];
	int gpus;                    /* of Gres, all types */
	char gpu[TOPO_NAME];         /* the first type's name, "h100", or "" */
	int sockets, cores, threads; /* cores: a socket; threads: a core */
	double memory;               /* bytes */
	char boot[32];               /* BootTime, "" where it is not told */
	char features[128];          /* ActiveFeatures, or "" */
};

/* *nodes is to be freed; lines of no node are passed over. */
int topo_scontrol_nodes(const char *text, struct slurm_node **nodes, int *n, struct err *e);

/* Hangs c's nodes on the switches that hold them, and keeps those switches alone that do. Blocks
 * become leaves, and domains of those nodes whose devices have NVLink beyond the node (`joins`: by
 * index of the node, NULL: none). No topology in the text: nothing changes. The nodes come with no
 * leaf and no domain. */
int topo_scontrol_topology(const char *text, const bool *joins, struct cluster *c, struct err *e);

/* GPUs of a Gres or TRES text, "gpu:h100:8(S:0-1),nic:2" or SLURM_GPUS_PER_NODE's "h100:2"; type
 * may be NULL. */
int topo_scontrol_gpus(const char *text, bool named, char type[TOPO_NAME]);

#endif
