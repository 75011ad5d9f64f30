/*
 * samples — what the training loop is fed: this rank's share of each step, read ahead, and the
 * ledger of it.
 *
 * The loop calls train_samples_next for a step, train_samples_done when the step has counted, and
 * train_samples_durable before a checkpoint: what a checkpoint holds, the ledger has
 * (data/ledger.h). Validation is read apart and is in no ledger.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_SAMPLES_H
#define MUSTER_AGENT_ENGINE_TRAIN_SAMPLES_H

#include "agent/engine/data/data.h"
#include "agent/engine/pipeline/engine.h"
#include "agent/engine/train/hooks.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/job/job.h"

#include <jansson.h>
#include <stdint.h>

struct samples_options {
	const struct job *job; /* borrowed, as is the rest */
	struct comm *world;
	const struct train_hooks *hooks;
	const char *run_dir;
	uint32_t generation;
	int replica;           /* dp rank */
	int64_t offset, share; /* its part of a global batch */
};

struct samples; /* one thread */

/* Opens the data. */
int train_samples_open(const struct samples_options *opt, struct samples **out, struct err *e);
void train_samples_close(struct samples *s); /* takes NULL */
const struct dataset *train_samples_data(const struct samples *s);
/* Training goes on after so many steps and samples consumed: reading ahead begins, and so does the
 * generation's part of the ledger. layout: for people; borrowed. */
int train_samples_begin(struct samples *s, int64_t step, int64_t consumed, json_t *layout,
			struct err *e);

/* The share of the next step; good until the next call. loss_scale is 1. */
int train_samples_next(struct samples *s, struct engine_batch *out, struct err *e);
/* The step that it was for is done. */
void train_samples_done(struct samples *s);
/* Collective. What was done is in the ledger, unless its disk is full, which the log is told of. */
int train_samples_durable(struct samples *s, struct err *e);

/* An evaluation of so many global batches: fn for each, until it fails. */
int train_samples_evaluate(struct samples *s, int64_t batches,
			   int (*fn)(const struct engine_batch *b, void *arg, struct err *e),
			   void *arg, struct err *e);

#endif
