/*
 * json — a cluster as JSON: `muster topo --json` prints it and `--cluster FILE.json` reads it. A
 * written document is read back exactly. It can also be written by hand.
 *
 *   {
 *     "format": "muster cluster 1",
 *     "name": "dgx-h100:64", "figures": "", "rails": true,
 *     "devices": 512,                        total; ignored when read
 *     "kinds": [ {
 *       "name": "dgx-h100", "nodes": 64,     (number of nodes; ignored when read)
 *       "device": "H100-SXM5-80GB", "devices": 8, "cores": 112, "numa": 2,
 *       "packages": 2, "caches": 2, "cache": 1.1e8, "memory": …,
 *       "device_memory": …, "device_flops": …, "device_bandwidth": …,
 *       "link_bandwidth": …, "link_latency": …,
 *       "net_bandwidth": …, "net_latency": …,
 *       "switched": true, "unsaid": "",
 *       "parts": [ { "name": "GPU0", "bus": "0000:1b:00.0", "numa": 0, "cpus": "0-55",
 *                    "nic": 0, "nic_link": "PXB", "pcie": 5, "pcie_width": 16, "nvlink": 4,
 *                    "mig": false }, … ],
 *       "nics": [ { "name": "mlx5_0", "bus": "", "numa": 0, "bandwidth": 5e10 }, … ],
 *       "link_types": [ { "kind": "NVS", "lanes": 18, "bandwidth": 4.5e11, "latency": 2e-6 }, … ],
 *       "links": [ [0, 1, …], … ]            one row per device: indices into link_types
 *     }, … ],
 *     "nodes": [ { "names": "node[0-31]", "kind": 0, "leaf": 1, "domain": -1 }, … ],
 *                                            runs of equal nodes; names as in Slurm's host lists
 *     "switches": [ { "name": "spine0", "parent": -1, "up": null }, … ]
 *   }
 *
 * Units are those of topo/cluster.h. An unknown figure is null or omitted; an unknown index is -1.
 * The names of links are those of topo_link_word.
 *   - A kind must have a name and devices; a run of nodes must have names.
 *   - Defaults of omitted keys: kind 0, leaf -1, domain -1; a cluster has the name of its file; a
 *     kind's device is "device".
 *   - parts, nics, links and switches are omitted if they are unknown. A node without adapters has
 *     an empty list of nics.
 *   - memory, flops and bandwidth of a device that topo/gpus.h knows may be omitted.
 *   - Names contain no control characters, and names of nodes contain no spaces.
 *   - A switch comes after its parent.
 */
#ifndef MUSTER_TOPO_JSON_H
#define MUSTER_TOPO_JSON_H

#include "base/buf.h"
#include "topo/cluster.h"

#include <jansson.h>
#include <stddef.h>

/* The document, a new reference. NULL and an error without memory, or if a name contains one of
 * ",[]", which a list of names cannot contain. */
json_t *topo_json(const struct cluster *c, struct err *e);
/* Appends the document as text, with a line break at the end. */
int topo_json_write(const struct cluster *c, struct buf *out, struct err *e);
/* Reads a cluster from a text; file: its name in errors. */
int topo_json_read(const char *file, const char *text, size_t len, struct cluster *out,
		   struct err *e);

#endif
