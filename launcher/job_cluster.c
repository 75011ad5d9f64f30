#include "launcher/job_cluster.h"

#include "plan/cost/calibration.h"
#include "plan/spec/layout.h"
#include "plan/spec/speeds.h"

#include <string.h>

static int open_cluster(const struct job *job, const char *spec, struct cluster *out, struct err *e)
{
	struct layout least = layout_of(job, (int)job->parallel.ep),
		      whole = layout_of(job, (int)job->parallel.dp);
	int replica = layout_world(&least);
	int wanted = job->launch.devices ? (int)job->launch.devices : layout_world(&whole);
	if (!wanted)
		wanted = speeds_devices(job);
	if (topo_cluster_open(spec, wanted, out, e))
		return -1;
	if (wanted || topo_cluster_devices(out) >= replica)
		return 0;
	/* One replica has more ranks than there are cores, so ranks share cores. */
	topo_cluster_free(out);
	return topo_cluster_open(spec, replica, out, e);
}

/* 0: *out has GPUs. A job for the CPU skips this, because probing the machines takes longer. */
static int open_gpus(const struct job *job, const char *spec, struct cluster *out)
{
	if (job->job.device != DEVICE_CUDA || topo_cluster_probe(spec, false, out, NULL))
		return -1;
	for (int i = 0; i < out->n_kinds; i++)
		if (out->kinds[i].devices && strcmp(out->kinds[i].device, "cpu"))
			return 0;
	topo_cluster_free(out);
	return -1;
}

int launcher_job_cluster_open(const struct job *job, const char *spec, struct cluster *out,
			      struct err *e)
{
	if (open_gpus(job, spec, out) && open_cluster(job, spec, out, e))
		return -1;
	if (!calibration_apply(job->launch.calibration, job->network.backend, out, e))
		return 0;
	topo_cluster_free(out);
	return -1;
}
