/*
 * json — a cluster as JSON: what `muster topo --json` prints and `--cluster FILE.json` reads. What
 * is written is read back exactly; it may as well be written by hand.
 *
 *   {
 *     "format": "muster cluster 1",
 *     "name": "dgx-h100:64", "figures": "", "rails": true,
 *     "devices": 512,                        all of them; ignored when read
 *     "kinds": [ {
 *       "name": "dgx-h100", "nodes": 64,     (nodes of it; ignored when read)
 *       "device": "H100-SXM5-80GB", "devices": 8, "cores": 112, "numa": 2, "packages": 2, "caches": 2, "cache": 1.1e8,
 *       "memory": …, "device_memory": …, "device_flops": …, "device_bandwidth": …, "link_bandwidth": …, "link_latency": …,
 *       "net_bandwidth": …, "net_latency": …,
 *       "switched": true, "unsaid": "",
 *       "parts": [ { "name": "GPU0", "bus": "0000:1b:00.0", "numa": 0, "cpus": "0-55", "nic": 0, "nic_link": "PXB",
 *                    "pcie": 5, "pcie_width": 16, "nvlink": 4, "mig": false }, … ],
 *       "nics": [ { "name": "mlx5_0", "bus": "", "numa": 0, "bandwidth": 5e10 }, … ],
 *       "link_types": [ { "kind": "NVS", "lanes": 18, "bandwidth": 4.5e11, "latency": 2e-6 }, … ],
 *       "links": [ [0, 1, …], … ]            a row a device, the column is the other; place in
 *                                            link_types
 *     }, … ],
 *     "nodes": [ { "names": "node[0-31]", "kind": 0, "leaf": 1, "domain": -1 }, … ],   runs of equal nodes; names as Slurm's lists
 *     "switches": [ { "name": "spine0", "parent": -1, "up": null }, … ]
 *   }
 *
 * Units are those of topo/cluster.h; a figure that is not known is null, or left out; an index, -1.
 * Names of links are topo_link_word's. Of a kind, name and devices are needed, of a run of nodes
 * its names; kind, leaf and domain are 0, -1, -1 where they are left out; parts, nics, links and
 * switches are left out where they are not known. A cluster without a name has its file's, a kind's
 * devices without one are "device"; of a device that topo/gpus.h knows by that name, memory, flops
 * and bandwidth may be left out. Names hold no control characters, those of nodes no blanks. A
 * switch stands after its parent.
 */
#ifndef MUSTER_TOPO_JSON_H
#define MUSTER_TOPO_JSON_H

#include "base/buf.h"
#include "topo/cluster.h"

#include <jansson.h>
#include <stddef.h>

/* The document, to be given back with json_decref; NULL and an error when there is no memory, or a
 * name holds what a list of names cannot (",[]"). */
json_t *topo_json(const struct cluster *c, struct err *e);
/* Appends it as text, with a line break at the end. */
int topo_json_write(const struct cluster *c, struct buf *out, struct err *e);
/* The cluster of a text; `file` names it in errors. */
int topo_json_read(const char *file, const char *text, size_t len, struct cluster *out,
		   struct err *e);

#endif
