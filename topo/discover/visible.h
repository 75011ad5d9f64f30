/*
 * visible — the GPUs that a process may use, from CUDA_VISIBLE_DEVICES.
 *
 * The value is a list separated by commas and read from the left. An entry is a GPU's number in the
 * order of PCI addresses (CUDA_DEVICE_ORDER=PCI_BUS_ID), the beginning of its UUID ("GPU-8932f937"),
 * or an instance of a partitioned GPU, by its UUID ("MIG-…") or in the older form "MIG-GPU-<UUID of the
 * GPU>/<instance>/<instance>". The first entry that matches nothing ends the list, as in CUDA;
 * so "", "-1", "none" and "NoDevFiles" give no GPU. CUDA gives a process at most one instance, so
 * the list also ends after an instance.
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

/* Selects GPUs from ids[n]. picked: [n], indices into ids in the order of the list; part: [n], the
 * instance of each, -1: the whole GPU. list NULL selects all. Returns the number of selected GPUs;
 * repeated entries count once. */
int topo_visible_select(const char *list, const struct gpu_id *ids, int n, int *picked, int *part);

#endif
