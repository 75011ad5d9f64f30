/*
 * train — the loop: data, step, metrics, checkpoint, until done, stopped or failed.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_TRAIN_H
#define MUSTER_AGENT_ENGINE_TRAIN_TRAIN_H

#include "agent/engine/train/hooks.h"
#include "agent/engine/train/phases.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"

#include <stdint.h>

struct train_env {
	const struct job *job;
	struct layout layout;
	struct coords at;
	struct comm *world;
	const struct train_hooks *hooks;
	const char *run_dir;
	/* as of msg.h, welcome: "auto", "none", or the folder of a checkpoint */
	const char *resume;
	uint32_t generation;
	int threads;
	/* which GPU of those that this process sees, with job.device = cuda */
	int device;
	int node;              /* this rank's */
	struct phases *phases; /* how long the start has taken so far; the loop adds its own */
};

/* A disk that is full at the last checkpoint (of the job, or of a stop) is given a minute to be
 * made room on, or what is left of the stop's own time; a later stop without a checkpoint ends
 * that.
 *
 * Returns when the job's last step is done or a stop was obeyed (all ranks at the same step); sends
 * ready, metrics, eval, ckpt, progress and finished. An error has not been reported yet: the caller
 * sends failed. */
int train_run(const struct train_env *env, struct err *e);

#endif
