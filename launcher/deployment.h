/*
 * deployment — what one generation runs: a job whose keys are all decided, the nodes and devices
 * that it may use, and the plan of the one on the other.
 */
#ifndef MUSTER_LAUNCHER_DEPLOYMENT_H
#define MUSTER_LAUNCHER_DEPLOYMENT_H

#include "base/err.h"
#include "plan/plan.h"
#include "plan/spec/job/job.h"
#include "topo/cluster.h"

#include <jansson.h>

struct deployment {
	struct job job;
	struct cluster cluster;
	struct plan plan;
	char *job_text;   /* the job as a file, with every default */
	json_t *plan_doc; /* show_plan_json */
};

/* ERR_USAGE if the job is one that muster can plan, but not run. For those who run it;
 * launcher_deployment_build() does not ask. */
int launcher_deployment_check(const struct job *job, struct err *e);
/* Plans `job`, with parallel.dp = dp and the open keys `open`, on `cluster`, which it takes over, also
 * on failure. Decides the open keys. ERR_NOFIT: the cluster cannot hold the job. */
int launcher_deployment_build(const struct job *job, int64_t dp, uint32_t open,
			      struct cluster *cluster, struct deployment **out, struct err *e);
/* The most ranks that any generation of a run may have: its first deployment, or a later one, which
 * may use every device of `machines`, all nodes that the run began with. */
int launcher_deployment_most_ranks(const struct deployment *first, const struct cluster *machines);
/* How many nodes have ranks. */
int launcher_deployment_nodes(const struct deployment *d);
/* Takes NULL. */
void launcher_deployment_free(struct deployment *d);

#endif
