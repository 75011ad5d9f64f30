/*
 * fit — what a run does with the nodes that Slurm has given it: which of them stay unused as spares,
 * and what changes if the others cannot hold the layout that the job asks for.
 *
 * Spares are the last nodes of the list, as many of [slurm] spares as the allocation has in addition
 * to the most of [slurm] nodes: a node works before a spare waits.
 *
 * A layout with fixed degrees may change if [slurm] nodes is a range, or if Slurm has requeued the
 * job, because then it may have fewer nodes than before. [restart] shrink says how:
 *     keep   not at all; the run is refused
 *     dp     dp becomes the largest value that fits
 *     any    as dp; if not even one replica fits, the degrees and the schedule are planned again
 * The global batch never changes: each replica has more micro-batches instead. An allocation of any
 * other size than the job asks for was chosen by a person, and a layout that does not fit it is
 * refused.
 */
#ifndef MUSTER_LAUNCHER_FIT_H
#define MUSTER_LAUNCHER_FIT_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/spec/job/job.h"
#include "topo/cluster.h"

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

/* Adapts the job to the cluster if its degrees are fixed and do not fit. `requeued`: Slurm has
 * requeued the job. Appends to `said` the lines that tell people what has changed and why. The job
 * may have open keys afterwards, which search_resolve() decides. ERR_NOFIT: shrink = keep, and the
 * layout does not fit. If a layout does not fit for another reason, the job stays as it is, and
 * plan_build() refuses it. */
int launcher_fit_job(struct job *job, const struct cluster *c, bool requeued, struct buf *said,
		     struct err *e);

#endif
