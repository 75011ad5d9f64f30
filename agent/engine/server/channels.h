/*
 * channels — a group of two for each worker and server: n workers and n servers, one of each on every
 * rank.
 *
 * Two ranks have two, one for each direction of asking, so that one thread at a time uses a group:
 * on the one side the worker's, on the other the server's for it. They are split from the world in
 * n rounds: in round r those ranks meet whose sum is r modulo n.
 */
#ifndef MUSTER_AGENT_ENGINE_SERVER_PAIRS_H
#define MUSTER_AGENT_ENGINE_SERVER_PAIRS_H

#include "base/err.h"
#include "libcomm/comm.h"

struct worker_channel {
	struct comm *to;   /* this rank's worker with the other's server; NULL with oneself */
	struct comm *from; /* the other's worker with this rank's server */
	int peer;          /* the other's rank in both */
};

/* Collective. out[size of the world], to be freed, indexed by rank; the groups close with the
 * world, or by param_server_channels_close. */
int param_server_channels_open(struct comm *world, struct worker_channel **out, struct err *e);
/* Takes NULL. */
void param_server_channels_close(struct worker_channel *channels, int n);

#endif
