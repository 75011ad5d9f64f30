#include "plan/peak.h"

#include "plan/capacity.h"

#include <stdio.h>
#include <string.h>

/* Whether an earlier kind of the cluster has the same device. */
static bool named_before(const struct cluster *c, int kind)
{
	for (int k = 0; k < kind; k++)
		if (!strcmp(c->kinds[k].device, c->kinds[kind].device))
			return true;
	return false;
}

static int count_ranks(const struct cluster *c, const struct plan *p, const char *device)
{
	int n = 0;
	for (int i = 0; i < p->world; i++)
		n += !strcmp(topo_cluster_kind(c, p->ranks[i].node)->device, device);
	return n;
}

static void name_devices(const struct cluster *c, const struct plan *p, struct plan_peak *out)
{
	size_t used = 0;
	for (int k = 0; k < c->n_kinds && used < sizeof out->devices; k++) {
		const char *device = c->kinds[k].device;
		int n = named_before(c, k) ? 0 : count_ranks(c, p, device);
		char count[16] = "";
		out->kinds += n > 0;
		if (n < p->world)
			snprintf(count, sizeof count, "%d ", n);
		if (n)
			used += (size_t)snprintf(out->devices + used, sizeof out->devices - used,
						 "%s%s%s", used ? " + " : "", count, device);
	}
}

void plan_peak_of(const struct cluster *c, const struct plan *p, struct plan_peak *out)
{
	bool known = true;
	*out = (struct plan_peak){ 0 };
	for (int i = 0; i < p->world && known; i++) {
		const struct node_kind *k = topo_cluster_kind(c, p->ranks[i].node);
		known = k->device_flops > 0 && !plan_on_cpu(k);
		out->flops = known ? out->flops + k->device_flops : 0;
	}
	name_devices(c, p, out);
}
