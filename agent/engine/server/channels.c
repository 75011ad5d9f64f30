#include "agent/engine/server/channels.h"

#include <stdio.h>
#include <stdlib.h>

/* Splits the pair's two groups: first for the lower rank's worker, then for the higher rank's. */
static int split_pair(struct comm *world, int other, struct worker_channel *p, struct err *e)
{
	int me = comm_rank(world), low = me < other ? me : other, high = me < other ? other : me;
	int color = me == other ? -1 : low;
	struct comm *groups[2] = { NULL, NULL };
	char name[64];
	for (int i = 0; i < 2; i++) {
		snprintf(name, sizeof name, "worker %d with server %d", i ? high : low,
			 i ? low : high);
		if (comm_split(world, color, me, name, &groups[i], e)) {
			comm_close(groups[0]);
			return -1;
		}
	}
	*p = (struct worker_channel){ .to = groups[me == high],
				      .from = groups[me == low],
				      .peer = me == low };
	return 0;
}

int param_server_channels_open(struct comm *world, struct worker_channel **out, struct err *e)
{
	int n = comm_size(world);
	struct worker_channel *channels = calloc((size_t)n, sizeof *channels);
	if (!channels)
		return err_set(e, ERR_NOMEM,
			       "parameter server: no memory for %d groups; close other programs",
			       n);
	for (int round = 0; round < n; round++) {
		int other = (round - comm_rank(world) + n) % n;
		if (split_pair(world, other, &channels[other], e)) {
			param_server_channels_close(channels, n);
			return -1;
		}
	}
	*out = channels;
	return 0;
}

void param_server_channels_close(struct worker_channel *channels, int n)
{
	for (int i = 0; channels && i < n; i++) {
		comm_close(channels[i].to);
		comm_close(channels[i].from);
	}
	free(channels);
}
