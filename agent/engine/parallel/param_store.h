/*
 * param_store — a rank's parameters and gradients: whole on every replica, or sharded over the
 * replicas by ZeRO's stage (Rajbhandari et al., arXiv 1910.02054; stage 3 is PyTorch's FSDP, Zhao
 * et al., arXiv 2304.11277).
 *
 * The model asks for a unit of the catalogue (plan/spec/model/model.h) before it uses the unit, and
 * releases it afterwards. The store decides whether that gathers, frees or reduces anything.
 *
 *     forward       param_store_acquire(u) … param_store_release(u)
 *     backward      param_store_acquire(u), param_store_grads(u) … param_store_reduce(u, last),
 *                   param_store_release(u)
 *     end of step   param_store_finish; the optimizer updates the pieces; param_store_sync_params
 *
 * The replicas of a unit are the ranks that hold the same box of it. There are cp × dp of them, and
 * cp × dp / ep for experts. They form `shard` groups, over which the unit is cut (catalogue_piece),
 * and `copies` groups, whose ranks own the same piece. Without ZeRO, shard is NULL and copies has
 * all replicas. Fully sharded, copies is NULL and shard has all replicas. With sharding inside
 * nodes, both exist.
 *
 * The unit is cut into blocks of equal length (catalogue_block), so that every gather and every
 * reduce-scatter of a unit is one call of the device's library. It launches the calls of a bucket
 * together. The padding at the end of the last blocks is zero in every buffer and stays zero.
 * Pieces, checkpoints and norms have the true elements only.
 *
 *     zero  parameters       gradients                                        optimizer's state
 *     0     whole            whole, all-reduced once per step                 whole
 *     1     whole            whole, reduce-scattered once per step            shard
 *     2     whole            shard; reduce-scattered per unit and added     shard
 *                            after each micro-batch
 *     3     shard; gathered before use, freed after it   as 2                 shard
 *
 * Under stage 3, gathers start before they are needed, in the order that the first step had
 * (param_store_order.h). A unit's buffer is kept until another unit of its kind needs it. The layer
 * at which the forward pass turns into the backward pass is therefore not gathered twice. Gradients
 * that are whole are all-reduced or reduce-scattered during the backward pass in buckets of several
 * units (zero_bucket), and new parameters that become whole are gathered in such buckets during the
 * next forward pass. Gradients of shards that have copies are reduced over the shards first, and
 * over the copies once per step. If each shard group has one rank, there is nothing to cut, and the
 * store behaves as in stage 0. plan/spec/model/zero.h computes the memory that all this needs; the
 * two agree to the byte.
 *
 * Master parameters are fp32 and belong to the piece's owner. In fp32 storage they are the stored
 * parameters themselves. Otherwise they are copies, and param_store_sync_params rounds them into
 * the stored parameters unless the optimizer has done so already (param_store_stored_form).
 *
 * Everything is in the backend's memory, which may be a device's. With offload.optimizer, masters
 * that are copies are in the host's memory (param_store_masters_offloaded): in a file without a
 * name if the backend is the host, otherwise in memory that the device copies from.
 *
 * No gradient is zeroed at the beginning of a step. The store knows which parameters have
 * contributions (param_store_adds_grads): the first one sets, later ones add. What has none when
 * its reduction starts is zeroed. If the first contribution is -0, so is the gradient, as after
 * addition to -0; a gradient never differs otherwise from one that was added to zeros.
 *
 * A partial gradient (param.partial) is all-reduced over the parameter's tp copies before the
 * reduction over replicas. The two tables of a tied head are all-reduced after that, piece by
 * piece, by param_store_finish. Every all-reduce has libcomm's documented order, element by
 * element, and the order does not depend on the cut.
 *
 * All ranks of a group make the same calls in the same order, because they execute the same
 * schedule row. One thread at a time uses a store.
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_PARAM_STORE_H
#define MUSTER_AGENT_ENGINE_PARALLEL_PARAM_STORE_H

#include "base/err.h"
#include "kernels/source.h"
#include "plan/spec/model/model.h"

#include <stdbool.h>
#include <stdint.h>

struct comm;
struct param_store;

struct param_store_groups {
	/* Only the store uses these four. Its transfers may be in progress between any two of its
	 * calls. */
	struct comm *shard, *copies;               /* for all units but experts; NULL: one rank */
	struct comm *expert_shard, *expert_copies; /* for experts */
	/* The store uses these only inside its calls. */
	struct comm *tp;   /* all-reduces gradients that every tp rank has a part of */
	struct comm *kv;   /* the ranks that share a kv head */
	struct comm *tied; /* first and last stage of a tied model, if these are two ranks */
};

struct param_store_options {
	const struct catalogue *catalogue; /* borrowed, like all pointers here */
	struct backend *backend;
	struct param_store_groups groups;
	/* of what the groups reduce and gather; NULL: the backend's own */
	const struct backend_source *memory;
	int zero;     /* 0 to 3 */
	bool overlap; /* reduce and gather during the passes; otherwise wait at once */
	/* masters are rounded stochastically, keyed by (seed, parameter's name, step) */
	bool stochastic;
	uint64_t seed;
	/* offload.optimizer: masters that are copies are in a nameless file in this folder, unless
	 * TMPDIR is set (base/spill.h), or in the host's memory if the backend is a device. NULL:
	 * they are in the backend's memory. */
	const char *spill_dir;
	/* No pass uses units or adds gradients, so whole units need no buffers. For
	 * agent/engine/server. */
	bool owned_only;
};

/* Collective over its groups. Parameters are zero until param_store_sync_params. */
int param_store_open(const struct param_store_options *opt, struct param_store **out,
		     struct err *e);
/* Collective over its groups. Lets the groups' library read and write the memory of opt->memory
 * without copies, if it can. After that, the groups must be closed before the store. */
int param_store_register(struct param_store *s, struct err *e);
/* Waits for all transfers in progress. After that the groups may be closed. */
void param_store_drain(struct param_store *s);
/* Accepts NULL. */
void param_store_close(struct param_store *s);

/* Sets *params to the unit's parameters in storage type, valid until param_store_release. Calls for
 * a unit may nest; each needs its own release. Under zero 3 at most ZERO_BUFFERS units of a kind
 * are held at once. */
int param_store_acquire(struct param_store *s, int unit, const void **params, struct err *e);
void param_store_release(struct param_store *s, int unit);

/* Sets *grads to where the backward pass puts the unit's gradients (fp32), until
 * param_store_reduce. Under zero 2 and 3 at most ZERO_BUFFERS units of a kind are open at once. */
int param_store_grads(struct param_store *s, int unit, float **grads, struct err *e);
/* Elements of a unit's gradients, counted from its first one. at < 0: none. */
struct grad_range {
	int64_t at, count;
};
/* Whether a contribution to the ranges must add to what is there; otherwise it must set all of it.
 * The caller makes it before it asks for these parameters again. The ranges begin and end with
 * parameters, or with groups of them that are always computed together. */
bool param_store_adds_grads(struct param_store *s, int unit, const struct grad_range *r, int n);
/* What param_store_adds_grads would return. */
bool param_store_has_grads(const struct param_store *s, int unit, const struct grad_range *r,
			   int n);
/* The unit's gradients of this micro-batch are complete. last: those of the whole step are too. */
int param_store_reduce(struct param_store *s, int unit, bool last, struct err *e);

/*
 * Passes that are recorded and replayed (parallel_graph_begin). The calls of such a pass, from
 * param_store_acquire to param_store_reduce, only return addresses, and start no transfers but
 * gathers and reductions that can be part of a graph. A replay makes the same calls, so that the
 * store keeps its books.
 *
 * Under zero 2 and 3 the addresses, and what a call adds to the owned gradients or gathers, depend
 * on what is in the buffers at the beginning: param_store_state(). A unit has the same buffer in each
 * pass, so there are few states: a step's first pass finds empty buffers for gradients, the second
 * one gradients of the first that set the owned ones, the others gradients that are added.
 *
 * A graph is complete only when all of its operations are, and what a call starts for the next pass
 * would hold that one up. Therefore a reduce-scatter starts with the call after the one that ends
 * the unit's gradients, and gathers start with demands only, not when buffers become free. What is
 * last in a pass is then in the next one's graph, beside its computation.
 */

/* How a pass uses gradients. */
enum param_store_use {
	PARAM_STORE_EVALUATES, /* it has none, and is no part of a step */
	PARAM_STORE_READS,     /* it has none */
	PARAM_STORE_ADDS,
	PARAM_STORE_COMPLETES /* also completes those of the step */
};
/* Passes are going to be recorded: transfers start late from now on. */
void param_store_defer(struct param_store *s);
/* Returns whether the chunk's next pass may be recorded and replayed. */
bool param_store_replayable(const struct param_store *s, int chunk, enum param_store_use use);
/* Before a pass is recorded or replayed: all reductions that have started come before it, and so do
 * gathers into buffers. Other chunks' passes may have run without a graph. */
int param_store_settle_pass(struct param_store *s, struct err *e);
/* Equal before two passes of the chunk if their calls find the same addresses and do the same. */
uint64_t param_store_state(const struct param_store *s, int chunk, enum param_store_use use);
/* Returns whether demand number *ahead from now (0: the next one) is for the unit, and adds 1 to
 * *ahead. Returns true, and adds nothing, for a unit that is not gathered on demand. */
bool param_store_expects(const struct param_store *s, int unit, int *ahead);
/* While repeats is set, calls only keep the books: the device's work is in the graph. */
void param_store_repeat(struct param_store *s, bool repeats);
/* Whether parameters of the chunk are still being gathered, so that its next pass waits for
 * them. */
bool param_store_gathers(const struct param_store *s, int chunk);
/* The first returns whether any gradients are reduced; the second, whether some are reduced only
 * when those of the step are complete. */
bool param_store_reduces(const struct param_store *s);
bool param_store_reduces_once(const struct param_store *s);
/* All gradients of the step are complete. Returns when those of every piece are summed over all
 * replicas. */
int param_store_finish(struct param_store *s, struct err *e);
/* A step begins: its gradients have no contributions. */
void param_store_begin(struct param_store *s);

/* The consecutive elements of one parameter's box that this rank owns. */
struct param_piece {
	const struct param *param;
	int64_t first; /* its first element in the parameter's box, row-major */
	int64_t count;
	/* [count]. In fp32 the masters are the stored parameters, and gathers are in place: except
	 * between param_store_finish and param_store_sync_params, param_store_settle comes before
	 * a change of masters. */
	float *master, *grad;
	/* the place of the first element in a state of [param_store_owned] elements */
	int64_t at;
	/* This rank counts the elements [count_lo, count_hi) in norms and saves them. Exactly one
	 * rank of the world counts each element of the model. (0, 0): other ranks count all. */
	int64_t count_lo, count_hi;
};
const struct param_piece *param_store_pieces(const struct param_store *s, int *n);
struct backend *param_store_backend(const struct param_store *s);
const struct catalogue *param_store_catalogue(const struct param_store *s);
/* Waits until no gather of parameters is in progress. */
int param_store_settle(struct param_store *s, struct err *e);
/* The stored form of those elements of the parameter's box that this rank keeps between steps: all,
 * or its shard's under zero 3. After param_store_settle. NULL: it keeps none. */
const void *param_store_kept(const struct param_store *s, const struct param *p, int64_t *first,
			     int64_t *count);
/* The groups over which an update may communicate between param_store_finish and
 * param_store_sync_params, when the store has no transfer in progress on them. NULL: one rank. The
 * ranks of param_store_shards together own a whole unit of the kind. */
struct comm *param_store_shards(const struct param_store *s, enum unit_kind kind);
struct comm *param_store_tp(const struct param_store *s);
/* The elements of the parameter's box that shard `shard` of its unit owns; count may be 0. */
void param_store_shard_range(const struct param_store *s, const struct param *p, int shard,
			     int64_t *first, int64_t *count);
/* Whether this rank is the first of the ranks that hold a part of the parameter. It saves the
 * states that all of them hold. */
bool param_store_saves(const struct param_store *s, const struct param *p);
/* Elements of all this rank's blocks, with the gaps between groups of parameters and the
 * padding. There may be some although no piece is this rank's: the blocks of a very small model
 * can be only padding. */
int64_t param_store_owned(const struct param_store *s);
/* Where the blocks begin among the masters and, with ZeRO 2 and 3, among the gradients. */
float *param_store_owned_masters(const struct param_store *s);
float *param_store_owned_grads(const struct param_store *s);
/* Whether the masters are in the host's memory while the backend's memory is a device's. */
bool param_store_masters_offloaded(const struct param_store *s);

/* Lets an update of the whole piece (kernels/ops.h) also set the stored form of the masters,
 * rounded as param_store_sync_params of `step` would round it. Does not change u if the masters are
 * the stored form. An update that is skipped leaves the stored form as it is. */
void param_store_stored_form(const struct param_store *s, const struct param_piece *piece,
			     int64_t step, struct update *u);
/* The updates of this step have set every stored form that param_store_stored_form gave them. The
 * next param_store_sync_params rounds nothing. */
void param_store_stored_done(struct param_store *s);

/* The masters have changed: updates the stored parameters on every replica. step: how many steps
 * are finished, for stochastic rounding. */
int param_store_sync_params(struct param_store *s, int64_t step, struct err *e);

/* Changes with each param_store_sync_params, and so with the stored parameters. 0 before the first
 * one. */
uint64_t param_store_version(const struct param_store *s);

/* The whole gradients in the flat order, for tests. NULL: they are sharded. */
float *param_store_flat_grads(const struct param_store *s);
/* Seconds spent waiting for gathers and reductions since param_store_open. */
double param_store_wait_seconds(const struct param_store *s);

#endif
