/*
 * shard — one rank's shard of the parameters: the gradients that each worker pushed, the update, and
 * the bound on the workers' lead.
 *
 * Only files of agent/engine/server include this. Many threads call, one for each worker. Between
 * two calls a worker's buffer belongs to its thread.
 */
#ifndef MUSTER_AGENT_ENGINE_SERVER_SHARD_H
#define MUSTER_AGENT_ENGINE_SERVER_SHARD_H

#include "agent/engine/server/server.h"

enum request_kind { REQUEST_PUSH = 1, REQUEST_PULL, REQUEST_IDLE, REQUEST_LEAVE };

/* A worker asks for these with a push. */
enum request_wants { WANTS_STOP = 1, WANTS_SAVE = 2 };

/* A worker's request to a server. */
struct server_request {
	int32_t kind, wants; /* wants: of enum request_wants */
	int64_t step;        /* of a push */
	double loss, share;  /* the worker's part of the mean loss, and of the global batch */
	double norm;         /* of the worker's mean gradient */
};

struct server_reply {
	double loss, norm; /* as param_server_step returns them; norm with staleness 0 only */
	int64_t stop;      /* all workers stop after this many steps; 0: they continue */
	int64_t save; /* all workers meet for a checkpoint after this many steps; 0: none is asked for */
};

struct server_shard;

/* Collective. servers: a group of all ranks, borrowed. With staleness 0, updates all-reduce the norm
 * over it. */
int param_server_shard_open(const struct server_options *opt, struct comm *servers,
			    struct server_shard **out, struct err *e);
/* Call when no thread uses the shard. Accepts NULL. */
void param_server_shard_close(struct server_shard *k);

struct param_store *param_server_shard_store(struct server_shard *k);
struct optim *param_server_shard_optim(struct server_shard *k);
int64_t param_server_shard_peak_bytes(const struct server_shard *k);

/* Call before the first push: the shard contains `step` steps of every worker. */
void param_server_shard_begin(struct server_shard *k, int64_t step);

/* [param_store_owned] The caller puts the worker's gradient here before param_server_shard_push.
 * param_server_shard_reply puts the parameters here. */
float *param_server_shard_buffer(struct server_shard *k, int worker);
/* Handles a push. With staleness 0 the last push of a step makes the update, which waits for the
 * other servers' updates. */
int param_server_shard_push(struct server_shard *k, int worker, const struct server_request *note,
			    struct err *e);
/* Copies the newest parameters into the worker's buffer and sets *out. bounded: first waits until the
 * worker is within the bound. */
int param_server_shard_reply(struct server_shard *k, int worker, bool bounded,
			     struct server_reply *out, struct err *e);
/* Ends every wait, now and later, with this error, or with an earlier one. */
void param_server_shard_fail(struct server_shard *k, const struct err *why);

/* The largest number of steps by which a reply has let a worker be ahead of the slowest. */
int64_t param_server_shard_lead(struct server_shard *k);

#endif
