/*
 * store — where a rank's parameters and gradients live: whole on every replica, or sharded over
 * them as ZeRO's stage says (Rajbhandari et al., arXiv 1910.02054; stage 3 is PyTorch's FSDP, Zhao
 * et al., arXiv 2304.11277).
 *
 * The model asks for a unit of the catalogue (plan/spec/model/model.h) when it needs it and says
 * when it is done with it; whether that gathers, frees or reduces anything is the store's affair.
 *
 *     forward       param_store_params(u) … param_store_release(u)
 *     backward      param_store_params(u), param_store_grads(u) … param_store_reduce(u, last),
 *                   param_store_release(u)
 *     end of step   param_store_finish; the optimizer updates the pieces; param_store_publish
 *
 * Replicas of a unit are the ranks that hold the same box of it: cp × dp of them, of experts cp ×
 * dp / ep. They form `shard` groups, over which the unit is cut (catalogue_piece), times `copies`
 * groups, whose ranks own the same piece: without ZeRO shard is NULL and copies has all replicas;
 * fully sharded it is the other way round; sharded inside a node both are there.
 *
 *     zero  parameters       gradients                                        optimizer's state
 *     0     whole            whole, all-reduced once a step                   whole
 *     1     whole            whole, reduce-scattered once a step              shard
 *     2     whole            shard; a unit's are reduce-scattered and added after each micro-batch   shard
 *     3     shard; a unit's are gathered before use and given up after   as 2   shard
 *
 * Under stage 3 gathers go ahead of their use in the order that the first step had (store_order.h).
 * A unit's buffer is kept until another unit of its kind needs it, so the layer that turns round
 * from forward to backward is not gathered twice. Gradients that are whole are summed while the
 * backward pass goes on, small units together; those of shards that have copies are summed over the
 * shards first, and over the copies once a step. Replicas that are no group of shards (one rank in
 * each) are stage 0's, whatever the stage: there is nothing to cut. What all this takes of memory
 * is plan/spec/model/zero.h's, to the byte.
 *
 * Master parameters are fp32 and belong to the piece's owner: in fp32 storage they are the stored
 * parameters themselves (their part of the whole ones, or the shard), else a copy of their own that
 * param_store_publish narrows into the stored ones, unless the optimizer has already
 * (param_store_stored_form).
 *
 * All of it lies in the backend's memory, which may be a device's. With offload.optimizer masters that
 * are copies of their own lie in the host's (param_store_masters_offloaded): on the host in a file
 * without a name, else in memory that the device copies from.
 *
 * Gradients that are parts (param.partial) are summed over their tp copies before they are reduced
 * over replicas; a tied head's two tables are summed piece by piece after that, by
 * param_store_finish. Every sum has libcomm's documented order: element by element, the same for
 * whatever cut.
 *
 * All calls of a group's ranks come in the same order (they walk the same schedule row). One
 * thread.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_STORE_H
#define MUSTER_AGENT_ENGINE_PARALLEL_STORE_H

#include "base/err.h"
#include "kernels/ops.h"
#include "plan/spec/model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct comm;
struct param_store;

struct param_store_groups {
	/* These four are the store's alone: what it starts on them may be under way between any
	 * two of its calls. */
	struct comm *shard, *copies;               /* of everything but experts; NULL: one rank */
	struct comm *expert_shard, *expert_copies; /* of experts */
	/* These are used inside its calls only. */
	/* sums the parts that every tp rank has (norms under sp) */
	struct comm *tp;
	struct comm *kv; /* those that share a kv head */
	/* first and last stage of a tied model, where they are two ranks */
	struct comm *tied;
};

struct param_store_options {
	const struct catalogue *catalogue; /* borrowed, as all here */
	struct backend *backend;
	struct param_store_groups groups;
	int zero;     /* 0 to 3 */
	bool overlap; /* reduce and gather while the passes go on; else wait at once */
	/* param_store_publish rounds at random, keyed by (seed, parameter's name, step) */
	bool stochastic;
	uint64_t seed;
	/* offload.optimizer: masters that are copies of their own lie in a nameless file here,
	 * unless TMPDIR is set (base/spill.h), or in the host's memory when the backend's is a
	 * device's; NULL: in the backend's. */
	const char *spill_dir;
	/* no pass asks for units or adds gradients: no buffers for whole units (agent/server) */
	bool owned_only;
};

/* Collective over its groups. Parameters are zero until param_store_publish. */
int param_store_open(const struct param_store_options *opt, struct param_store **out, struct err *e);
/* Waits for what is under way; after that the groups may be closed. */
void param_store_drain(struct param_store *s);
/* Takes NULL. */
void param_store_close(struct param_store *s);

/* The unit's parameters, in storage type, valid until its release; may be asked for again before
 * that (each has its release). At most two units of a kind are held at once under zero 3:
 * ZERO_BUFFERS. */
int param_store_params(struct param_store *s, int unit, const void **params, struct err *e);
void param_store_release(struct param_store *s, int unit);

/* Where the backward pass adds the unit's gradients (fp32), until param_store_reduce. At most two
 * units of a kind wait for that at once under zero 2 and 3. */
int param_store_grads(struct param_store *s, int unit, float **grads, struct err *e);
/* This micro-batch's gradients of the unit are in; last: so are those of the whole step. */
int param_store_reduce(struct param_store *s, int unit, bool last, struct err *e);
/* Whether calls of a pass, from param_store_params to param_store_reduce, now do nothing but say
 * where things are: no parameters come, and no gradients leave, even where `completes` says that
 * the step's are. Then the pass may be recorded, and replayed with the same calls. */
bool param_store_replayable(const struct param_store *s, bool completes);
/* All gradients are in: returns when every piece's are the sum over all replicas. */
int param_store_finish(struct param_store *s, struct err *e);
/* Gradients are zero again, for the next step. */
void param_store_zero(struct param_store *s);

/* A run of one parameter's elements that this rank owns. */
struct param_piece {
	const struct param *param;
	int64_t first; /* its first element in the parameter's box, row-major */
	int64_t count;
	float *master, *grad; /* [count] */
	/* of the optimizer's state: [param_store_owned] elements of each moment */
	int64_t at;
	/* Of its elements, those [count_lo, count_hi) are this rank's to count in norms and to
	 * save: each element of the model is counted by exactly one rank of the world. Empty (0, 0)
	 * where another does. */
	int64_t count_lo, count_hi;
};
const struct param_piece *param_store_pieces(const struct param_store *s, int *n);
struct backend *param_store_backend(const struct param_store *s);
const struct catalogue *param_store_catalogue(const struct param_store *s);
/* The groups over which an update may communicate between param_store_finish and
 * param_store_publish, when the store itself has nothing under way on them. NULL: one rank. Shards
 * are those of units of the kind: together they own a whole unit. */
struct comm *param_store_shards(const struct param_store *s, enum unit_kind kind);
struct comm *param_store_tp(const struct param_store *s);
/* The elements of the parameter's box that shard `shard` of its unit owns; count may be 0. */
void param_store_run(const struct param_store *s, const struct param *p, int shard, int64_t *first,
		     int64_t *count);
/* Whether this rank saves what every rank with a part of the parameter holds alike: it is the first
 * of them. */
bool param_store_saves(const struct param_store *s, const struct param *p);
/* elements of all pieces, rounded to whole groups */
int64_t param_store_owned(const struct param_store *s);
/* Whether masters are the host's, and the backend's memory is not. */
bool param_store_masters_offloaded(const struct param_store *s);

/* Lets an update of the whole piece (kernels/ops.h) set the stored form of the masters as well,
 * rounded as the publishing of `step` would. Leaves u as it is where there is no such form, or
 * where the piece's rows are numbered apart: those are publishing's. */
void param_store_stored_form(const struct param_store *s, const struct param_piece *piece, int64_t step,
		      struct update *u);
/* Every piece's masters were updated by updates that were fused: the next publishing rounds only
 * what those could not. */
void param_store_stored_done(struct param_store *s);

/* The masters have changed: stored parameters follow, on every replica. step: how many are
 * finished, for stochastic rounding. */
int param_store_publish(struct param_store *s, int64_t step, struct err *e);

/* Whole gradients in the flat order, for tests: NULL where they are not whole. */
float *param_store_flat_grads(const struct param_store *s);
/* Seconds spent waiting for gathers and reductions since it was opened. */
double param_store_wait_seconds(const struct param_store *s);

#endif
