/* fit_nodes — how `muster run` and `muster plan` plan a job on the nodes that are there. */
#ifndef MUSTER_LAUNCHER_CLI_FIT_NODES_H
#define MUSTER_LAUNCHER_CLI_FIT_NODES_H

#include "base/err.h"
#include "launcher/deployment.h"

/* launcher_fit_build() on the nodes that are not spare, which it takes over, also on failure. Prints
 * what it changes in the job. spares: the names of the spare nodes, for the plan's document and for
 * errors. */
int command_fit_nodes(const struct job *job, struct cluster *used, json_t *spares,
		      struct deployment **out, struct err *e);

#endif
