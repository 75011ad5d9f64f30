/*
 * fit — what a run does with the nodes that Slurm has given it: which of them stay unused as spares,
 * and what changes if the others cannot hold the layout that the job asks for.
 *
 * Spares are the last nodes of the list, as many of [slurm] spares as the allocation has in addition
 * to the most of [slurm] nodes: a node works before a spare waits.
 *
 * A layout that does not fit may change if [slurm] nodes is a range, or if Slurm has requeued the job,
 * because then there may be fewer nodes than before. shrink.h says how; with [restart] shrink = keep
 * the run is refused. Without a range a layout that does not fit the allocation is refused, because a
 * person chose both.
 */
#ifndef MUSTER_LAUNCHER_FIT_H
#define MUSTER_LAUNCHER_FIT_H

#include "base/buf.h"
#include "base/err.h"
#include "launcher/deployment.h"

#include <jansson.h>
#include <stdbool.h>

/* Removes all nodes but the first n. */
int launcher_nodes_first(struct cluster *c, int n, struct err *e);

/* How many of a cluster's nodes stay unused at the start. They are its last ones. */
int launcher_spares_count(const struct job *job, const struct cluster *all);
/* Removes the spares from the cluster; *spares: the list of their names, a new reference. */
int launcher_spares_keep(const struct job *job, struct cluster *c, json_t **spares, struct err *e);
/* Prints "1 spare node: n4" with a line break, or nothing if there is none. */
void launcher_spares_print(const json_t *spares, struct buf *out);
/* Names the spares in front of an ERR_NOFIT, because a plan might fit with them; returns -1. */
int launcher_spares_name(const json_t *spares, struct err *e);

/* Plans the job on `used`, which it takes over, also on failure. `requeued`: Slurm has requeued the
 * job. Appends to `said` the line that tells people what differs from the job, and why. ERR_NOFIT: the
 * nodes cannot hold the job in any layout that it may have. */
int launcher_fit_build(const struct job *job, struct cluster *used, bool requeued,
		       struct deployment **out, struct buf *said, struct err *e);

#endif
