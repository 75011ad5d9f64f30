/*
 * channels — a group of two for each worker and server. There are n workers and n servers, one of
 * each on every rank.
 *
 * Two ranks have two groups, one for each direction of requests. So one thread at a time uses a
 * group on each side: the worker's, and the server's thread for that worker. The groups are split
 * from the world in n rounds. In round r, two ranks whose sum is r modulo n form a pair.
 */
#ifndef MUSTER_AGENT_ENGINE_SERVER_CHANNELS_H
#define MUSTER_AGENT_ENGINE_SERVER_CHANNELS_H

#include "base/err.h"
#include "libcomm/comm.h"

struct worker_channel {
	struct comm *to;   /* this rank's worker with the peer's server; NULL for the rank itself */
	struct comm *from; /* the peer's worker with this rank's server */
	int peer;          /* the peer's rank in both groups */
};

/* Collective. Sets *out to an array [size of the world], indexed by rank. param_server_channels_close
 * closes the groups and frees the array. */
int param_server_channels_open(struct comm *world, struct worker_channel **out, struct err *e);
/* Accepts NULL. */
void param_server_channels_close(struct worker_channel *channels, int n);

#endif
