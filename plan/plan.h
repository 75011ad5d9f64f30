/*
 * plan — the job on paper: everything decided and predicted before anything starts.
 */
#ifndef MUSTER_PLAN_PLAN_H
#define MUSTER_PLAN_PLAN_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/spec/batch.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"
#include "plan/place/place.h"
#include "plan/spec/schedule/schedule.h"
#include "plan/spec/time.h"
#include "topo/cluster.h"

struct plan_rank {
	struct coords at;
	int node;       /* index into the cluster's nodes */
	int slot;       /* device of that node */
	int threads;    /* of its agent */
	int node_ranks; /* ranks on its node, itself included */
	/* those of them that hold the same parameters; zero_shard = node shards over them */
	int node_replicas;
	/* Predicted bytes. */
	double params, grads, optimizer, activations, buffers, snapshot, total;
};

/* A rank's memory by part (memory.c), the same arithmetic that the engine allocates by:
 *   params, grads   the catalogue's elements, or the shards of them that the ZeRO stage leaves
 *                   (zero.h)
 *   optimizer       of what the rank owns of them the moments, and masters where parameters are not
 *                   fp32; 0 when it is offloaded
 *   activations     what a micro-batch keeps of each layer, times the micro-batches that the
 *                   schedule keeps alive; without what is offloaded
 *   buffers         ZeRO's buffers for whole units, scratch of the passes (with what recomputation
 *                   writes again) and of the backend, a chunk of the logits, the tokens
 *   snapshot        the copy of what the rank saves that a checkpoint is written from, while
 *                   training goes on. It is in the node's memory, so it counts where the device is
 *                   the CPU, and is 0 elsewhere
 * stages: of the whole model. r's place and threads are given (mates 0: all replicas are), bytes
 * are set; r->snapshot only if `saves`. */
void plan_memory_rank(const struct job *job, const struct model_shape *m, const struct layout *l,
		      int micros, const struct stage *stages, bool saves, struct plan_rank *r);

struct plan {
	struct model_shape shape;
	struct layout layout;
	int world;
	int micros;          /* micro-batches a step of the replica with most */
	int slowest_replica; /* the replica that takes longest; schedule and costs are its own */
	int threads;         /* of the agent with most */
	struct batch_share *shares; /* [layout.dp] */
	struct stage *stages;       /* layout_n_stages */
	struct plan_rank *ranks;    /* world */
	struct placement place;     /* what the ranks' places cost, and why they are theirs */
	struct schedule schedule;   /* of the slowest replica */
	struct sched_costs costs;   /* of the schedule's passes, predicted */
	double *seconds;            /* what costs points into */
	struct plan_time time;
	double memory;      /* bytes that a rank may use; 0: unknown */
	char warning[1024]; /* what is legal and yet unwise about it, or "" */
};

/* Decides and checks everything; ERR_NOFIT (with the part that does not fit and the nearest degrees
 * that do) when the cluster cannot hold it.
 *
 * Placement: plan/place/place.h, for the job's own traffic; where launch.speeds or launch.threads
 * names each rank's device, ZeRO shards inside nodes, or the cluster is one host's CPU: rank r is
 * the r-th device, but no tensor-parallel group crosses a node while there are enough devices to
 * leave a node's remainder unused. Where such a group must cross, `warning` says so. */
int plan_build(const struct job *job, const struct cluster *cluster, struct plan *out,
	       struct err *e);
void plan_free(struct plan *p);

/* Whether a plan's times rest on nothing known of the cluster's devices, and the words for it. */
enum { PLAN_GUESSES = 384 };
bool plan_guesses(const struct cluster *c, char out[PLAN_GUESSES]);

/* Sets the bytes of plan->ranks (memory.c). */
void plan_memory(const struct job *job, const struct cluster *cluster, struct plan *p);
/* The rank that needs most memory of those with this coordinate in the pipeline. */
const struct plan_rank *plan_largest(const struct plan *p, int pp);

#endif
