/*
 * plan — everything about a job that is decided and predicted before anything starts.
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
#include "plan/spec/step_time.h"
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
	/* of the node's memory if the device has its own: what is offloaded, and the snapshot; not
	 * part of the total */
	double host;
};

/* A rank's memory by part. The engine allocates by the same arithmetic:
 *   params, grads   the catalogue's elements, or the shards of them that the ZeRO stage leaves
 *                   (zero.h)
 *   optimizer       the moments of what the rank owns, and the masters if parameters are not fp32;
 *                   0 if it is offloaded
 *   activations     what each layer keeps of a micro-batch, times the micro-batches that the
 *                   schedule keeps alive; without what is offloaded
 *   buffers         ZeRO's buffers for whole units, scratch memory of the passes (with what
 *                   recomputation writes again) and of the backend, a chunk of the logits, the
 *                   tokens
 *   snapshot        the copy of what the rank saves, from which a checkpoint is written while
 *                   training continues, and the copies for a loss (plan_memory_images). They are in
 *                   the node's memory: part of the total on a CPU, otherwise of `host`
 * stages: of the whole model. The caller sets r's coordinates and threads, and node_replicas (0:
 * all replicas are on the node); the function sets the bytes. on_cpu: the device has no memory of
 * its own. */
void plan_memory_rank(const struct job *job, const struct model_shape *m, const struct layout *l,
		      int micros, const struct stage *stages, bool on_cpu, struct plan_rank *r);

enum { PLAN_WARNING = 1024 };

struct plan {
	struct model_shape shape;
	struct layout layout;
	int world;
	int micros;          /* the most micro-batches that a replica has in a step */
	int slowest_replica; /* the replica that takes longest; schedule and costs are its own */
	int threads;         /* the most threads of any agent */
	struct batch_share *shares; /* [layout.dp] */
	struct stage *stages;       /* layout_n_stages */
	struct plan_rank *ranks;    /* world */
	struct placement place;     /* the cost of the map of ranks, and how it was found */
	struct schedule schedule;   /* of the slowest replica */
	struct sched_costs costs;   /* predicted, of the schedule's passes */
	double *seconds;            /* the memory that `costs` points to */
	struct plan_time time;
	double memory;  /* bytes that a rank may use; 0: unknown */
	double library; /* bytes of a rank's device that NCCL takes (plan/memory_library.h) */
	int64_t logits; /* MiB of a chunk of logits: batch.logits, or less if memory is short */
	char warning[PLAN_WARNING]; /* what is legal but slow or useless, or "" */
};

/* Decides and checks everything. A mixed cluster's parts (plan/parts.h) are tried one by one, and
 * the fastest plan counts; nodes of the others stay unused. ERR_NOFIT if the cluster cannot hold the
 * job; the message names the part that does not fit and, unless the err is brief, the nearest degrees
 * that do.
 *
 * plan/place/place.h maps the ranks for the job's own traffic. If launch.speeds or launch.threads
 * names each rank's device, if ZeRO shards inside nodes, or if the cluster is one host's CPU, rank
 * r is the r-th device instead; no tensor-parallel group crosses a node as long as there are enough
 * devices to leave the rest of a node unused. If such a group must cross, `warning` says so. */
int plan_build(const struct job *job, const struct cluster *cluster, struct plan *out,
	       struct err *e);
void plan_free(struct plan *p);

/* Adds to the plan's warning, as far as there is room. */
__attribute__((format(printf, 2, 3))) void plan_warn(struct plan *p, const char *fmt, ...);

/* Adds the warnings that do not depend on the layout: types of numbers that the ranks' devices
 * lack, and guesses. */
void plan_warn_machines(const struct job *job, const struct cluster *c, struct plan *p);

/* Sets the bytes of plan->ranks (memory.c) and of plan->library. */
void plan_memory(const struct job *job, const struct cluster *cluster, struct plan *p);
/* Among the ranks with this coordinate in the pipeline, the one that needs the most memory. */
const struct plan_rank *plan_largest(const struct plan *p, int pp);

#endif
