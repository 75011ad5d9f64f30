/*
 * contract — the plan's prediction against what was measured: the time of a step, part by part
 * (base/step_parts.h), and the memory of the ranks. On both sides the parts add up to the step.
 *
 * The measured parts are means over the steps of a run, as the rank that sends metrics saw them.
 * The first step of each generation is left out because it warms up caches. The predicted parts are
 * the plan's (plan/plan.h); for a pipeline they are those of its busiest stage.
 */
#ifndef MUSTER_LAUNCHER_SUPERVISE_CONTRACT_H
#define MUSTER_LAUNCHER_SUPERVISE_CONTRACT_H

#include "base/messages.h"
#include "launcher/supervise/terminal.h"
#include "plan/cost/sureness.h"
#include "plan/plan.h"

/* {0}: nothing was measured. */
struct contract {
	int64_t steps;
	double parts[STEP_PART_COUNT]; /* sums of seconds */
	/* the rank whose memory differs most from its prediction, and its bytes; 0: none is
	 * known */
	int rank;
	double predicted_bytes, measured_bytes;
};

/* Adds one step. A part that is not finite or below 0 counts as 0. */
void supervise_contract_step(struct contract *c, const struct msg_metrics *m);
/* Adds a rank's peak memory once it has finished. */
void supervise_contract_memory(struct contract *c, const struct plan *plan, int rank, double bytes);

/* The predicted seconds of each part of a step. */
void supervise_contract_predicted(const struct job *job, const struct cluster *cluster,
				  const struct plan *plan, double parts[STEP_PART_COUNT]);
/* The seconds between which a step likely takes that is predicted to take `seconds`. False if the
 * error of predictions is unknown (plan/cost/sureness.h). */
bool supervise_contract_interval(const struct job *job, const struct cluster *cluster,
				 const struct plan *plan, double seconds,
				 struct cost_interval *out);
/*
 * Finds the first kind of communication whose measured time differs from the prediction by more
 * than a factor of 2 and by more than 5 % of the step. True: `text` describes it. False if there is
 * none, and if agents share cores (`shared`), because there a wait often means that another agent
 * has the core.
 */
bool supervise_contract_mismatch(const struct contract *c, const double predicted[STEP_PART_COUNT],
				 bool shared, char *text, size_t size);

/* {"steps": …, "predicted": {"step_s": …, "compute_s": …, …}, "measured": {the same keys},
 * "memory": {"rank", "predicted_bytes", "measured_bytes"}}; without "memory" if none is known. A
 * new reference. */
json_t *supervise_contract_json(const struct contract *c, const double predicted[STEP_PART_COUNT]);
/* The sum of the parts. */
double supervise_contract_sum(const double parts[STEP_PART_COUNT]);
/* Prints the parts of at least 1 % of the step, a line each. likely: NULL: unknown. */
void supervise_contract_print(const struct contract *c, const double predicted[STEP_PART_COUNT],
			      const struct cost_interval *likely, struct terminal *t);

#endif
