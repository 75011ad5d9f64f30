/*
 * samples — the input of the training loop: this rank's share of each step, read ahead, and its
 * ledger.
 *
 * The loop calls train_samples_next for a step, train_samples_done when the step is finished, and
 * train_samples_durable before a checkpoint, so that the ledger has every step that the checkpoint
 * holds (data/ledger.h). Validation samples are read separately and are not in the ledger.
 *
 * The run skips the positions of data.skip and those of its rollbacks. Whatever the layout and the
 * generation, the batch of a step is the next samples that are not skipped.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_SAMPLES_H
#define MUSTER_AGENT_ENGINE_TRAIN_SAMPLES_H

#include "agent/engine/data/data.h"
#include "agent/engine/pipeline/engine.h"
#include "agent/engine/train/hooks.h"
#include "base/err.h"
#include "base/ranges.h"
#include "libcomm/comm.h"
#include "plan/spec/rank_view.h"

#include <jansson.h>
#include <stdint.h>

struct samples_options {
	const struct rank_view *view; /* borrowed, like every pointer here */
	struct comm *world;
	const struct train_hooks *hooks;
	const char *run_dir;
	uint32_t generation;
	json_t *skips; /* of rollbacks: a list of struct msg_skip; NULL: none */
};

struct samples; /* one thread */

/* Opens the data. */
int train_samples_open(const struct samples_options *opt, struct samples **out, struct err *e);
void train_samples_close(struct samples *s); /* takes NULL */
const struct dataset *train_samples_data(const struct samples *s);
/* Where a run is: finished steps, samples that they consumed, and samples that it skipped. */
struct samples_place {
	int64_t step, consumed, skipped;
};

/* Starts reading ahead, and begins the generation's entries in the ledger. layout: for people;
 * borrowed. */
int train_samples_begin(struct samples *s, const struct samples_place *at, json_t *layout,
			struct err *e);
/* How many samples the run has skipped when this step of the generation, or a later one, is
 * finished. */
int64_t train_samples_skipped(const struct samples *s, int64_t step);
/* The positions in the order of the batch of a step of the generation, and of as many samples
 * before it as `before` batches have. */
struct range train_samples_span(const struct samples *s, int64_t step, int64_t before);

/* Sets the share of the next step, valid until the next call. loss_scale is 1. */
int train_samples_next(struct samples *s, struct engine_batch *out, struct err *e);
/* Marks the step of the last share as finished. */
void train_samples_done(struct samples *s);
/* Collective. Makes the finished steps durable in the ledger. If its disk is full, it logs that and
 * succeeds. */
int train_samples_durable(struct samples *s, struct err *e);
/* Collective. Only writes them: they survive the process, and train_samples_sync, which any thread of
 * rank 0 may call, makes them survive the node. */
int train_samples_written(struct samples *s, struct err *e);
int train_samples_sync(const struct samples *s, struct err *e);

/* Calls fn for each of `batches` global batches of the validation split. Stops if fn fails. */
int train_samples_evaluate(struct samples *s, int64_t batches,
			   int (*fn)(const struct engine_batch *b, void *arg, struct err *e),
			   void *arg, struct err *e);

#endif
