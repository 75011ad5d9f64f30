/*
 * layout — who is who: degrees, coordinates, groups, stages.
 *
 * Rank order tp-cp-dp-pp: tp varies fastest, so that tensor-parallel groups sit
 * on adjacent devices of a node. Experts have a grid of their own over the same
 * ranks, as in Megatron-LM: ep divides dp, the expert-parallel group of a
 * rank is the ep adjacent dp ranks around it, so the whole order reads tp-cp-ep-dp-pp.
 *
 * A rank holds `chunks` virtual stages. The model's pp × chunks stages are dealt
 * round and round (interleaved: chunk c of pipeline rank r is stage c pp + r), or
 * there and back (vee, two chunks: r and 2 pp - 1 - r).
 */
#ifndef MUSTER_PLAN_SPEC_LAYOUT_H
#define MUSTER_PLAN_SPEC_LAYOUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct layout {
	int tp, cp, dp, pp;
	int ep;     /* divides dp */
	int chunks; /* virtual stages a rank */
	bool vee;
};

struct coords {
	int tp, cp, dp, pp;
};

enum { LAYOUT_CHUNKS_MOST = 64 };

struct job;
/* The job's degrees with so many replicas; chunks and vee by its schedule. */
struct layout layout_of(const struct job *job, int dp);
int layout_world(const struct layout *l);
struct coords layout_coords(const struct layout *l, int rank);
int layout_rank(const struct layout *l, struct coords c);
/* Stages of the model: pp × chunks. */
int layout_n_stages(const struct layout *l);
/* The stage that is chunk `chunk` of pipeline rank `pp`, and back. */
int layout_stage(const struct layout *l, int pp, int chunk);
void layout_holder(const struct layout *l, int stage, int *pp, int *chunk);

/* Cuts [0, n) into `parts` balanced pieces at multiples of `grain` where n allows it;
 * piece i is [*lo, *hi). Pieces differ by one grain at most; the last takes what is not a
 * whole grain. Pieces may be empty only when n / grain < parts. */
void layout_partition(int64_t n, int parts, int i, int64_t grain, int64_t *lo, int64_t *hi);

/* The grain, halved until every one of `parts` pieces of n gets something (1 at least). */
int64_t layout_partition_grain(int64_t n, int parts, int64_t grain);

/* One pipeline stage: layers [layer_lo, layer_hi), with the embedding when first, final norm and
 * head when last. */
struct stage {
	int layer_lo, layer_hi;
	bool first, last;
};

/* What a rank asks of the model: its part of each cut, and its stages. */
struct share {
	int tp, tp_rank, ep, ep_rank;
	/* tp ranks share the sequence too: their norms' gradients are parts */
	bool sp;
	const struct stage *chunks; /* [n_chunks]; borrowed */
	int n_chunks;
};

/* The share of the rank at `at`; stages are the whole model's, chunks is borrowed by it. */
struct share layout_share(const struct layout *l, struct coords at, bool sp,
			  const struct stage *stages, struct stage chunks[LAYOUT_CHUNKS_MOST]);

/* The n stages of the model. by_hand: layers of each, "3,5,4"; "": balanced by cost (model.h,
 * model_cost_*): the head and the embedding count as the layers that they cost, and a stage may
 * have as much to do as its holder is fast. speed: of each stage's holder, NULL: all alike.
 * ERR_USAGE with the nearest n or the sum that would do. */
struct model_shape;
int layout_stages(const struct model_shape *m, int n, const char *by_hand, const double *speed,
		  struct stage *stages, struct err *e);

#endif
