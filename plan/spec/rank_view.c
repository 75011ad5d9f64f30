#include "plan/spec/rank_view.h"

#include "plan/spec/speeds.h"

#include <stdlib.h>

static int share_batch(struct rank_view *v, struct err *e)
{
	struct batch_share *shares = calloc((size_t)v->layout.dp, sizeof *shares);
	if (!shares)
		return err_set(e, ERR_NOMEM,
			       "no memory to share a batch over %d replicas; close other programs",
			       v->layout.dp);
	int rc = batch_split(v->job, &v->shape, &v->layout, v->stages, shares, e);
	v->batch = shares[v->at.dp];
	free(shares);
	return rc;
}

static void share_model(struct rank_view *v)
{
	/* One tp rank has the whole sequence. */
	bool sp = v->job->parallel.sp && v->layout.tp > 1;
	v->share = layout_share(&v->layout, v->at, sp, v->stages,
				v->stages + layout_n_stages(&v->layout));
}

int rank_view_init(const struct job *job, const struct layout *l, int rank, struct rank_view *out,
		   struct err *e)
{
	struct rank_view v = { .job = job, .layout = *l, .at = layout_coords(l, rank) };
	int n = layout_n_stages(l);
	shape_of_job(job, &v.shape);
	v.stages = calloc((size_t)(n + LAYOUT_CHUNKS_MAX), sizeof *v.stages);
	if (!v.stages)
		return err_set(e, ERR_NOMEM, "no memory for %d stages; close other programs", n);
	if (speeds_stages(job, &v.shape, l, v.stages, e) || share_batch(&v, e)) {
		rank_view_fini(&v);
		return -1;
	}
	share_model(&v);
	v.sequences = v.batch.micros * job->batch.micro;
	v.fraction = (double)v.sequences / (double)job->batch.global;
	v.micro_tokens = job->batch.micro * v.shape.seq;
	v.global_tokens = job->batch.global * v.shape.seq;
	*out = v;
	return 0;
}

void rank_view_fini(struct rank_view *v)
{
	free(v->stages);
	*v = (struct rank_view){ 0 };
}
