/* fit_nodes — what `muster run` and `muster plan` do first with the nodes that they plan for. */
#ifndef MUSTER_LAUNCHER_CLI_FIT_NODES_H
#define MUSTER_LAUNCHER_CLI_FIT_NODES_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "topo/cluster.h"

#include <jansson.h>

/* Keeps the spare nodes out of the cluster, and adapts the job to the others (launcher/fit.h). Prints
 * what it changes in the job. *spares: the names of the spare nodes, a new reference. */
int command_fit_nodes(struct job *job, struct cluster *c, json_t **spares, struct err *e);

#endif
