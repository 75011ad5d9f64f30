/*
 * layout — who is who: degrees, coordinates, groups, stages.
 *
 * Rank order tp-dp-pp (tp-cp-ep-dp-pp once cp and ep exist): tp varies
 * fastest, so that tensor-parallel groups sit on adjacent devices of a node.
 */
#ifndef MUSTER_PLAN_LAYOUT_H
#define MUSTER_PLAN_LAYOUT_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

struct layout {
	int tp, dp, pp;
};

struct coords {
	int tp, dp, pp;
};

int layout_world(const struct layout *l);
struct coords layout_coords(const struct layout *l, int rank);
int layout_rank(const struct layout *l, struct coords c);

/* Cuts [0, n) into `parts` balanced pieces at multiples of `grain` where n allows it;
 * piece i is [*lo, *hi). Pieces differ by one grain at most; the last takes what is not a
 * whole grain. Pieces may be empty only when n / grain < parts. */
void partition(int64_t n, int parts, int i, int64_t grain, int64_t *lo, int64_t *hi);

/* The grain, halved until every one of `parts` pieces of n gets something (1 at least). */
int64_t partition_grain(int64_t n, int parts, int64_t grain);

/* One pipeline stage: layers [layer_lo, layer_hi), with the embedding when first, final norm and head when last. */
struct stage {
	int layer_lo, layer_hi;
	bool first, last;
};

/* Balanced by cost (model.h, model_cost_*): the head and the embedding count as the layers that they cost.
 * stages: pp of them. ERR_USAGE when there are fewer layers than stages. */
struct model_shape;
int layout_stages(const struct model_shape *m, int pp, struct stage *stages, struct err *e);

#endif
