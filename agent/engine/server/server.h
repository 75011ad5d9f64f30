/*
 * server — parallel.sync = server: replicas that train through a parameter server instead of
 * all-reduce (Li et al., OSDI 2014), with the bounded staleness of stale synchronous parallel (Ho
 * et al., NIPS 2013).
 *
 * Every replica is a worker, and also the server of one shard of the parameters. The shard has the
 * piece of each unit that ZeRO would give the rank (catalogue_piece), with the optimizer's state. So
 * no rank only serves, and the servers' memory and network traffic are spread evenly.
 *
 *     worker    runs forward and backward over its part of the batch, with a copy of all
 *               parameters; pushes to each server that server's piece of the gradient; receives the
 *               newest parameters of the piece, which it uses for the next step
 *     server    one thread for each worker, in the same process: receives the worker's requests,
 *               updates the shard, sends replies
 *
 * The bound: a worker's clock is the number of its steps that a server has received. The reply to a
 * worker whose clock is c waits until the clock of the slowest worker is at least
 * c - parallel.staleness. Each server enforces this by itself.
 *
 *     staleness = 0    All workers push step c before any continues. The server sums the gradients
 *                      in rank order, computes the norm of the whole gradient, and makes one update.
 *                      This computes what all-reduce computes, with the same bits every time.
 *     staleness > 0    The server applies each worker's gradient when it arrives (optim_step_part),
 *                      clipped by its own norm, with the worker's share of the learning rate. A
 *                      worker never waits for another that is fewer than that many steps behind. The
 *                      result depends on the order of arrival, and is not reproducible.
 *
 * Nothing else makes a step wait for all workers. The loss is the mean over what each worker pushed
 * last (with staleness 0, over the global batch). The first server decides on a stop, or on a checkpoint that was
 * asked for, and names a step that no worker has passed. Only between two steps do all workers meet, to evaluate or to save
 * (param_server_pause): they then have the same parameters.
 *
 * Checkpoints hold the shards (param_server_store, param_server_optim, through
 * agent/engine/train/state.h). They load under any other layout and sync. The optimizer must be
 * elementwise (plan/spec/optimizers.h).
 *
 * Messages use a group of two for each worker and server (channels.h), so that a slow worker delays
 * nobody else's messages. These are the requests and their replies:
 *
 *     push   request, gradient   → reply, parameters     after the update, within the bound
 *     pull   request             → reply, parameters     at once
 *     idle   request                                     keeps the server's receive from reaching network.timeout while the worker computes
 *     leave  request                                     the last one
 *
 * Failure: a rank that fails, or whose messages fail, aborts the world, and this ends every wait. A
 * worker that hangs is found by the ranks that wait for it, after network.timeout, as in any
 * collective.
 *
 * One thread calls these functions. The server's threads do not use the worker's data; they have a
 * backend of their own.
 */
#ifndef MUSTER_AGENT_ENGINE_SERVER_SERVER_H
#define MUSTER_AGENT_ENGINE_SERVER_SERVER_H

#include "agent/engine/optim/optim.h"
#include "agent/engine/parallel/param_store.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/rank_view.h"

#include <stdbool.h>
#include <stdint.h>

struct param_server;

struct server_options {
	const struct rank_view *view;      /* borrowed, like all pointers here */
	const struct catalogue *catalogue; /* of the whole model */
	struct comm *world;                /* its ranks are the workers and servers */
	const char *backend_name;          /* of the server's own backend, without storage type */
	struct param_store *worker;        /* the engine's: whole, with no other replica */
	struct backend *backend;           /* the engine's */
};

/* Collective. The shard's parameters are zero until train_state_init or train_resume sets
 * them. */
int param_server_open(const struct server_options *opt, struct param_server **out, struct err *e);
/* Call before the world is closed. Aborts the world unless param_server_leave was called. Accepts
 * NULL. */
void param_server_close(struct param_server *s);

/* This rank's shard, for agent/engine/train/state.h. */
struct param_store *param_server_store(struct param_server *s);
struct optim *param_server_optim(struct param_server *s);

/* Collective. The shards are in the state after `step` steps. Starts serving, and sets the worker's
 * parameters from the shards. */
int param_server_start(struct param_server *s, int64_t step, struct err *e);
/* Collective, once, when no step follows. Ends serving. */
int param_server_leave(struct param_server *s, struct err *e);

struct server_step {
	int64_t step; /* the step that was computed, from 0 */
	double loss;  /* in: this worker's part of the mean; out: the mean */
	/* out: of the whole gradient with staleness 0, otherwise of this worker's mean gradient */
	double norm;
	bool wants_stop; /* in: this rank has been asked to stop */
	bool wants_save; /* in: this rank has been asked for a checkpoint */
	bool stops;      /* out: every worker stops after this step */
	bool saves;      /* out: every worker meets the others for a checkpoint after this step */
};

/* Pushes the gradients of the worker's store and pulls the parameters of the next step. If loss or
 * norm is not finite, the servers do not apply the gradients. */
int param_server_step(struct param_server *s, struct server_step *io, struct err *e);

/* Both are collective, between two steps, after the same number of steps on all workers. After
 * param_server_pause all gradients are in the shards, the worker's parameters are those of the
 * shards, and no worker pushes before all have called param_server_resume. */
int param_server_pause(struct param_server *s, struct err *e);
int param_server_resume(struct param_server *s, struct err *e);

/* The largest number of steps by which this shard has let a worker be ahead of the slowest. */
int64_t param_server_lead(struct param_server *s);
/* Seconds spent in requests since param_server_open. */
double param_server_wait_seconds(const struct param_server *s);
/* Peak bytes of the server's own backend. */
int64_t param_server_peak_bytes(const struct param_server *s);

#endif
