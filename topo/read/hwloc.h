/*
 * hwloc — shared by the files that read hwloc's XML: objects by gp_index, and the matrices of direct
 * links, which refer to objects by gp_index. For topo/read/ only.
 *
 * A matrix "NVLinkBandwidth" (or "XGMIBandwidth") has a row and a column for each GPU and each
 * NVSwitch, in MB/s of one direction. The links of a GPU to switches can be used in full for every
 * other GPU on the same switches.
 */
#ifndef MUSTER_TOPO_READ_HWLOC_H
#define MUSTER_TOPO_READ_HWLOC_H

#include "topo/read/found.h"
#include "topo/read/xml.h"

enum hwloc_what { HWLOC_GPU, HWLOC_SWITCH };

struct hwloc_ids;
struct hwloc_ids *topo_hwloc_ids_open(const char *file);
void topo_hwloc_ids_close(struct hwloc_ids *ids);
/* Records that object `x` is GPU or switch number `index`; ignored if it has no gp_index. */
int topo_hwloc_id(struct hwloc_ids *ids, const struct xml *x, enum hwloc_what what, int index,
		  struct err *e);
/* Returns the number of a new switch. */
int topo_hwloc_switch(struct hwloc_ids *ids);
/* Reads the matrices below `root` into the machine. */
int topo_hwloc_links(struct hwloc_ids *ids, const struct xml *root, struct found_node *m,
		     struct err *e);

#endif
