/* boxes — machines for the tests of drawings and discovery, small enough to be written out. */
#ifndef MUSTER_TESTS_UNIT_TOPO_BOXES_H
#define MUSTER_TESTS_UNIT_TOPO_BOXES_H

#include "topo/cluster.h"

/* Four GPUs in two NUMA domains. Two NVLinks join each pair, and each domain has a NIC. It is
 * allocated with malloc; topo_cluster_free frees it. */
void box_of_four(struct node_kind *k);

/* A cluster with `kinds` kinds of that box and `nodes` nodes n1, n2, …, all of the first kind. */
void boxes(int kinds, int nodes, struct cluster *c);

/* Puts the nodes on leaf switches of `below` nodes each, the leaves on spines of `below` leaves
 * each, and the spines on one core switch. */
void three_levels(struct cluster *c, int below);

#endif
