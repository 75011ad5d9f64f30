#include "plan/forecast.h"

#include "plan/cost/calibration.h"
#include "plan/plan.h"

static int open_cluster(const struct job *job, const char *calibration, int world,
			struct cluster *c, struct err *e)
{
	if (topo_cluster_open("local", world, c, e))
		return -1;
	int rc = calibration_apply(calibration ? calibration : job->launch.calibration,
				   job->network.backend, c, e);
	if (!rc && (!c->kinds[0].measured || !c->kinds[0].measured->n_machines))
		rc = err_set(e, ERR_USAGE,
			     "this machine was not calibrated; run muster bench calibrate");
	if (rc)
		topo_cluster_free(c);
	return rc;
}

int plan_forecast_here(const struct job *job, const char *calibration, struct forecast *out,
		       struct err *e)
{
	struct layout l = layout_of(job, (int)job->parallel.dp);
	struct cluster c;
	struct plan plan;
	*out = (struct forecast){ .world = layout_world(&l) };
	if (open_cluster(job, calibration, out->world, &c, e))
		return -1;
	int rc = plan_build(job, &c, &plan, e);
	if (!rc) {
		out->time = plan.time;
		out->flops = c.kinds[0].device_flops * c.kinds[0].devices;
		for (int r = 0; r < plan.world; r++) {
			double bytes = plan.ranks[r].total - plan.ranks[r].snapshot;
			out->bytes = bytes > out->bytes ? bytes : out->bytes;
		}
		plan_free(&plan);
	}
	topo_cluster_free(&c);
	return rc;
}
