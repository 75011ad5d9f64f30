/*
 * gpus — the GPU models that muster knows: how each is recognized, and its figures.
 *
 * One table (gpus.c), used by the presets and by every reader of machine descriptions. A figure
 * of 0 is unknown. The figures come from data sheets, not from measurements: rates without
 * sparsity, bandwidths for one direction. Each row names its source.
 *
 * To add a model, add a row to gpus.c: its name, the words of its name in the driver, its PCI
 * device ids, its figures and their source. tests/unit/topo/test_gpus.c checks the table.
 */
#ifndef MUSTER_TOPO_GPUS_H
#define MUSTER_TOPO_GPUS_H

#include "topo/cluster.h"

enum { GPU_IDS = 8 };
enum { PCI_NVIDIA = 0x10de, PCI_AMD = 0x1002 };

/* How the boards of a model join their GPUs. */
enum gpu_join {
	JOIN_BRIDGE,        /* not at all, or by bridges that a machine may or may not have */
	JOIN_SWITCH,        /* boards of 8 or more by switches, boards of 4 directly */
	JOIN_ALWAYS_SWITCH, /* also boards of 4, as in an NVLink rack */
	JOIN_MESH,          /* any two directly */
	JOIN_CUBE,          /* boards of 8 as a hybrid cube mesh, boards of 4 directly */
};

struct gpu_model {
	const char *name; /* muster's name: "H100-SXM5-80GB" */
	/* space-separated words that the driver's name must all contain, in any case: "h100 hbm3";
	 * "": recognized only by its ids */
	const char *words;
	int vendor, ids[GPU_IDS]; /* PCI; the list of ids ends with 0 */
	/* NVIDIA: compute capability × 10, as in NCCL's `sm`; AMD: the number after "gfx" as
	 * hexadecimal, 0x90a */
	int arch;
	/* dense matrix products in bf16, in fp16 where there is no bf16 or it is faster */
	double flops;
	double memory, bandwidth;
	enum link_kind link; /* LINK_NVLINK, LINK_XGMI, or LINK_UNKNOWN: PCIe only */
	int lanes;           /* of the device */
	double lane;         /* bandwidth of one lane */
	enum gpu_join join;
};

/* These functions return a row of the table, or NULL if none matches.
 * Finds a model by muster's name. */
const struct gpu_model *topo_gpu_of_name(const char *name);
/* Finds a model by its PCI ids. */
const struct gpu_model *topo_gpu_of_pci(int vendor, int device);
/* Finds a model by the driver's name ("NVIDIA H100 80GB HBM3"): the row with the most matching
 * words. */
const struct gpu_model *topo_gpu_of_driver_name(const char *text);
/* Finds a model by its name in Slurm's Gres or features: the driver's name with underscores, or the
 * beginning of muster's name, such as "a100". The first matching row counts. */
const struct gpu_model *topo_gpu_of_gres(const char *type);
/* Finds the first row of that vendor with this architecture. An architecture can have several
 * models and the most common one is returned, so only lanes and their bandwidth are reliable. */
const struct gpu_model *topo_gpu_of_arch(int vendor, int arch);

/* Row i, for iteration; NULL past the end. */
const struct gpu_model *topo_gpu_at(int i);

/* Sets the device fields of a node_kind from the model. */
void topo_gpu_fill(const struct gpu_model *m, struct node_kind *k);

#endif
