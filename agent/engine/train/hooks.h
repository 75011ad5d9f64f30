/*
 * hooks — how the training loop reports to the process that it runs in, and queries it.
 *
 * The engine has no control channel of its own: the caller of train_run fills this table
 * (agent/metrics/report.c does it over the control channel). Every entry except those for drills is
 * set. All entries except `moved`, `await_recorded`, `await_contact` and `traced` are called on the training
 * thread.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_HOOKS_H
#define MUSTER_AGENT_ENGINE_TRAIN_HOOKS_H

#include "agent/engine/train/phases.h"
#include "agent/engine/train/step_report.h"
#include "agent/engine/train/times.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct ckpt_report; /* agent/engine/ckpt/ckpt.h */

/* What a drill spoils (agent/drill.h). */
enum train_plant {
	TRAIN_PLANT_NOTHING,
	TRAIN_PLANT_INPUT,    /* NaN in the activations, each time the step is computed */
	TRAIN_PLANT_ONCE,     /* the same, only the first time */
	TRAIN_PLANT_GRADIENT, /* NaN in the gradients before their reduction, each time */
	TRAIN_PLANT_WEIGHT,   /* NaN in the weights */
	TRAIN_PLANT_FLIP      /* one bit of the weights flips */
};

/* A step whose numbers are bad (bad_numbers.h): nothing was updated. */
struct bad_step {
	int64_t step;
	const char *what; /* "loss" or "gradient norm" */
	double value, usual;
	int64_t first, count; /* the positions to skip */
};

/* Steps that somebody asked for are recorded, or cannot be (step_trace.h). */
struct trace_report {
	int number;          /* of the request */
	int64_t first, last; /* the steps, counted from 1 */
	const char *why;     /* NULL: the file is written */
};

struct train_hooks {
	void *arg; /* the first argument of each */

	/* The rank begins this phase of this step; phase: a literal such as "forward". Called many
	 * times per step, so it must be cheap. */
	void (*progress)(void *arg, int64_t step, const char *phase);
	/* The rank has made progress inside a long phase. Any thread. */
	void (*moved)(void *arg);
	/* A step is finished. seconds: the part of it that this rank spent on its samples, on
	 * forward and on backward, without waiting for another rank. */
	void (*worked)(void *arg, double seconds);
	/* Where the time went since ready, after each step and what follows it. at_once: a checkpoint
	 * has begun, and the supervisor must know the times up to its step. */
	void (*times)(void *arg, const struct train_times *times, bool at_once);
	/* Whether a stop is requested; *checkpoint: whether to write a checkpoint first. */
	bool (*stopping)(void *arg, bool *checkpoint);
	/* The number of the last checkpoint that somebody has asked for; 0: nobody has. */
	int (*save_asked)(void *arg);
	/* The last request to record steps: its number, and *steps; 0: there is none. */
	int (*trace_asked)(void *arg, int *steps);
	/* Waits at most `seconds` until all metrics up to this step are in the run folder. Called
	 * on any thread. */
	int (*await_recorded)(void *arg, int64_t step, double seconds, struct err *e);
	/* Waits until the supervisor has heard of this rank lately, so that no other generation can have
	 * begun. Called on any thread, right before a checkpoint is committed. */
	int (*await_contact)(void *arg, struct err *e);
	/* This rank has failed: await_recorded and await_contact return at once from now on. */
	void (*give_up)(void *arg);

	/* The rank is ready to train after this step; from: where the state was loaded from, "memory" or
	 * a path; "": it is the initial one. start: the seconds of each phase of its start. */
	void (*ready)(void *arg, int64_t step, int64_t samples, const char *from,
		      const struct phases *start);
	void (*step)(void *arg, const struct step_report *r);
	void (*eval)(void *arg, int64_t step, double loss);
	/* On every rank: the step is bad, and train_run fails with ERR_NUMERIC after this. */
	void (*bad_step)(void *arg, const struct bad_step *b);
	/* A checkpoint of this step begins: metrics up to it must be recorded. */
	void (*series)(void *arg, int64_t step);
	void (*committed)(void *arg, const struct ckpt_report *c);
	/* On world rank 0: the checkpoint of this step that somebody has asked for was not committed. */
	void (*save_failed)(void *arg, int64_t step, const char *why);
	/* A request to record steps has ended. Called on any thread. */
	void (*traced)(void *arg, const struct trace_report *r);
	void (*finished)(void *arg, int64_t step, int64_t peak_bytes, const struct phases *spent);

	/* For drills, NULL otherwise: called before each step with the number of finished ones. It
	 * may fail in place of the step, or not return at all. *poison: the step's gradients become
	 * NaN. */
	int (*drill)(void *drill_arg, int64_t step, bool *poison, struct err *e);
	/* For drills, NULL otherwise: whether this rank's gradients become NaN with the batch of
	 * these positions in the order of the data. */
	bool (*drill_data)(void *drill_arg, int64_t first, int64_t end);
	void *drill_arg;
	/* For drills, NULL otherwise: which numbers of the step to spoil (plant.h), called before
	 * each step with the number of finished ones. */
	enum train_plant (*plant)(void *drill_arg, int64_t step);
};

#endif
