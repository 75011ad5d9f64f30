/*
 * rank_view — what one rank of a job needs to know of the plan: its place in the layout, its stages
 * of the model, and its share of each global batch.
 *
 * All of it follows from the job, the layout and the rank's number. The agent computes it once,
 * before the device and the data are opened, and hands a const pointer to the parts of the engine.
 * They read it and derive none of it again. It never changes and must outlive them. Any thread may
 * read it.
 *
 * Groups of ranks are in agent/engine/parallel/groups.h, and the rows of the schedule are in
 * plan/spec/schedule/schedule.h.
 */
#ifndef MUSTER_PLAN_SPEC_RANK_VIEW_H
#define MUSTER_PLAN_SPEC_RANK_VIEW_H

#include "base/err.h"
#include "plan/spec/batch.h"
#include "plan/spec/job/job.h"
#include "plan/spec/layout.h"
#include "plan/spec/model/model.h"

#include <stdint.h>

struct rank_view {
	const struct job *job; /* borrowed; it has passed the checks */
	struct model_shape shape;
	struct layout layout;
	struct coords at;
	struct stage *stages; /* [layout_n_stages] of the whole model; owned */
	/* This rank's part of the model. Its chunks [layout.chunks] are owned by the view. */
	struct share share;
	/* The replica's share of a global batch, in micro-batches, in sequences and as a number
	 * from 0 to 1. All ranks with the same dp index have the same share. */
	struct batch_share batch;
	int64_t sequences;
	double fraction;
	int64_t micro_tokens, global_tokens; /* tokens of a micro-batch, of a global batch */
};

/* Sets *out to the view of the rank. ERR_USAGE if the model or the batch cannot be split like this
 * (layout_stages, batch_split). On failure *out is not set. */
int rank_view_init(const struct job *job, const struct layout *l, int rank, struct rank_view *out,
		   struct err *e);
/* Frees the stages. Accepts a view that is all zeros. */
void rank_view_fini(struct rank_view *v);

#endif
