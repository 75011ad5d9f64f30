#include "launcher/machine.h"

int machine_open(const struct job *job, const char *spec, struct cluster *out, struct err *e)
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
