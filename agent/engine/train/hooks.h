/*
 * hooks — what the training loop reports, and what it asks, of the process that it runs in.
 *
 * The engine knows no control channel: whoever calls train_run fills this table
 * (agent/metrics/report.c, over the control channel). Every entry is set. All but `moved` and
 * `await_recorded` are called on the training thread.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_HOOKS_H
#define MUSTER_AGENT_ENGINE_TRAIN_HOOKS_H

#include "agent/engine/train/phases.h"
#include "agent/engine/train/step_report.h"
#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct ckpt_report; /* agent/engine/ckpt/ckpt.h */

struct train_hooks {
	void *arg; /* the first argument of each */

	/* The rank works on this phase of this step; phase: a literal such as "forward". Cheap:
	 * called many times per step. */
	void (*progress)(void *arg, int64_t step, const char *phase);
	/* The rank has moved inside a long phase. Any thread. */
	void (*moved)(void *arg);
	/* Whether a stop was asked for; *checkpoint: whether to write one first. */
	bool (*stopping)(void *arg, bool *checkpoint);
	/* Waits at most `seconds` until all metrics up to this step are in the run folder. Any
	 * thread. */
	int (*await_recorded)(void *arg, int64_t step, double seconds, struct err *e);
	/* This rank has failed: await_recorded returns at once, now and later. */
	void (*give_up)(void *arg);

	/* The rank goes on from this step; start: how long its parts of the start took. */
	void (*ready)(void *arg, int64_t step, int64_t samples, const struct phases *start);
	void (*step)(void *arg, const struct step_report *r);
	void (*eval)(void *arg, int64_t step, double loss);
	/* A checkpoint of this step begins: metrics up to it must be recorded. */
	void (*series)(void *arg, int64_t step);
	void (*committed)(void *arg, const struct ckpt_report *c);
	void (*finished)(void *arg, int64_t step, int64_t peak_bytes, const struct phases *spent);
};

#endif
