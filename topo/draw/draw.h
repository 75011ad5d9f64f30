/*
 * draw — a cluster for people: lines for a terminal.
 *
 * These are pure functions of a struct cluster. Equal neighbours are drawn once, with their number,
 * so that 100,000 devices fit on a page. Nodes that differ from the majority are named. Names from
 * outside cannot control a terminal.
 */
#ifndef MUSTER_TOPO_DRAW_DRAW_H
#define MUSTER_TOPO_DRAW_DRAW_H

#include "base/buf.h"
#include "topo/cluster.h"

#include <stdbool.h>

/* The whole page in UTF-8: the switches and nodes, each kind of node with its parts and links, and
 * the outliers. colour: use 256 terminal colours. */
void topo_draw_cluster(const struct cluster *c, bool colour, struct buf *out);

/* An SVG document for slides; the XML is well-formed for any names. */
void topo_draw_cluster_svg(const struct cluster *c, struct buf *out);

#endif
