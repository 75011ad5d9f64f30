/* serving — the server's threads, one for each other rank's worker: requests in, answers out
 * (server.h says which). */
#ifndef MUSTER_AGENT_ENGINE_SERVER_SERVING_H
#define MUSTER_AGENT_ENGINE_SERVER_SERVING_H

#include "agent/engine/server/shard.h"
#include "agent/engine/server/channels.h"

struct serving;

/* All are borrowed. */
int param_server_serving_open(struct comm *world, const struct worker_channel *channels, struct server_shard *k,
			      struct serving **out, struct err *e);
/* Waits until every worker has left, or the world has failed. Takes NULL. */
void param_server_serving_close(struct serving *s);

#endif
