/*
 * train — the loop: data, step, metrics, checkpoint, until done, stopped or failed.
 */
#ifndef MUSTER_AGENT_ENGINE_TRAIN_TRAIN_H
#define MUSTER_AGENT_ENGINE_TRAIN_TRAIN_H

#include "agent/engine/train/blame.h"
#include "agent/engine/train/hooks.h"
#include "agent/engine/train/phases.h"
#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/rank_view.h"

#include <jansson.h>
#include <stdint.h>

struct ckpt_store;

struct train_env {
	const struct rank_view *view;
	struct comm *world;
	const struct train_hooks *hooks;
	const char *run_dir;
	/* as in msg.h, welcome: "auto", "none", or the path of a checkpoint */
	const char *resume;
	/* samples that rollbacks skip: a list of struct msg_skip; NULL: none */
	json_t *skips;
	uint32_t generation;
	int threads;
	/* with job.device = cuda: the index of the GPU among those visible to this process */
	int device;
	int node, leaf; /* of this rank, and the switch that the node is attached to; -1: unknown */
	int node_ranks; /* of its node */
	/* copies that outlive the generation (agent/engine/ckpt/memory/store.h); on all ranks or on none (NULL) */
	struct ckpt_store *memory;
	const char *node_name; /* for messages; NULL: unknown */
	struct train_blame
		*blame;        /* set when wrong numbers are traced to ranks; NULL: not wanted */
	struct phases *phases; /* seconds of each phase of the start so far; train_run adds to it */
};

/* Trains until the job's last step, or until a stop (all ranks at the same step); calls the hooks
 * for ready, steps, evaluations, checkpoints, progress and finished. The caller reports an error.
 *
 * If the disk is full at the last checkpoint (of the job, or of a stop), it is retried for a
 * minute, or for the remaining time of the stop; a later stop without a checkpoint ends the
 * retries. */
int train_run(const struct train_env *env, struct err *e);

#endif
