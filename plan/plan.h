/*
 * plan — the job on paper: everything decided and predicted before anything starts.
 */
#ifndef MUSTER_PLAN_PLAN_H
#define MUSTER_PLAN_PLAN_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/job.h"
#include "plan/layout.h"
#include "plan/model.h"
#include "plan/schedule.h"
#include "topo/cluster.h"

#include <jansson.h>

struct plan_rank {
	struct coords at;
	int node;   /* index into the cluster's nodes */
	int slot;   /* device of that node */
	/* Predicted bytes. */
	double params, grads, optimizer, activations, buffers, total;
};

struct plan_time { /* predicted seconds of a step, by part */
	double compute, tp, bubble, dp, optimizer, total;
};

struct plan {
	struct model_shape shape;
	struct layout layout;
	int world, micros;        /* micro-batches a step and dp rank */
	int threads;              /* an agent */
	struct stage *stages;     /* layout.pp */
	struct plan_rank *ranks;  /* world */
	struct schedule schedule;
	struct plan_time time;
};

/* Decides and checks everything; ERR_NOFIT (with the part that does not fit and the nearest remedy) when the
 * cluster cannot hold it. */
int plan_build(const struct job *job, const struct cluster *cluster, struct plan *out, struct err *e);
void plan_free(struct plan *p);

/* Predicted bytes and time (memory.c, cost.c), set into plan->ranks and plan->time. */
void plan_memory(const struct job *job, struct plan *p);
void plan_cost(const struct job *job, const struct cluster *cluster, struct plan *p);

/* What plan-<generation>.json and `muster plan --json` hold; a new reference. */
json_t *plan_json(const struct job *job, const struct cluster *cluster, const struct plan *p);
/* The picture for people: layout, rank map, memory a rank, predicted step. */
void plan_print(const struct job *job, const struct cluster *cluster, const struct plan *p, struct buf *out);

#endif
