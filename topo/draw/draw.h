/*
 * draw — a cluster for people: lines for a terminal.
 *
 * Pure functions of a struct cluster. Equal neighbours are drawn once, with their number, so that
 * 100,000 devices are a page; what differs from most of its like is named. Names that came from
 * outside cannot steer a terminal.
 */
#ifndef MUSTER_TOPO_DRAW_DRAW_H
#define MUSTER_TOPO_DRAW_DRAW_H

#include "base/buf.h"
#include "topo/cluster.h"

#include <stdbool.h>

/* The whole page in UTF-8: the switches and nodes, each kind of node with its parts and links, the
 * odd ones out. colour: with a terminal's 256 colours. */
void topo_draw_cluster(const struct cluster *c, bool colour, struct buf *out);

/* A whole SVG document, for slides; well-formed XML whatever the names are. */
void topo_draw_cluster_svg(const struct cluster *c, struct buf *out);

#endif
