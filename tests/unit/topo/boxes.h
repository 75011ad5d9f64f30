/* Machines for the tests of pictures and discovery, small enough to be written out. */
#ifndef MUSTER_TESTS_UNIT_TOPO_BOXES_H
#define MUSTER_TESTS_UNIT_TOPO_BOXES_H

#include "topo/cluster.h"

/* Four GPUs in two NUMA domains, pairs joined by two NVLinks, an adapter a domain. Made of
 * malloc: topo_cluster_free's. */
void box_of_four(struct node_kind *k);

/* `kinds` kinds of that box, `nodes` nodes n1, n2, … all of the first kind. */
void boxes(int kinds, int nodes, struct cluster *c);

/* Hangs the nodes on leaves of `below` each, those on spines of `below` leaves each, those on
 * one core. */
void three_levels(struct cluster *c, int below);

#endif
