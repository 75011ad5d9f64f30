/* serving — the server's threads, one for the worker of each other rank. They receive requests and
 * send replies (server.h). */
#ifndef MUSTER_AGENT_ENGINE_SERVER_SERVING_H
#define MUSTER_AGENT_ENGINE_SERVER_SERVING_H

#include "agent/engine/server/shard.h"
#include "agent/engine/server/channels.h"

struct serving;

/* Starts the threads. All arguments are borrowed. On failure *out may be set, and must be closed. */
int param_server_serving_open(struct comm *world, const struct worker_channel *channels,
			      struct server_shard *k, struct serving **out, struct err *e);
/* Waits until every worker has left or the world has failed. Accepts NULL. */
void param_server_serving_close(struct serving *s);

#endif
