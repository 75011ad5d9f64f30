/*
 * scaler — the loss scale of fp16 training. Gradients are computed multiplied by it, so that small
 * ones do not vanish.
 *
 * Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740. The scale is fixed, or
 * dynamic: it halves when a gradient overflows, and doubles after `window` steps without overflow.
 * A step that overflows updates nothing, but its samples count as used. In fp32 and bf16 the scale
 * is always 1. The state is two numbers, the same on every rank, and checkpoints hold it.
 */
#ifndef MUSTER_AGENT_ENGINE_OPTIM_SCALER_H
#define MUSTER_AGENT_ENGINE_OPTIM_SCALER_H

#include "base/err.h"
#include "plan/spec/job/job.h"

#include <stdbool.h>
#include <stdint.h>

enum { SCALER_FIRST = 65536, SCALER_MAX = 1 << 24 }; /* initial and largest dynamic scale */

struct scaler {
	bool scales, dynamic;
	int64_t window;
	double scale; /* at least 1 if dynamic */
	int64_t good; /* steps since it last changed */
};

void optim_scaler_init(struct scaler *s, const struct job *job);
/* Continues with the values of a checkpoint. A fixed scale stays the job's. */
void optim_scaler_resume(struct scaler *s, double scale, int64_t good);

/* Called after each backward pass; finite: whether loss and gradient norm were. Returns 1 to update
 * the parameters, or 0 to skip the step, with a smaller scale. ERR_NUMERIC: the scale cannot become
 * smaller, because the precision is not fp16, or the scale is fixed or 1 already. */
int optim_scaler_update(struct scaler *s, bool finite, struct err *e);

#endif
