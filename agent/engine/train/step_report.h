/* step_report — what one training step computed, and where its time went. */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_STEP_REPORT_H
#define MUSTER_AGENT_ENGINE_TRAIN_STEP_REPORT_H

#include "base/step_parts.h"

#include <stdbool.h>
#include <stdint.h>

struct step_report {
	int64_t step;               /* finished steps */
	int64_t samples;            /* consumed since the run began */
	int64_t tokens;             /* of this step */
	double loss, grad_norm, lr; /* loss: what is trained on */
	/* With experts alone (`routed`): what the loss is the sum of. z_loss: 0 where the job
	 * has none. */
	bool routed;
	double cross_entropy, balance_loss, z_loss;
	/* Seconds from the end of the step before (of the first: from its own begin), evaluations
	 * apart, and their parts as this rank saw them. other_s is what belongs to none of the
	 * others (train_step_report_close): together they are step_s. */
	double step_s;
#define STEP_REPORT_MEMBER(with, ENUM, member, name, transfers, doc) double member##_s;
	STEP_PARTS(STEP_REPORT_MEMBER, )
#undef STEP_REPORT_MEMBER
	/* In fp16 alone: the gradients' scale in this step (0: another precision), and whether
	 * they overflowed and nothing was updated. */
	double loss_scale;
	bool skipped;
	int64_t peak_bytes;
};

/* Sets other_s, from all other fields; clocks that were read in another order leave it 0 at
 * least. */
void train_step_report_close(struct step_report *r);

#endif
