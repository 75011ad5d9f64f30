/* taken — reads machines for tests. A machine that is refused fails the test. The caller frees the
 * cluster with topo_cluster_free. */
#ifndef MUSTER_TESTS_UNIT_TOPO_TAKEN_H
#define MUSTER_TESTS_UNIT_TOPO_TAKEN_H

#include "topo/cluster.h"

/* spec: in the syntax of muster topo --cluster. */
struct cluster opened(const char *spec);
/* text: in any format; the file's name is "it". */
struct cluster taken(const char *text);

#endif
