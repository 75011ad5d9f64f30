/*
 * shard — one rank's shard of the parameters: what each worker pushed of it, its update, and the
 * bound on who may go on.
 *
 * For the files of agent/server. Many threads call, one for each worker; a worker's buffer is its
 * thread's between two calls.
 */
#ifndef MUSTER_AGENT_ENGINE_SERVER_KEEPER_H
#define MUSTER_AGENT_ENGINE_SERVER_KEEPER_H

#include "agent/engine/server/server.h"

enum request_kind { REQUEST_PUSH = 1, REQUEST_PULL, REQUEST_IDLE, REQUEST_LEAVE };

/* What a worker says to a server. */
struct server_request {
	int32_t kind, wants_stop;
	int64_t step;       /* of a push */
	double loss, share; /* its part of the mean, which so much of the batch made */
	double norm;        /* of its own mean gradient */
};

struct server_reply {
	double loss, norm; /* server.h, param_server_step; norm with staleness 0 alone */
	int64_t stop;      /* all workers stop after so many steps; 0: they go on */
};

struct server_shard;

/* Collective: servers is a group of all ranks, borrowed; updates with staleness 0 sum the norm
 * over it. */
int param_server_shard_open(const struct server_options *opt, struct comm *servers,
			     struct server_shard **out, struct err *e);
/* When no thread calls any more. Takes NULL. */
void param_server_shard_close(struct server_shard *k);

struct param_store *param_server_shard_store(struct server_shard *k);
struct optim *param_server_shard_optim(struct server_shard *k);
int64_t param_server_shard_peak_bytes(const struct server_shard *k);

/* Before the first push: `step` steps of every worker are in the shard. */
void param_server_shard_begin(struct server_shard *k, int64_t step);

/* [param_store_owned]: where the worker's gradient is put before param_server_shard_push, and
 * its parameters lie after param_server_shard_reply. */
float *param_server_shard_buffer(struct server_shard *k, int worker);
/* A push. With staleness 0 the last one of a step makes the update, which waits for the other
 * servers'. */
int param_server_shard_push(struct server_shard *k, int worker, const struct server_request *note, struct err *e);
/* The newest parameters; bounded: once the worker is within the bound. */
int param_server_shard_reply(struct server_shard *k, int worker, bool bounded, struct server_reply *out,
			       struct err *e);
/* Ends every wait, now and later, with this error, or with the one that came before. */
void param_server_shard_fail(struct server_shard *k, const struct err *why);

/* Most steps that an answer has let a worker be ahead. */
int64_t param_server_shard_lead(struct server_shard *k);

#endif
