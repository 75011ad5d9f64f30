/*
 * contract — what was predicted of a step's time and of the ranks' memory, against what was
 * measured: part by part, together the whole of the step on both sides. What is attributed to no
 * part is "other".
 *
 * The measured parts are means over the steps of a run (but each generation's first, which warms up
 * caches) as the rank that reports saw them (base/msg.h), the predicted ones the plan's
 * (plan/plan.h): a pipeline's are its busiest stage's.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_CONTRACT_H
#define MUSTER_LAUNCHER_SUPERVISE_CONTRACT_H

#include "launcher/supervise/terminal.h"
#include "plan/plan.h"

enum contract_part {
	CONTRACT_COMPUTE,
	CONTRACT_RECOMPUTE,
	CONTRACT_TP,
	CONTRACT_CP,
	CONTRACT_EP,
	CONTRACT_PP,
	CONTRACT_DP,
	CONTRACT_OPTIMIZER,
	CONTRACT_DATA,
	CONTRACT_CHECKPOINT,
	CONTRACT_OTHER,
	CONTRACT_PARTS
};

/* {0}: nothing measured. */
struct contract {
	int64_t steps;
	double parts[CONTRACT_PARTS];           /* sums of seconds */
	int rank;                               /* whose memory is farthest from its prediction */
	double predicted_bytes, measured_bytes; /* its; 0: none is known */
};

/* One step's report. What it lacks, or what is no time, counts as 0. */
void supervise_contract_step(struct contract *c, const json_t *metrics);
/* A rank's peak, when it has finished. */
void supervise_contract_memory(struct contract *c, const struct plan *plan, int rank, double bytes);

/* Seconds of a step by part. */
void supervise_contract_predicted(const struct job *job, const struct cluster *cluster,
				  const struct plan *plan, double parts[CONTRACT_PARTS]);
/* Of transfers that show in both or in one of them by more than a twentieth of the step, the first
 * that is off by more than twice: what is to be said of it; false: none is. Not where agents share
 * cores: there a wait is often another's turn. */
bool supervise_contract_mismatch(const struct contract *c, const double predicted[CONTRACT_PARTS],
				 bool shared, char *text, size_t size);

/* {"steps": …, "predicted": {"step_s": …, "compute_s": …, …}, "measured": {the same}, "memory":
 * {"rank", "predicted_bytes", "measured_bytes"}}; without memory where none is known. A new
 * reference. */
json_t *supervise_contract_json(const struct contract *c, const double predicted[CONTRACT_PARTS]);
/* The parts that matter, a line each. */
void supervise_contract_tell(const struct contract *c, const double predicted[CONTRACT_PARTS],
			     struct terminal *t);

#endif
