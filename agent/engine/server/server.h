/*
 * server — parallel.sync = server: replicas that train through a parameter server instead of
 * all-reduce (Li et al., OSDI 2014), with the bounded staleness of stale synchronous parallel (Ho
 * et al., NIPS 2013).
 *
 * Every replica is a worker, and the server of one shard of the parameters: of each unit the piece
 * that ZeRO would give it (catalogue_piece), with its optimizer's state. So there is no rank that
 * only serves, and what the servers take of memory and of the network is spread evenly.
 *
 *     worker    forward and backward over its part of the batch, with a copy of all parameters of
 *               its own; pushes each server its piece of the gradient; gets that piece's newest
 *               parameters back, which it goes on with
 *     server    a thread for each worker, in the same process: takes what it pushes, updates the
 *               shard, answers
 *
 * The bound: a worker's clock is the number of its steps that a server has. The answer to a worker
 * whose clock is c waits until the slowest one's is at least c - parallel.staleness. Each server
 * sees to it by itself.
 *
 *     staleness = 0    All push step c before any goes on. The server sums the parts in the order
 *                      of the ranks, the norm is that of the whole gradient, one update is made of
 *                      it: what all-reduce computes, the same bits every time.
 *     staleness > 0    The server applies each worker's gradient as it comes (optim_step_part):
 *                      clipped by its own norm, at its share of the rate. A worker never waits for
 *                      another that is less than that many steps behind; what is computed depends
 *                      on the arrival, and is not the same twice.
 *
 * Nothing else makes a step wait for all: the loss is the mean over the workers of what each pushed
 * last (with staleness 0 the global batch's), a stop is agreed upon through the first server, which
 * names a step that no worker has passed. Workers do meet, between two steps, where all must have
 * the same parameters: to evaluate, to save. Then every gradient of the steps so far is in every
 * shard, and none comes before they part.
 *
 * Checkpoints hold the shards (param_server_store, param_server_optim, through
 * agent/engine/train/state.h), and load under any other layout and sync.
 *
 * Messages go over groups of two, one for each worker and server (pairs.h), so that a worker that
 * is far away holds up nobody else's. A request, and its answer from those that have one:
 *
 *     push   note, gradient      → note, parameters     after the update, within the bound
 *     pull   note                → note, parameters     at once
 *     idle   note                                       so that no receive runs into network.timeout while the worker computes
 *     leave  note                                       the last one
 *
 * Failure: whoever fails, or whose messages do, aborts the world; every wait ends with that. A
 * worker that hangs is found by those that wait for it, after network.timeout, as in any
 * collective.
 *
 * One thread calls. The servers' threads use nothing of the worker's: they have a backend of their
 * own.
 */
#ifndef MUSTER_AGENT_ENGINE_SERVER_SERVER_H
#define MUSTER_AGENT_ENGINE_SERVER_SERVER_H

#include "agent/engine/optim/optim.h"
#include "agent/engine/parallel/store.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/job/job.h"
#include "plan/spec/model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct server;

struct server_options {
	const struct job *job;             /* borrowed, as all here */
	const struct catalogue *catalogue; /* of the whole model */
	struct comm *world;                /* its ranks are the workers and servers */
	const char *backend_name;          /* of the servers' own backend, without storage type */
	struct store *worker;              /* the engine's: whole, and no other replica's */
	struct backend *backend;           /* the engine's */
	double share;                      /* this worker's part of a global batch, 0 to 1 */
};

/* Collective. The shard's parameters are zero until train_state_init or train_resume sets
 * them. */
int param_server_open(const struct server_options *opt, struct server **out, struct err *e);
/* Before the world is closed. Aborts the world unless param_server_leave was called. Takes NULL. */
void param_server_close(struct server *s);

/* This rank's shard: for state.h. */
struct store *param_server_store(struct server *s);
struct optim *param_server_optim(struct server *s);

/* Collective. The shards are as after `step` steps: serving begins, and the worker has their
 * parameters. */
int param_server_start(struct server *s, int64_t step, struct err *e);
/* Collective, once, when no step follows: serving ends. */
int param_server_leave(struct server *s, struct err *e);

struct server_step {
	int64_t step; /* the one that was computed, from 0 */
	double loss;  /* in: this worker's part of the mean; out: the mean, as above */
	/* out: of the whole gradient with staleness 0, else of this worker's own mean gradient */
	double norm;
	bool wants_stop; /* this rank was told to */
	bool stops;      /* out: every worker stops after this step */
};

/* Pushes the gradients of the worker's store and pulls the parameters of the next step. Where loss
 * or norm are not finite nothing of them was applied, and nothing was waited for. */
int param_server_step(struct server *s, struct server_step *io, struct err *e);

/* Collective, between two steps of the same number on all. Meet: every gradient is in, the worker's
 * parameters are the shards'. Part: steps go on. */
int param_server_meet(struct server *s, struct err *e);
int param_server_part(struct server *s, struct err *e);

/* Most steps that this shard has let a worker be ahead of the slowest one. */
int64_t param_server_lead(struct server *s);
/* Seconds spent in conversation since it was opened. */
double param_server_waited(const struct server *s);
/* Peak bytes of what serving takes. */
int64_t param_server_peak_bytes(const struct server *s);

#endif
