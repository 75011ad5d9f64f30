/*
 * scaler — the loss scale of fp16 training: gradients are computed multiplied by it, so that small
 * ones do not vanish.
 *
 * Micikevicius et al., "Mixed Precision Training", arXiv 1710.03740: a fixed scale, or one that
 * halves when a gradient overflows (that step updates nothing; its samples count as seen) and
 * doubles after `window` steps without. In fp32 and bf16 it is 1 for ever. The state is two
 * numbers, the same on every rank, kept in checkpoints.
 */
#ifndef MUSTER_AGENT_ENGINE_OPTIM_SCALER_H
#define MUSTER_AGENT_ENGINE_OPTIM_SCALER_H

#include "base/err.h"
#include "plan/spec/job/job.h"

#include <stdbool.h>
#include <stdint.h>

enum { SCALER_FIRST = 65536, SCALER_MOST = 1 << 24 }; /* of a dynamic scale */

struct scaler {
	bool scales, dynamic;
	int64_t window;
	double scale; /* 1 at least when dynamic */
	int64_t good; /* steps since it last changed */
};

void optim_scaler_init(struct scaler *s, const struct job *job);
/* Goes on with what a checkpoint holds; a fixed scale stays the job's. */
void optim_scaler_resume(struct scaler *s, double scale, int64_t good);

/* After a step whose gradients' norm was finite or not. 1: update the parameters; 0: do not (the
 * scale has become smaller). ERR_NUMERIC when it cannot: in another precision, at a fixed scale, or
 * when it is 1 already. */
int optim_scaler_judge(struct scaler *s, bool finite, struct err *e);

#endif
