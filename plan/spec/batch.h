/*
 * batch — splits a global batch over the replicas: how many micro-batches each gets, and where they
 * begin.
 *
 * Equal devices get equal shares. Unequal devices (speeds.h) get the numbers of micro-batches that
 * minimize the slowest replica's time; a replica is as fast as the slowest stage of its pipeline.
 * The replicas of an expert-parallel group, which exchange tokens in each micro-batch, get equal
 * numbers. The order of the samples does not depend on how they are split.
 */
#ifndef MUSTER_PLAN_SPEC_BATCH_H
#define MUSTER_PLAN_SPEC_BATCH_H

#include "base/err.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

#include <stdint.h>

struct batch_share {
	int micros;    /* micro-batches of batch.micro sequences; at least 1 */
	int64_t first; /* its first sequence in the global batch, from 0; the others follow it */
};

/* One share for each replica, out[l->dp]. stages: of the whole model. ERR_USAGE if there are fewer
 * micro-batches than replicas, or if the numbers are unequal under ZeRO 2 or 3, which reduces each
 * micro-batch's gradients over all replicas. */
int batch_split(const struct job *job, const struct model_shape *m, const struct layout *l,
		const struct stage *stages, struct batch_share *out, struct err *e);

/* The replica that takes the longest for its share. speeds: of its pipeline ranks, [dp][pp]. */
int batch_slowest(const struct model_shape *m, const struct layout *l, const struct stage *stages,
		  const struct batch_share *shares, const double *speeds);

#endif
