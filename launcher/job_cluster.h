/* job_cluster — the cluster that a job is planned on and runs on. */
#ifndef MUSTER_LAUNCHER_JOB_CLUSTER_H
#define MUSTER_LAUNCHER_JOB_CLUSTER_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "topo/cluster.h"

/*
 * topo_cluster_open(spec) with the slots of this host that the job needs: [launch] devices, or as
 * many as its degrees need. If muster chooses dp, one slot per core and at least one replica.
 *
 * With device = cuda the slots are the GPUs, if this host or allocation has any. The links have the
 * rates of [launch] calibration if that was measured on this machine.
 */
int launcher_job_cluster_open(const struct job *job, const char *spec, struct cluster *out,
			      struct err *e);

#endif
