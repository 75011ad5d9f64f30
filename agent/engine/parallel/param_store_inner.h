/*
 * param_store_inner — the body of an opened param_store. Only the store's own files include this:
 *
 *     param_store.c          opening, closing and addresses
 *     param_store_pieces.c   the table of pieces
 *     param_store_gather.c   parameters on demand, and buffers for sharded ones
 *     param_store_order.c    the learned order of the demands
 *     param_store_bucket.c   units whose operations start together
 *     param_store_reduce.c   gradients during the passes
 *     param_store_set.c      which gradients have contributions
 *     param_store_replay.c   passes that are recorded and replayed
 *     param_store_finish.c   the remaining reductions at the end of the step
 *     param_store_sync_params.c  masters to stored parameters
 */
#ifndef MUSTER_AGENT_ENGINE_PARALLEL_PARAM_STORE_INNER_H
#define MUSTER_AGENT_ENGINE_PARALLEL_PARAM_STORE_INNER_H

#include "agent/engine/parallel/param_store.h"
#include "agent/engine/parallel/param_store_order.h"
#include "libcomm/comm.h"
#include "plan/spec/model/zero.h"

/* Gathers start this many demands ahead: as many as there are kinds of units, so that the first
 * layer of a step is gathered together with the tables. */
enum { GATHERS_AHEAD = UNIT_KINDS };

/* Units whose operations start together. */
struct unit_bucket {
	int *units; /* [n_units] */
	int n;
	int64_t weight; /* their elements, the same number on every tp rank */
};

/* The replicas of a class of units. */
struct replica_groups {
	struct comm *shard, *copies; /* NULL: one rank */
	struct zero_cut cut;
	const struct zero_policy *policy;
	int64_t bucket;              /* a bucket with at least so many elements is reduced */
	struct unit_bucket complete; /* with complete gradients whose reduction has not started */
	struct unit_bucket changed;  /* whose new parameters are to be gathered */
};

/* The place of a unit in the buffers, counted in elements. */
struct unit_layout {
	int64_t n;      /* the unit's elements */
	int64_t lo, hi; /* this rank owns elements [lo, hi) */
	/* with the padding that makes the shards equal: the elements of this rank's block, its
	 * place in the unit, and the elements of all blocks */
	int64_t block, at, whole;
	int64_t counted_lo, counted_hi; /* and counts these */
	/* where it begins in each buffer: all blocks, or this rank's block if the buffer has no
	 * more */
	int64_t params, grads, owned;
	bool reduced; /* its gradients of this step are complete */
	bool summed;  /* those of a micro-batch were added to the owned ones */
	/* gathers the owners' new parameters of a bucket, of which this is the first unit */
	struct comm_request *publishing;
	int bucket_first; /* the first unit of its bucket */
	int nth;          /* its number among the units of its kind */
};

/* A buffer for one unit of a kind: its parameters, or its gradients of one micro-batch. */
struct unit_buffer {
	char *data;
	int unit;                 /* -1: none */
	int laid;                 /* the last unit whose gradients were in it; -1: none */
	int holds;                /* uses that have not ended */
	bool scattered;           /* gradients that are or will be reduced, and are to be added */
	bool wanted;              /* it will be used soon */
	struct comm_request *req; /* the gather into it, or the reduce-scatter from it */
};

struct unit_buffers {
	struct unit_buffer slots[ZERO_BUFFERS];
	int n;
	size_t bytes; /* of each */
};

struct param_store {
	uint64_t version; /* param_store_version() */
	struct backend *backend;
	const struct ops *ops;
	const struct catalogue *catalogue;
	struct param_store_groups groups;
	struct replica_groups replicas[ZERO_CLASSES];
	bool overlap, stochastic;
	const struct backend_source *memory; /* of the buffers that the groups use */
	uint64_t seed;
	size_t width;        /* bytes of a stored parameter */
	enum comm_type type; /* of as many bytes: parameters are only moved */

	struct unit_layout *layouts; /* [n_units] */
	char *params;
	float *grads;
	size_t params_bytes, grads_bytes;
	bool *set;      /* [params] has contributions */
	float *masters; /* NULL: the stored parameters are the masters */
	bool spilled;   /* masters are in a file or in the host's memory */
	bool fused;     /* the optimizer has set the stored form of the masters */
	int64_t owned;
	struct param_piece *pieces;
	int n_pieces;

	struct unit_buffers gathers[UNIT_KINDS], scatters[UNIT_KINDS];
	bool defers;               /* param_store_defer() */
	bool repeats;              /* param_store_repeat() */
	struct unit_buffer *late;  /* its reduce-scatter starts with the next call; NULL: none */
	struct demand_order order; /* of demands for sharded units */

	struct comm_request **sums; /* [n_units + 1] reductions of this step in progress */
	int n_sums;
	struct comm_part *parts; /* [n_units] of a bucket that starts */

	int tied; /* with groups.tied: the unit that both ranks hold */
	double gather_s, reduce_s;
};

static inline enum zero_class param_store_class(const struct param_store *s, int unit)
{
	return zero_class(s->catalogue->units[unit].kind);
}

static inline const struct replica_groups *param_store_replicas(const struct param_store *s,
								int unit)
{
	return &s->replicas[param_store_class(s, unit)];
}

/* The masters and the gradients of this rank's block of a unit. */
float *param_store_master(const struct param_store *s, int unit);
float *param_store_grad(const struct param_store *s, int unit);
/* The stored form of the block. */
void *param_store_stored(const struct param_store *s, int unit);
/* The group over which a partial parameter's gradient is all-reduced. NULL: there is none. */
struct comm *param_store_partial_group(const struct param_store *s, const struct param *p);
/* Waits for *req, which may be NULL, and sets it to NULL. Adds the time to *spent. */
int param_store_wait_request(struct comm_request **req, double *spent, struct err *e);

int param_store_build_pieces(struct param_store *s, struct err *e);

/* Makes the buckets of all classes. */
int param_store_open_buckets(struct param_store *s, struct err *e);
void param_store_close_buckets(struct param_store *s);
void param_store_bucket_add(const struct param_store *s, struct unit_bucket *b, int unit);
/* Whether enough units are in one of the class's buckets. */
bool param_store_bucket_full(const struct replica_groups *r, const struct unit_bucket *b);
/* The bucket has none any more. */
void param_store_bucket_empty(struct unit_bucket *b);

/* Empties the buffer. Waits for a gather into it. */
int param_store_evict(struct param_store *s, struct unit_buffer *slot, struct err *e);
/* The buffer that holds the unit. NULL: none. */
struct unit_buffer *param_store_find_buffer(struct unit_buffers *p, int unit);
/* Starts gathers of the units that the learned order needs next. */
int param_store_prefetch(struct param_store *s, struct err *e);
/* Waits for all gathers of parameters. */
int param_store_wait_params(struct param_store *s, struct err *e);

/* Where the backward pass puts the unit's gradients. NULL: its buffer is not open. */
float *param_store_open_grads(const struct param_store *s, int unit);
/* Starts the reduce-scatter that is late. */
int param_store_start_late(struct param_store *s, struct err *e);
/* Zeroes those of the unit's gradients that have no contributions. */
void param_store_zero_unset(struct param_store *s, int unit);
/* None of the unit's gradients has contributions. */
void param_store_unset(struct param_store *s, int unit);
/* Waits for the reductions of the step that have started, also after a failure. Reports the first
 * error. */
int param_store_wait_sums(struct param_store *s, struct err *e);
/* Starts the reduction of all units in buckets. */
int param_store_reduce_complete(struct param_store *s, struct err *e);
/* Waits for the buffer's reduce-scatter and adds its result to this rank's gradients; the first one
 * of a step sets them. */
int param_store_add_scattered(struct param_store *s, struct unit_buffer *slot, struct err *e);

#endif
