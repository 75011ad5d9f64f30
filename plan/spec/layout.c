#include "plan/spec/layout.h"

#include "plan/spec/model/model.h"
#include "plan/spec/schedule/schedule.h"

#include <stdlib.h>

struct layout layout_of(const struct job *job, int dp)
{
	const struct schedule_kind *kind = schedule_kinds[job->parallel.schedule];
	return (struct layout){
		.tp = (int)job->parallel.tp,
		.cp = (int)job->parallel.cp,
		.dp = dp,
		.pp = (int)job->parallel.pp,
		.ep = (int)job->parallel.ep,
		.chunks = job->parallel.chunks ? (int)job->parallel.chunks : kind->chunks_least,
		.vee = kind->vee,
	};
}

int layout_world(const struct layout *l)
{
	return l->tp * l->cp * l->dp * l->pp;
}

struct coords layout_coords(const struct layout *l, int rank)
{
	return (struct coords){
		.tp = rank % l->tp,
		.cp = rank / l->tp % l->cp,
		.dp = rank / l->tp / l->cp % l->dp,
		.pp = rank / l->tp / l->cp / l->dp,
	};
}

int layout_rank(const struct layout *l, struct coords c)
{
	return ((c.pp * l->dp + c.dp) * l->cp + c.cp) * l->tp + c.tp;
}

int layout_n_stages(const struct layout *l)
{
	return l->pp * l->chunks;
}

int layout_stage(const struct layout *l, int pp, int chunk)
{
	return l->vee && chunk == 1 ? 2 * l->pp - 1 - pp : chunk * l->pp + pp;
}

void layout_holder(const struct layout *l, int stage, int *pp, int *chunk)
{
	*chunk = stage / l->pp;
	*pp = l->vee && *chunk == 1 ? 2 * l->pp - 1 - stage : stage % l->pp;
}

struct share layout_share(const struct layout *l, struct coords at, bool sp,
			  const struct stage *stages, struct stage chunks[LAYOUT_CHUNKS_MAX])
{
	for (int c = 0; c < l->chunks; c++)
		chunks[c] = stages[layout_stage(l, at.pp, c)];
	return (struct share){
		.tp = l->tp,
		.tp_rank = at.tp,
		.ep = l->ep,
		.ep_rank = at.dp % l->ep,
		.sp = sp,
		.chunks = chunks,
		.n_chunks = l->chunks,
	};
}

void layout_partition(int64_t n, int parts, int i, int64_t grain, int64_t *lo, int64_t *hi)
{
	int64_t grains = n / grain;
	int64_t each = grains / parts, more = grains % parts;
	/* The first `more` pieces have one grain more. */
	*lo = (each * i + (i < more ? i : more)) * grain;
	*hi = *lo + (each + (i < more)) * grain;
	if (i == parts - 1)
		*hi = n;
}

int64_t layout_partition_grain(int64_t n, int parts, int64_t grain)
{
	while (grain > 1 && n / grain < parts)
		grain /= 2;
	return grain;
}

static double speed_of(const double *speed, int stage)
{
	return speed ? speed[stage] : 1;
}

bool layout_bare_ends(const struct job *job)
{
	return job->plan.engine != ENGINE_MUSTER;
}

int64_t layout_stages_most(int64_t layers, bool bare_ends)
{
	return layers + (bare_ends ? 2 : 0);
}

static bool is_end(int s, int n)
{
	return s == 0 || s == n - 1;
}

/* All layers cost the same, so giving each next layer to the stage that would end first is
 * optimal. Ties go to the later stage, which keeps fewer micro-batches alive. */
static void share_layers(const struct model_shape *m, int n, const double *speed, int *count,
			 double *cost)
{
	int64_t left = m->layers;
	for (int s = 0; s < n; s++) {
		count[s] = n > m->layers && is_end(s, n) ? 0 : 1;
		cost[s] = count[s] * shape_cost_layer(m) + (s == 0 ? shape_cost_embed(m) : 0) +
			  (s == n - 1 ? shape_cost_head(m) : 0);
		left -= count[s];
	}
	for (; left > 0; left--) {
		int least = 0;
		for (int s = 1; s < n; s++)
			if ((cost[s] + shape_cost_layer(m)) / speed_of(speed, s) <=
			    (cost[least] + shape_cost_layer(m)) / speed_of(speed, least))
				least = s;
		count[least]++;
		cost[least] += shape_cost_layer(m);
	}
}

/* Reads "3,5,4": n numbers whose sum is the number of the model's layers. */
static int read_layers(const struct model_shape *m, int n, const char *text, bool bare_ends,
		       int *count, struct err *e)
{
	const char *at = text;
	int64_t sum = 0;
	int found = 0;
	for (;; at++) {
		char *end;
		long layers = strtol(at, &end, 10);
		long least = bare_ends && (found == 0 || !*end) ? 0 : 1;
		if (end == at || layers < least || layers > m->layers || (*end && *end != ','))
			return err_set(
				e, ERR_USAGE,
				"stages = %s: \"%s\" is not a list of layers; write %d whole "
				"numbers from 1 on%s with commas between, "
				"whose sum is layers = %lld",
				text, at, n, bare_ends ? ", or 0 at an end," : "",
				(long long)m->layers);
		if (found < n)
			count[found] = (int)layers;
		found++;
		sum += layers;
		at = end;
		if (!*at)
			break;
	}
	if (found != n || sum != m->layers)
		return err_set(e, ERR_USAGE,
			       "stages = %s: %d stages with %lld layers, and there are %d (pp × "
			       "chunks) and layers = %lld; "
			       "make them agree",
			       text, found, (long long)sum, n, (long long)m->layers);
	return 0;
}

int layout_stages(const struct model_shape *m, int n, const char *by_hand, bool bare_ends,
		  const double *speed, struct stage *stages, struct err *e)
{
	int64_t most = layout_stages_most(m->layers, bare_ends);
	if (n < 1 || n > most)
		return err_set(e, ERR_USAGE,
			       "%d stages (pp × chunks): each%s needs a layer, and the model has "
			       "%lld; use at most %lld",
			       n, bare_ends ? " but the first and the last" : "",
			       (long long)m->layers, (long long)most);
	int *count = calloc((size_t)n, sizeof *count);
	double *cost = calloc((size_t)n, sizeof *cost);
	int rc = -1;
	if (!count || !cost) {
		err_set(e, ERR_NOMEM, "no memory for %d pipeline stages; close other programs", n);
		goto out;
	}
	if (by_hand && *by_hand) {
		if (read_layers(m, n, by_hand, bare_ends, count, e))
			goto out;
	} else {
		share_layers(m, n, speed, count, cost);
	}
	for (int s = 0, at = 0; s < n; at += count[s], s++)
		stages[s] = (struct stage){ at, at + count[s], s == 0, s == n - 1 };
	rc = 0;
out:
	free(cost);
	free(count);
	return rc;
}
