/* taken — machines that tests read: what is refused fails the test. The caller frees with
 * topo_cluster_free. */
#ifndef MUSTER_TESTS_UNIT_TOPO_TAKEN_H
#define MUSTER_TESTS_UNIT_TOPO_TAKEN_H

#include "topo/cluster.h"

/* As muster topo --cluster takes it. */
struct cluster opened(const char *spec);
/* A text of any format, of a file called "it". */
struct cluster taken(const char *text);

#endif
