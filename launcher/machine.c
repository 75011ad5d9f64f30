#include "launcher/machine.h"

#include "plan/calibration.h"

static int open_cluster(const struct job *job, const char *spec, struct cluster *out, struct err *e)
{
	int replica = (int)(job->parallel.tp * job->parallel.pp);
	int wanted = job->launch.devices ? (int)job->launch.devices : replica * (int)job->parallel.dp;
	if (cluster_open(spec, wanted, out, e))
		return -1;
	if (wanted || cluster_devices(out) >= replica)
		return 0;
	/* Fewer cores than ranks of one replica: they share them. */
	cluster_free(out);
	return cluster_open(spec, replica, out, e);
}

int machine_open(const struct job *job, const char *spec, struct cluster *out, struct err *e)
{
	if (open_cluster(job, spec, out, e))
		return -1;
	if (!calibration_apply(job->launch.calibration, job->network.backend, out, e))
		return 0;
	cluster_free(out);
	return -1;
}
