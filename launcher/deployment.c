#include "launcher/deployment.h"

#include "base/buf.h"
#include "plan/search/search.h"
#include "plan/show/plan.h"

#include <stdlib.h>

int launcher_deployment_check(const struct job *job, struct err *e)
{
	if (job->plan.engine == ENGINE_MUSTER)
		return 0;
	return err_set(e, ERR_USAGE,
		       "[plan] engine: muster plan predicts other programs' steps, but muster runs "
		       "only its own engine; leave the key out");
}

static int build_plan(struct deployment *d, struct err *e)
{
	if (search_resolve(&d->job, &d->cluster, e) ||
	    plan_build(&d->job, &d->cluster, &d->plan, e))
		return -1;
	d->job.batch.logits = d->plan.logits;
	if (job_has_program(&d->job)) /* its processes cannot change their world */
		d->job.restart.warm = false;
	d->plan_doc = show_plan_json(&d->job, &d->cluster, &d->plan);
	if (!d->plan_doc)
		return err_set(e, ERR_NOMEM, "no memory for the plan");
	struct buf text = BUF_INIT;
	job_write(&d->job, &text);
	d->job_text = buf_take(&text);
	return d->job_text ? 0 : err_set(e, ERR_NOMEM, "no memory for the job's text");
}

int launcher_deployment_build(const struct job *job, int64_t dp, uint32_t open,
			      struct cluster *cluster, struct deployment **out, struct err *e)
{
	struct deployment *d = calloc(1, sizeof *d);
	if (!d) {
		topo_cluster_free(cluster);
		return err_set(e, ERR_NOMEM, "no memory for a plan");
	}
	d->job = *job;
	d->job.parallel.dp = dp;
	d->job.open = open;
	d->cluster = *cluster;
	*cluster = (struct cluster){ 0 };
	if (build_plan(d, e)) {
		launcher_deployment_free(d);
		return -1;
	}
	*out = d;
	return 0;
}

int launcher_deployment_most_ranks(const struct deployment *first, const struct cluster *machines)
{
	int devices = topo_cluster_devices(machines);
	return devices > first->plan.world ? devices : first->plan.world;
}

int launcher_deployment_nodes(const struct deployment *d)
{
	const struct plan *p = &d->plan;
	int n = 0, at = 0; /* at: a rank of the node before; that of the next one is near it */
	for (int i = 0; i < d->cluster.n_nodes; i++) {
		int r = 0;
		while (r < p->world && p->ranks[(at + r) % p->world].node != i)
			r++;
		if (r == p->world)
			continue;
		at = (at + r) % p->world;
		n++;
	}
	return n;
}

void launcher_deployment_free(struct deployment *d)
{
	if (!d)
		return;
	json_decref(d->plan_doc);
	plan_free(&d->plan);
	topo_cluster_free(&d->cluster);
	free(d->job_text);
	free(d);
}
