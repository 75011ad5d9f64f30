#include "plan/layout.h"

#include "plan/model.h"

#include <stdlib.h>

int layout_world(const struct layout *l)
{
	return l->tp * l->dp * l->pp;
}

struct coords layout_coords(const struct layout *l, int rank)
{
	return (struct coords){
		.tp = rank % l->tp,
		.dp = rank / l->tp % l->dp,
		.pp = rank / l->tp / l->dp,
	};
}

int layout_rank(const struct layout *l, struct coords c)
{
	return (c.pp * l->dp + c.dp) * l->tp + c.tp;
}

void partition(int64_t n, int parts, int i, int64_t grain, int64_t *lo, int64_t *hi)
{
	int64_t grains = n / grain;
	int64_t each = grains / parts, more = grains % parts;
	/* The first `more` pieces have one grain more. */
	*lo = (each * i + (i < more ? i : more)) * grain;
	*hi = *lo + (each + (i < more)) * grain;
	if (i == parts - 1)
		*hi = n;
}

int64_t partition_grain(int64_t n, int parts, int64_t grain)
{
	while (grain > 1 && n / grain < parts)
		grain /= 2;
	return grain;
}

/* All layers cost the same, so giving each next layer to the stage that has
 * least is optimal. Ties go to the later stage, which keeps fewer micro-batches alive. */
static void share_layers(const struct model_shape *m, int pp, int *count, double *cost)
{
	for (int s = 0; s < pp; s++) {
		count[s] = 1;
		cost[s] = model_cost_layer(m) + (s == 0 ? model_cost_embed(m) : 0) +
			  (s == pp - 1 ? model_cost_head(m) : 0);
	}
	for (int64_t left = m->layers - pp; left > 0; left--) {
		int least = 0;
		for (int s = 1; s < pp; s++)
			if (cost[s] <= cost[least])
				least = s;
		count[least]++;
		cost[least] += model_cost_layer(m);
	}
}

int layout_stages(const struct model_shape *m, int pp, struct stage *stages, struct err *e)
{
	if (pp < 1 || pp > m->layers)
		return err_set(e, ERR_USAGE, "pp = %d: a stage needs a layer, and the model has %lld; use pp of at most that",
			       pp, (long long)m->layers);
	int *count = calloc((size_t)pp, sizeof *count);
	double *cost = calloc((size_t)pp, sizeof *cost);
	int rc = -1;
	if (!count || !cost) {
		err_set(e, ERR_NOMEM, "no memory for %d pipeline stages; close other programs", pp);
		goto out;
	}
	share_layers(m, pp, count, cost);
	for (int s = 0, at = 0; s < pp; at += count[s], s++)
		stages[s] = (struct stage){ at, at + count[s], s == 0, s == pp - 1 };
	rc = 0;
out:
	free(cost);
	free(count);
	return rc;
}
