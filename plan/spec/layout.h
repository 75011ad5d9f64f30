/*
 * layout — the ranks of a job: degrees, coordinates, stages.
 *
 * The order of the ranks is tp-cp-dp-pp: tp varies fastest, so that tensor-parallel groups are on
 * adjacent devices of a node. Experts have their own grid over the same ranks, as in Megatron-LM:
 * ep divides dp, and the expert-parallel group of a rank is the ep adjacent dp ranks around it. So
 * the whole order is tp-cp-ep-dp-pp.
 *
 * A rank holds `chunks` virtual stages. The model's pp × chunks stages go round the ranks (chunk c
 * of pipeline rank r is stage c pp + r), or there and back (vee, two chunks: stages r and 2 pp - 1
 * - r).
 */
#ifndef MUSTER_PLAN_SPEC_LAYOUT_H
#define MUSTER_PLAN_SPEC_LAYOUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct layout {
	int tp, cp, dp, pp;
	int ep;     /* divides dp */
	int chunks; /* virtual stages per rank */
	bool vee;
};

struct coords {
	int tp, cp, dp, pp;
};

enum { LAYOUT_CHUNKS_MAX = 64 };

struct job;
/* The job's degrees with dp replicas; chunks and vee are those of its schedule. */
struct layout layout_of(const struct job *job, int dp);
int layout_world(const struct layout *l);
struct coords layout_coords(const struct layout *l, int rank);
int layout_rank(const struct layout *l, struct coords c);
/* Stages of the model: pp × chunks. */
int layout_n_stages(const struct layout *l);
/* The stage that is chunk `chunk` of pipeline rank `pp`, and the inverse. */
int layout_stage(const struct layout *l, int pp, int chunk);
void layout_holder(const struct layout *l, int stage, int *pp, int *chunk);

/* Splits [0, n) into `parts` balanced pieces at multiples of `grain`. Piece i is [*lo, *hi). Pieces
 * differ by at most one grain; the last one also takes the remainder of n / grain. Pieces can be
 * empty only if n / grain < parts. */
void layout_partition(int64_t n, int parts, int i, int64_t grain, int64_t *lo, int64_t *hi);

/* The grain, halved until none of `parts` pieces of n is empty; at least 1. */
int64_t layout_partition_grain(int64_t n, int parts, int64_t grain);

/* One pipeline stage: layers [layer_lo, layer_hi), the embedding if it is the first, the final norm
 * and the head if it is the last. In muster's engine each stage has a layer. Other programs
 * (plan.engine) can have bare ends: the first stage is the embedding alone, the last one the head
 * alone. */
struct stage {
	int layer_lo, layer_hi;
	bool first, last;
};

/* A rank's part of the model: its shard in each degree, and its stages. */
struct share {
	int tp, tp_rank, ep, ep_rank;
	/* tp ranks split the sequence too, so their gradients of norms must be added up */
	bool sp;
	const struct stage *chunks; /* [n_chunks]; borrowed */
	int n_chunks;
};

/* The share of the rank at `at`. stages: of the whole model. The result borrows chunks. */
struct share layout_share(const struct layout *l, struct coords at, bool sp,
			  const struct stage *stages, struct stage chunks[LAYOUT_CHUNKS_MAX]);

/* Whether the job's program can have bare ends. */
bool layout_bare_ends(const struct job *job);
/* The most stages that `layers` layers fill. */
int64_t layout_stages_most(int64_t layers, bool bare_ends);

/* The n stages of the model. by_hand: the layers of each, "3,5,4"; "": balanced by cost
 * (shape_cost_* in model.h). The head and the embedding count by their cost in layers, and a
 * stage's work is in proportion to the speed of its holder. bare_ends: they are possible; without
 * by_hand only if there are fewer layers than stages. speed: of each stage's holder; NULL: all are
 * equal. ERR_USAGE with the nearest n or the sum that is possible. */
struct model_shape;
int layout_stages(const struct model_shape *m, int n, const char *by_hand, bool bare_ends,
		  const double *speed, struct stage *stages, struct err *e);

#endif
