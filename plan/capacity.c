#include "plan/capacity.h"

#include "plan/spec/speeds.h"

#include <string.h>

bool plan_on_cpu(const struct node_kind *k)
{
	return !strcmp(k->device, "cpu");
}

static int devices_of(const struct cluster *c, int node)
{
	return c->kinds[c->nodes[node].kind].devices;
}

int plan_devices(const struct cluster *c)
{
	int n = 0;
	for (int i = 0; i < c->n_nodes; i++)
		n += devices_of(c, i);
	return n;
}

int plan_groups(const struct cluster *c, int tp)
{
	int n = 0, devices = 0;
	for (int i = 0; i < c->n_nodes; i++) {
		devices += devices_of(c, i);
		if (i + 1 < c->n_nodes && topo_cluster_share_nvlink(c, i, i + 1))
			continue;
		n += devices / tp;
		devices = 0;
	}
	return n;
}

int plan_fill_dp(const struct job *job, const struct cluster *c, const struct layout *l)
{
	int groups = plan_groups(c, l->tp), each = l->cp * l->pp;
	int most = groups >= each ? groups / each : plan_devices(c) / l->tp / each;
	int64_t shares = job->batch.global / job->batch.micro;
	if (job_has_program(job))
		return most / l->ep * l->ep > 0 ? most / l->ep * l->ep : l->ep;
	if (speeds_devices(job)) /* unequal shares need not divide */
		return speeds_devices(job) / l->tp / each < l->ep
			       ? l->ep
			       : speeds_devices(job) / l->tp / each;
	for (int dp = most / l->ep * l->ep; dp > l->ep; dp -= l->ep)
		if (shares % dp == 0)
			return dp;
	return l->ep;
}
