/* near — how near two places of a machine are, and which adapter is each device's. For this room
 * alone. */
#ifndef MUSTER_TOPO_READ_NEAR_H
#define MUSTER_TOPO_READ_NEAR_H

#include "topo/read/machine.h"

/* Between GPUs over PCIe. */
struct topo_link topo_near_gpus(const struct machine *m, int a, int b);

/* Every device's adapter: the nearest of those that are not far slower than the fastest; among
 * equally near ones the devices take turns. order[i] is the GPU that device i is. Fills nic and
 * nic_link. */
int topo_near_assign(const struct machine *m, const int *order, struct topo_device *parts,
		     struct err *e);

#endif
