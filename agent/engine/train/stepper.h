/*
 * stepper — one step of training: its passes, the judgement of its numbers, and its update. The
 * trainer calls it, and so do the tests' trainee and tests/gpu/bench: they run what trains.
 *
 * The numbers of a step are its loss and its gradient norm. They are read in one of two ways, which
 * decide the same and give the same bits:
 *
 *     at once   The host waits for the numbers, judges the step, and then updates.
 *     late      The device judges the step and updates. The host reads the numbers while the device
 *               computes the next step: when its passes are queued, but not its update.
 *
 * A device's numbers are read late if it has one rank or all groups are the device's library's.
 * With a parameter server they are read at once, because the update is the server's.
 *
 * The limits of spikes (bad_numbers.h) are set before the update of step N is queued. By then the
 * host has read all steps up to N - 1, so that the limits are those of at once. A step that the
 * device skips changes neither weights nor the optimizer's states; the host reads that one step
 * later, and then the run ends (or, in fp16, goes on with another loss scale).
 *
 * A bad step is diagnosed by computing it again. Late, the next passes have replaced its activations
 * and gradients, so that it is computed once more before that (train_stepper_again); if a device
 * failed only for a moment, then only the loss shows it. The passes read what they read the first
 * time: the weights, because the update was skipped; the batch, which is kept; and with delayed
 * scaling the scales, which are kept too (scales_fp8.h).
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_STEPPER_H
#define MUSTER_AGENT_ENGINE_TRAIN_STEPPER_H

#include "agent/engine/optim/optim.h"
#include "agent/engine/optim/scaler.h"
#include "agent/engine/pipeline/engine.h"
#include "agent/engine/train/bad_numbers.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/rank_view.h"

#include <stdbool.h>
#include <stdint.h>

/* The numbers of a step; the same on all ranks. */
struct step_result {
	int64_t step; /* finished steps before it */
	double loss, norm;
	double loss_scale; /* of its gradients */
	bool skipped;      /* fp16 gradients have overflowed, and nothing was updated */
	/* late: seconds that the host waited, and whether the next step's passes were queued */
	double waited;
	bool passed;
};

/* What the caller does during a step. Each entry but arg may be NULL. */
struct stepper_hooks {
	void *arg;
	void (*phase)(void *arg, const char *name); /* a phase begins; name: a literal */
	/* the passes are queued, and the gradients are those of the whole step */
	int (*queued)(void *arg, struct err *e);
	/* late: the numbers of an earlier step are known, and are good or skipped */
	void (*known)(void *arg, const struct step_result *r);
	/* The numbers are bad, and nothing was updated. *e says so, and may be made better. */
	void (*bad)(void *arg, const struct step_result *r, const struct bad_number *bad,
		    struct err *e);
	/* in place of norm and update: sets r->loss and r->norm (agent/engine/server) */
	int (*exchange)(void *arg, struct step_result *r, struct err *e);
};

enum train_reading { TRAIN_READS_AS_FITS, TRAIN_READS_AT_ONCE, TRAIN_READS_LATE };

/* All pointers are borrowed. */
struct stepper_parts {
	const struct rank_view *view;
	struct comm *world;
	struct engine *engine;
	struct optim *optim; /* NULL: hooks->exchange updates */
	const struct stepper_hooks *hooks;
	/* LATE, for tests, also on the host, if there is one rank or the optimizer has a
	 * device_world */
	enum train_reading reading;
};

/* Callers read the members, and between init and begin may set scaler and spikes. */
struct stepper {
	struct stepper_parts of;
	struct scaler scaler;
	struct bad_numbers spikes;
	bool late;
	struct step_result last;   /* whose numbers are known; before there is one they are NaN */
	struct engine_batch batch; /* of that step, as it can be computed again */
	/* the step whose passes are queued, and late the one whose update is queued too */
	struct stepper_batch {
		int64_t step;
		struct engine_batch batch;
	} now, before;
	bool pending;                         /* the numbers of `before` are not known */
	int32_t *tokens;                      /* of `before`: [3][tokens of the batch] */
	struct step_numbers numbers;          /* of `last`, if late */
	struct step_numbers read_here, *read; /* where the device's copy of them goes */
};

/* Sets scaler and spikes to those of a new run. */
void train_stepper_init(struct stepper *s, const struct job *job);
/* Before the first step, when the state is loaded: late, the device gets the loss scale. */
int train_stepper_begin(struct stepper *s, const struct stepper_parts *of, struct err *e);
void train_stepper_fini(struct stepper *s);

/* Collective. Performs step `step` (from 0): train_stepper_passes and train_stepper_update. The
 * batch need not outlive the call; its loss scale is the stepper's. At once, s->last is the step
 * afterwards, and late the one before it. A bad step fails (ERR_NUMERIC). */
int train_stepper_run(struct stepper *s, const struct engine_batch *b, int64_t step, struct err *e);
int train_stepper_passes(struct stepper *s, const struct engine_batch *b, int64_t step,
			 struct err *e);
int train_stepper_update(struct stepper *s, struct err *e);
/* Collective. Late: waits for the last step's numbers, unless they are known, and judges them.
 * Before a checkpoint, a comparison of replicas, an evaluation and the end. */
int train_stepper_settle(struct stepper *s, struct err *e);

/* For hooks->bad: if later passes have replaced what the bad step computed, computes it again.
 * Collective. */
int train_stepper_again(struct stepper *s, struct err *e);

#endif
