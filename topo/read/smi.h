/*
 * smi — a table of nvidia-smi's as it was read, and what its NVLinks mean. For this room alone.
 *
 * NVLinks of more than SMI_LANES to all peers together, more than any GPU has, are ports to a
 * switch: then every number is the whole port.
 */
#ifndef MUSTER_TOPO_READ_SMI_H
#define MUSTER_TOPO_READ_SMI_H

#include "topo/read/machine.h"

enum { SMI_LANES = 18 };

struct smi_column {
	char name[TOPO_NAME];
	int gpu, nic; /* which of either, -1: not one */
};

struct smi_table {
	const char *file;
	struct smi_column *columns; /* of the matrix alone */
	int n, gpus, nics;
	bool numa;     /* a column of NUMA affinity follows that of CPUs */
	bool gpu_numa; /* and then one of the GPU's own memory, which is never blank */
	/* [gpus × n]: in the order of GPUs, then adapters, set when known */
	enum link_kind *near;
	int *lanes;                    /* [gpus × gpus] */
	bool *seen;                    /* [gpus] */
	struct found_gpu *found;       /* [gpus]: affinities */
	const struct gpu_model *model; /* what the lines of nvidia-smi -L name */
	char label[TOPO_NAME];
	bool pcie; /* of nvidia-smi topo -mp */
	struct err *e;
};

/* Adds the links between the machine's GPUs, which are the table's in its order. */
int topo_smi_links(const struct smi_table *t, struct machine *m);

#endif
