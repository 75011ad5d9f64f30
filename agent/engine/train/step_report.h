/* step_report — the results of one training step, and its time by part. */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_STEP_REPORT_H
#define MUSTER_AGENT_ENGINE_TRAIN_STEP_REPORT_H

#include "base/step_parts.h"

#include <stdbool.h>
#include <stdint.h>

struct step_report {
	int64_t step;               /* finished steps */
	int64_t samples;            /* consumed since the run began */
	int64_t tokens;             /* of this step */
	double loss, grad_norm, lr; /* loss: the training objective */
	/* With experts only (`routed`): the terms of the loss. z_loss: 0 if the job has none. */
	bool routed;
	double cross_entropy, balance_loss, z_loss;
	/* Seconds from the end of the previous step (for the first step: from its beginning),
	 * without evaluations, and their parts on this rank. other_s is the remainder
	 * (train_step_report_close), so that the parts sum to step_s. */
	double step_s;
#define STEP_REPORT_MEMBER(with, ENUM, member, name, transfers, doc) double member##_s;
	STEP_PARTS(STEP_REPORT_MEMBER, )
#undef STEP_REPORT_MEMBER
	/* With fp16 only: the loss scale of this step (0: another precision), and whether the
	 * gradients overflowed and the update was skipped. */
	double loss_scale;
	bool skipped;
	int64_t peak_bytes;
};

/* Sets other_s from all other fields, at least 0. */
void train_step_report_close(struct step_report *r);

#endif
