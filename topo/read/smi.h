/*
 * smi — the parsed matrix of `nvidia-smi topo -m`, and the meaning of its NVLinks. For topo/read/
 * only.
 *
 * If the NVLinks of a GPU to all peers add up to more than SMI_LANES, which is more than any GPU
 * has, they lead to a switch, and each number counts all links of the GPU.
 */
#ifndef MUSTER_TOPO_READ_SMI_H
#define MUSTER_TOPO_READ_SMI_H

#include "topo/read/found.h"

enum { SMI_LANES = 18 };

struct smi_column {
	char name[TOPO_NAME];
	int gpu, nic; /* number of the GPU or adapter; -1: the column is not one */
};

struct smi_table {
	const char *file;
	struct smi_column *columns; /* only those of the matrix */
	int n, gpus, nics;
	bool numa;     /* a NUMA affinity column follows the CPU affinity */
	bool gpu_numa; /* and then a column of the GPU's own NUMA node, which is never empty */
	/* [gpus × n], GPUs first, then adapters; set when known */
	enum link_kind *near;
	int *lanes;                    /* [gpus × gpus] */
	bool *seen;                    /* [gpus] */
	struct found_gpu *found;       /* [gpus]: affinities */
	const struct gpu_model *model; /* from the lines of nvidia-smi -L */
	char label[TOPO_NAME];
	bool pcie; /* the table is from nvidia-smi topo -mp */
	struct err *e;
};

/* Adds the links between the node's GPUs, which are those of the table in its order. */
int topo_smi_links(const struct smi_table *t, struct found_node *m);

#endif
