/* near — the path between two places of a node, and the nearest adapter of each device. For
 * topo/read/ only. */
#ifndef MUSTER_TOPO_READ_NEAR_H
#define MUSTER_TOPO_READ_NEAR_H

#include "topo/read/found.h"

/* The PCIe path between two GPUs. */
struct topo_link topo_near_gpus(const struct found_node *m, int a, int b);

/* Assigns an adapter to every device: the nearest of those that are not much slower than the
 * fastest; equally near adapters are assigned in turn. order[i]: the GPU of device i, `devices` of
 * them. Sets nic and nic_link. */
int topo_near_assign(const struct found_node *m, const int *order, int devices,
		     struct topo_device *parts, struct err *e);

#endif
