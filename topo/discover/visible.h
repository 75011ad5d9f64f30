/*
 * visible — which GPUs a process may use, by the word that it shares with CUDA:
 * CUDA_VISIBLE_DEVICES.
 *
 * The word is a list parted by commas, read from the left: a GPU's number in the order of PCI
 * addresses (CUDA_DEVICE_ORDER=PCI_BUS_ID), how its UUID begins ("GPU-8932f937"), or an instance of
 * a parted GPU, by its UUID ("MIG-…") or in the older form "MIG-GPU-<UUID of the
 * GPU>/<instance>/<instance>". The first entry that names nothing ends the list, as it does CUDA's;
 * so "", "-1", "none" and "NoDevFiles" give no GPU at all. CUDA shows a process one instance at
 * most: after one, nothing more is taken.
 */
#ifndef MUSTER_TOPO_DISCOVER_VISIBLE_H
#define MUSTER_TOPO_DISCOVER_VISIBLE_H

#include "topo/cluster.h"

struct nvml_instance {
	char uuid[96]; /* "MIG-…" */
	double memory; /* bytes; 0: unknown */
};

struct gpu_id {
	int index; /* by PCI address */
	const char *uuid;
	const struct nvml_instance *instances;
	int n_instances;
};

/* picked: [n], places in ids in the list's order; part: [n], the instance of each, -1: all of it.
 * NULL picks all. How many; an entry that is there again counts once. */
int topo_visible_pick(const char *list, const struct gpu_id *ids, int n, int *picked, int *part);

#endif
