/*
 * gpus — the device models that muster knows: how each is recognised, and what it can do.
 *
 * One table (gpus.c), used by the presets and by every reader of a machine's description. A figure
 * of 0 is not known; no figure is a measurement. Rates are dense ones (no sparsity), bandwidths are
 * for one direction; each row names its source.
 *
 * To add a model: a row in gpus.c with its name, the words in which its driver names it, its PCI
 * device ids, its figures and where they are from. tests/unit/topo/test_gpus.c holds the table
 * together.
 */
#ifndef MUSTER_TOPO_GPUS_H
#define MUSTER_TOPO_GPUS_H

#include "topo/cluster.h"

enum { GPU_IDS = 8 };
enum { PCI_NVIDIA = 0x10de, PCI_AMD = 0x1002 };

struct gpu_model {
	const char *name; /* ours: "H100-SXM5-80GB" */
	/* blank-separated, all in the driver's name whatever the case: "h100 hbm3"; "": known by
	 * its ids alone */
	const char *words;
	int vendor, ids[GPU_IDS]; /* PCI; the ids end at a 0 */
	/* NVIDIA: compute capability × 10, as in NCCL's `sm`; AMD: the number of gfx read as
	 * hex, 0x90a */
	int arch;
	/* dense matrix products in bf16, in fp16 where there is no bf16 or it is faster */
	double flops;
	double memory, bandwidth;
	enum link_kind link; /* LINK_NVLINK, LINK_XGMI or LINK_UNKNOWN: over PCIe alone */
	int lanes;           /* of the device */
	double lane;         /* bandwidth of one */
};

/* The row of that name; NULL when there is none. */
const struct gpu_model *topo_gpu_named(const char *name);
/* By PCI ids. */
const struct gpu_model *topo_gpu_of_pci(int vendor, int device);
/* By what a driver calls it ("NVIDIA H100 80GB HBM3"): the row with the most words in it. */
const struct gpu_model *topo_gpu_called(const char *text);
/* By what a Slurm site calls it in Gres or a feature: the driver's name with underscores, or how
 * ours begins, "a100": the first such row. */
const struct gpu_model *topo_gpu_typed(const char *type);
/* By the architecture alone: the first row of that vendor. What is built of it in several forms is
 * the commonest one, so only lanes and their bandwidth are sure. */
const struct gpu_model *topo_gpu_of_arch(int vendor, int arch);

/* Row i, for those who go through all; NULL past the end. */
const struct gpu_model *topo_gpu_at(int i);

/* What a node_kind says of its device, from the model. */
void topo_gpu_fill(const struct gpu_model *m, struct node_kind *k);

#endif
