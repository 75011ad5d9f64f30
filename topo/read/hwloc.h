/*
 * hwloc — what the files that read hwloc's XML share: objects by their gp_index, and the matrices
 * of direct links that are told by it. For this room alone.
 *
 * A matrix "NVLinkBandwidth" (or "XGMIBandwidth") has a row and a column for each GPU and each
 * NVSwitch, in MB/s of one direction; GPUs that reach each other through switches have their whole
 * port to them.
 */
#ifndef MUSTER_TOPO_READ_HWLOC_H
#define MUSTER_TOPO_READ_HWLOC_H

#include "topo/read/machine.h"
#include "topo/read/xml.h"

enum hwloc_what { HWLOC_GPU, HWLOC_SWITCH };

struct hwloc_ids;
struct hwloc_ids *topo_hwloc_ids_open(const char *file);
void topo_hwloc_ids_close(struct hwloc_ids *ids);
/* That object `x` is that GPU or switch; nothing when it has no gp_index. */
int topo_hwloc_id(struct hwloc_ids *ids, const struct xml *x, enum hwloc_what what, int index,
		  struct err *e);
/* A number for a new switch. */
int topo_hwloc_switch(struct hwloc_ids *ids);
/* Reads the matrices below `root` into the machine. */
int topo_hwloc_links(struct hwloc_ids *ids, const struct xml *root, struct machine *m,
		     struct err *e);

#endif
