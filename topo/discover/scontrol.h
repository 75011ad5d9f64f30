/*
 * scontrol — parses scontrol's descriptions of nodes and switches.
 *
 * Tested with Slurm 22.05, and written from the sources of newer versions: `scontrol --oneliner show node`
 * and `scontrol show topology` of the plugins tree (SwitchName=… Level=… Nodes=… Switches=…) and
 * block (BlockName=… BlockIndex=… Nodes=…). Unknown keys are skipped and
 * missing keys leave their values unknown. Any text gives either a description or an error.
 */
#ifndef MUSTER_TOPO_DISCOVER_SCONTROL_H
#define MUSTER_TOPO_DISCOVER_SCONTROL_H

#include "topo/cluster.h"
#include "topo/hostlist.h"

/* Copies the value of the first KEY=value of the line. false: it is missing, empty, "(null)", or
 * longer than `out`; out is "" then. Slurm's own keys come before texts that people write (OS,
 * Reason, Comment), except a job's JobName. */
bool topo_scontrol_field(const char *line, const char *key, char *out, size_t size);

struct slurm_node {
	char name[TOPO_NAME];
	int gpus;                    /* in Gres, all types */
	char gpu[TOPO_NAME];         /* name of the first type, "h100", or "" */
	int sockets, cores, threads; /* cores per socket, threads per core */
	double memory;               /* bytes */
	char boot[32];               /* BootTime, or "" */
	char features[128];          /* ActiveFeatures, or "" */
};

/* The caller frees *nodes. Lines that describe no node are skipped. */
int topo_scontrol_nodes(const char *text, struct slurm_node **nodes, int *n, struct err *e);

/* Attaches c's nodes, which have no leaf and no domain yet, to the switches of the text; switches
 * without nodes are dropped. Blocks become leaves. They also become domains of the nodes whose
 * devices have NVLink beyond the node (`joins`, by index of the node; NULL: none). Without a
 * topology in the text nothing changes. */
int topo_scontrol_topology(const char *text, const bool *joins, struct cluster *c, struct err *e);

/* The number of GPUs in a Gres or TRES text, "gpu:h100:8(S:0-1),nic:2" or SLURM_GPUS_PER_NODE's "h100:2"; type
 * may be NULL. */
int topo_scontrol_gpus(const char *text, bool named, char type[TOPO_NAME]);

#endif
