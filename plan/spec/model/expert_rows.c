/* How many rows of tokens a rank exchanges with the ranks that have a layer's experts. */
#include "plan/spec/model/activations.h"

#include "base/numbers.h"

#include <math.h>

static int64_t capacity_of(const struct job *job, const struct model_shape *m)
{
	double factor = job->model.capacity;
	return factor > 0 ? (int64_t)ceil(factor * (double)(m->seq * m->top) / (double)m->experts)
			  : INT64_MAX;
}

/* Whether blocks of so many rows are worth their padding. */
static bool keeps_counts(const struct job *job, const struct layout *l,
			 const struct act_expert_rows *r, int64_t block, int64_t experts)
{
	return job->job.device == DEVICE_CUDA && job->plan.engine == ENGINE_MUSTER && l->ep > 1 &&
	       l->cp == 1 && job->precision.dtype != DTYPE_FP32 &&
	       experts * block <= ACT_PADDING * r->sent && l->ep * block < ACT_GROUP_LARGE;
}

struct act_expert_rows activations_expert_rows(const struct job *job, const struct model_shape *m,
					       const struct layout *l)
{
	struct act_expert_rows r = { .capacity = INT64_MAX };
	if (!m->experts)
		return r;
	r.capacity = capacity_of(job, m);
	r.ranks = l->ep;
	r.mine = (m->experts + l->ep - 1) / l->ep;
	r.sent = r.received = job->batch.micro * (m->seq / l->cp) * m->top;
	if (r.capacity == INT64_MAX)
		return r;
	int64_t block = job->batch.micro * min_int64(r.capacity, m->seq);
	if (keeps_counts(job, l, &r, block, m->experts)) {
		r.block = block;
		r.sent = m->experts * block;
		r.received = r.ranks * r.mine * block;
	}
	return r;
}
