/*
 * sureness — how far a prediction may be off: the errors of the planner on published steps of the
 * same regime (tests/unit/plan/rows), which test_rows.c holds to these figures.
 *
 * Those steps are of other programs on GPUs. muster's own engine is held only to two steps of
 * llm.c, whose kernels are alike (test_cost.c), so its interval is that of the others. Processors
 * have none: `muster bench plan` measures them.
 */
#ifndef MUSTER_PLAN_COST_SURENESS_H
#define MUSTER_PLAN_COST_SURENESS_H

#include "plan/spec/job/job.h"
#include "plan/spec/model/model.h"

struct cost_sureness {
	const char *group;  /* of the rows: "fsdp" ... */
	const char *regime; /* for people */
	int rows;
	/* shares of the published time: at most these are the mean and the largest absolute error */
	double mean, worst;
};

/* The regime of a job: that of its first property among experts, length, 8 bits and ZeRO 3. */
const struct cost_sureness *cost_sureness_of(const struct job *job, const struct model_shape *m);
/* The seconds between which a step likely takes that is predicted to take `seconds`: the error
 * is at most the largest one of the job's regime. flops: the data sheet's rate of the devices
 * that are used (struct plan_peak). False, and *out is not set, if that is 0: on processors and
 * on devices of unknown rates. Likewise in fp32, of which no steps are published. */
struct cost_interval {
	double least, most;
};
bool cost_sureness_interval(const struct job *job, const struct model_shape *m, double flops,
			    double seconds, struct cost_interval *out);
/* All regimes, one after the other; NULL after the last one. */
const struct cost_sureness *cost_sureness_at(int i);

#endif
