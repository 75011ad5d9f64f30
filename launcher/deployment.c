#include "launcher/deployment.h"

#include "base/buf.h"
#include "plan/search/search.h"
#include "plan/show/plan.h"

#include <stdlib.h>

static int build_plan(struct deployment *d, struct err *e)
{
	if (search_resolve(&d->job, &d->cluster, e) ||
	    plan_build(&d->job, &d->cluster, &d->plan, e))
		return -1;
	d->plan_doc = show_plan_json(&d->job, &d->cluster, &d->plan);
	if (!d->plan_doc)
		return err_set(e, ERR_NOMEM, "no memory for the plan");
	struct buf text = BUF_INIT;
	job_write(&d->job, &text);
	d->job_text = buf_take(&text);
	return d->job_text ? 0 : err_set(e, ERR_NOMEM, "no memory for the job's text");
}

int launcher_deployment_build(const struct job *job, struct cluster *cluster,
			      struct deployment *out, struct err *e)
{
	*out = (struct deployment){ .job = *job, .cluster = *cluster };
	*cluster = (struct cluster){ 0 };
	if (!build_plan(out, e))
		return 0;
	launcher_deployment_free(out);
	return -1;
}

void launcher_deployment_free(struct deployment *d)
{
	json_decref(d->plan_doc);
	plan_free(&d->plan);
	topo_cluster_free(&d->cluster);
	free(d->job_text);
	*d = (struct deployment){ 0 };
}
