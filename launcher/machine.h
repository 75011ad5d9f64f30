/* machine — the cluster that a job is planned on and run on. */
#ifndef MUSTER_LAUNCHER_MACHINE_H
#define MUSTER_LAUNCHER_MACHINE_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "topo/cluster.h"

/* topo_cluster_open(spec) with the slots that the job asks of this host: [launch] devices, or as
 * many as its degrees need, or, when dp is left to muster, one a core and at least one replica.
 * Where the job computes on GPUs (device = cuda) and this host or this allocation has any, they are
 * the slots. Its links are those of [launch] calibration where that is this machine's. */
int launcher_job_cluster_open(const struct job *job, const char *spec, struct cluster *out,
			  struct err *e);

#endif
