/*
 * store_inner — what an opened store consists of. Only the store's own files include this:
 *
 *     store.c          opening and closing, what is where
 *     param_store_pieces.c   the table of pieces
 *     store_gather.c   parameters on demand, buffers for those that are cut
 *     store_order.c    the learned order of the demands
 *     param_store_reduce.c   gradients while the passes run
 *     param_store_finish.c   what is left of the sums at the step's end, and zeroing
 *     param_store_publish.c  masters to stored parameters
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_STORE_INNER_H
#define MUSTER_AGENT_ENGINE_PARALLEL_STORE_INNER_H

#include "agent/engine/parallel/param_store.h"
#include "agent/engine/parallel/param_store_order.h"
#include "libcomm/comm.h"
#include "plan/spec/model/zero.h"

/* The replicas of a class of units. */
struct replica_groups {
	struct comm *shard, *copies; /* NULL: one rank */
	struct zero_cut cut;
	const struct zero_policy *policy;
	size_t *counts; /* [shards] scratch: what each shard has of a unit */
};

/* Where a unit is. Places count elements. */
struct unit_place {
	int64_t n;                      /* the unit's elements */
	int64_t lo, hi;                 /* of them, those that this rank owns */
	int64_t counted_lo, counted_hi; /* and counts */
	/* its place in the buffers: of the whole unit, or of the owned part where that is all
	 * there is */
	int64_t params, grads, owned;
	bool reduced;                    /* its gradients of this step are complete */
	struct comm_request *publishing; /* the owners' new parameters are on their way */
};

/* A buffer for one unit of a kind: its parameters, or its gradients of a micro-batch. */
struct unit_buffer {
	char *data;
	int unit;                 /* -1: none */
	int holds;                /* uses that have not ended */
	bool wanted;              /* will be used soon */
	int64_t used;             /* when, for the choice of the one to take */
	struct comm_request *req; /* under way: gathered into, or scattered from */
};

struct unit_buffers {
	struct unit_buffer slots[ZERO_BUFFERS];
	int n;
};

struct param_store {
	struct backend *backend;
	const struct ops *ops;
	const struct catalogue *catalogue;
	struct param_store_groups groups;
	struct replica_groups replicas[ZERO_CLASSES];
	bool overlap, stochastic;
	uint64_t seed;
	size_t width;        /* bytes of a stored parameter */
	enum comm_type type; /* of as many bytes: parameters are only moved */

	struct unit_place *homes; /* [n_units] */
	char *params;
	float *grads;
	float *masters; /* NULL: the stored parameters are */
	bool spilled;   /* masters are in a file, or in the host's memory */
	bool fused;     /* the optimizer has set the stored form of the masters */
	int64_t owned;
	struct param_piece *pieces;
	int n_pieces;

	struct unit_buffers gathers[UNIT_KINDS], scatters[UNIT_KINDS];
	struct demand_order order; /* of demands for units that are cut */
	int64_t clock;      /* counts uses of slots */

	struct comm_request **sums; /* [n_units + 1] of this step's gradients, under way */
	int n_sums;
	/* units whose gradients are complete and not yet under way: [first, last); first ==
	 * last: none */
	int first, last;
	int64_t weight; /* of them, in elements, the same on every tp rank */

	int tied; /* with groups.tied: the unit that both hold */
	double gather_s, reduce_s;
};

static inline const struct replica_groups *param_store_replicas(const struct param_store *s, int unit)
{
	return &s->replicas[zero_class(s->catalogue->units[unit].kind)];
}

/* The owned part of a unit: its masters and gradients. */
float *param_store_master(const struct param_store *s, int unit);
float *param_store_grad(const struct param_store *s, int unit);
/* The stored form of the owned part. */
void *param_store_stored(const struct param_store *s, int unit);
/* What each shard has of a unit; valid until the next call for the class. */
const size_t *param_store_counts(struct param_store *s, int unit);
/* The group whose ranks have the parts of a partial parameter's gradient. */
struct comm *param_store_partial_group(const struct param_store *s, const struct param *p);
/* Waits for *req, which may be NULL and is NULL then; the time goes to *spent. */
int param_store_wait_request(struct comm_request **req, double *spent, struct err *e);

int param_store_build_pieces(struct param_store *s, struct err *e);

/* What is in the slot is done with; a gather under way is waited for. */
int param_store_evict(struct param_store *s, struct unit_buffer *slot, struct err *e);
/* The slot of the pool that holds the unit, NULL: none. */
struct unit_buffer *param_store_find_buffer(struct unit_buffers *p, int unit);
/* Starts gathers of what the order says comes next. */
int param_store_prefetch(struct param_store *s, struct err *e);
/* Waits for all parameters that are under way. */
int param_store_wait_params(struct param_store *s, struct err *e);

/* Starts the sum of units [first, last). */
int param_store_reduce_complete(struct param_store *s, struct err *e);
/* Adds what the slot's scatter brings to this rank's gradients. */
int param_store_add_scattered(struct param_store *s, struct unit_buffer *slot, struct err *e);

#endif
