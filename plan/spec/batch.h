/*
 * batch — how the replicas share a global batch: so many micro-batches each, and where in it they
 * begin.
 *
 * Alike devices share alike. Unequal ones (speeds.h) get as many micro-batches as make the slowest
 * replica's time least; a replica is as fast as the slowest stage of its pipeline. The replicas of
 * an expert-parallel group, which exchange tokens in each micro-batch, get equally many. The order
 * of the samples is the same however they are shared.
 */
#ifndef MUSTER_PLAN_SPEC_BATCH_H
#define MUSTER_PLAN_SPEC_BATCH_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

#include <stdint.h>

struct batch_share {
	int micros;    /* micro-batches of batch.micro sequences; 1 at least */
	int64_t first; /* its first sequence, from 0 in the global batch; the rest follow on */
};

/* One share a replica, out[l->dp]; stages: of the whole model. ERR_USAGE when ZeRO 2 or 3, which
 * reduces each micro-batch's gradients over all replicas, would meet unequal numbers, or when there
 * are fewer micro-batches than replicas. */
int batch_split(const struct job *job, const struct model_shape *m, const struct layout *l,
		const struct stage *stages, struct batch_share *out, struct err *e);

/* The replica that takes longest over its share. */
int batch_slowest(const struct job *job, const struct model_shape *m, const struct layout *l,
		  const struct stage *stages, const struct batch_share *shares);
/* The share of one replica, from the job and the layout alone. */
int batch_share_of(const struct job *job, const struct layout *l, int dp, struct batch_share *out,
		   struct err *e);

#endif
