#include "plan/model/activations.h"
#include "plan/fit.h"
#include "plan/speeds.h"
#include "plan/model/zero.h"

#include <math.h>

/* An fp32 number; a token; the scratch that 2-byte storage takes on a processor, a thread (kernels/ops.h, KERN_NARROW_LANE). */
enum { ELEMENT = 4, TOKEN = 4, NARROW_LANE = 16 << 20 };

/* --- Activations ---------------------------------------------------------------- */

/* Beyond so many bytes of one tensor the arithmetic of activations.h does not fit its integers. */
#define TENSOR_MOST 1e17

/* The largest sizes that a job may ask for must be refused for their bytes, too: a floor of what they take. */
static double immense(const struct job *job, const struct model_shape *m, const struct layout *l)
{
	double tokens = (double)job->batch.micro * (double)m->seq / l->cp;
	double wide = fmax(fmax((double)m->hidden, (double)(m->heads * m->head_dim)), 2.0 * (double)m->ffn);
	double bytes = 8 * tokens * fmax(wide, (double)m->experts);
	return bytes > TENSOR_MOST ? bytes / l->tp : 0;
}

/* Layers of [lo, hi) that do their mixtures again: every n-th of the model, as the first is one. */
static int doing_again(const struct act_dims *d, int lo, int hi)
{
	int every = (int)d->every;
	return act_experts_again(d, 0) ? (hi + every - 1) / every - (lo + every - 1) / every : 0;
}

static void pass_memory(const struct job *job, const struct model_shape *m, const struct layout *l, int micros, const struct share *share,
			struct plan_rank *r)
{
	struct act_dims d;
	struct sched_slots live;
	int again = 0;
	if ((r->activations = immense(job, m, l)) > 0)
		return;
	act_dims_of(job, m, l, r->at.tp, schedule_splits(job->parallel.schedule), &d);
	schedule_slots(job->parallel.schedule, l, micros, r->at.pp, &live);
	for (int c = 0; c < share->n_chunks; c++) {
		const struct stage *stage = &share->chunks[c];
		int layers = stage->layer_hi - stage->layer_lo, again_here = doing_again(&d, stage->layer_lo, stage->layer_hi);
		double experts = d.moe ? (double)act_experts_kept(&d) * (layers - again_here) : 0;
		r->activations += live.live[c] * ((double)act_slot_total(&d, stage) + experts);
		again += again_here;
	}
	r->buffers += (double)act_shared_total(&d, share->chunks, share->n_chunks, m->rope);
	if (d.moe) /* those layers share one home */
		r->buffers += (double)act_experts_scratch(&d) + (again ? (double)act_experts_kept(&d) : 0);
}

/* --- All ------------------------------------------------------------------------- */

/* The step's tokens and those read ahead. */
static double token_bytes(const struct job *job, int micros)
{
	double planes = job->data.documents == DOCUMENTS_MASK ? 3 : 2;
	double steps = fmin((double)job->data.prefetch + 1, (double)job->job.steps);
	return TOKEN * steps * planes * (double)micros * (double)job->batch.micro * (double)job->model.seq;
}

/* What the backend itself takes. */
static double kern_bytes(const struct job *job, const struct layout *l, const struct plan_rank *r)
{
	int threads = r->threads ? r->threads : speeds_threads(job, layout_rank(l, r->at));
	if (job->precision.dtype == DTYPE_FP32 || job->job.device != DEVICE_CPU)
		return 0;
	return (double)NARROW_LANE * (threads ? threads : 1);
}

/* Parameters, gradients, the optimizer's state, the store's buffers: as the ZeRO stage divides them (zero.h). */
static void state_memory(const struct job *job, const struct model_shape *m, const struct layout *l, const struct share *share, bool saves,
			 struct plan_rank *r)
{
	int stage = (int)job->parallel.zero, moments = job->optimizer.kind == OPTIMIZER_ADAMW ? 2 : 1;
	struct zero_cut cuts[ZERO_CLASSES];
	struct zero_memory z;
	zero_cuts(l, r->at, stage, job->parallel.zero_shard == ZERO_SHARD_NODE ? r->mates : 0, cuts);
	zero_memory(m, share, stage, cuts, job->precision.dtype == DTYPE_FP32 ? ELEMENT : ELEMENT / 2, &z);
	r->params = z.params;
	r->grads = z.grads;
	r->optimizer = job->offload.optimizer ? 0 : z.masters + ELEMENT * moments * z.owned;
	r->buffers = z.gather + z.reduce;
	r->snapshot = saves ? (1 + moments) * ELEMENT * zero_saved(m, share, stage, cuts) : 0;
}

/* Elements of one server's shard, which is what ZeRO 3 would leave a replica. */
static double shard_elements(const struct model_shape *m, const struct layout *l, const struct share *share, int dp,
			     struct zero_cut cuts[ZERO_CLASSES])
{
	struct zero_memory z;
	zero_cuts(l, (struct coords){ .dp = dp }, 3, 0, cuts);
	zero_memory(m, share, 3, cuts, ELEMENT, &z);
	return z.owned;
}

/* With a parameter server (agent/server): all that has gone before, whole, for the worker; for the server its shard's parameters, gradient
 * and state, and a buffer for each worker; and between the two the largest shard (the first has a grain more of each unit,
 * the last what is no whole grain). */
static void server_memory(const struct job *job, const struct model_shape *m, const struct layout *l, const struct share *share, bool saves,
			  struct plan_rank *r)
{
	int moments = job->optimizer.kind == OPTIMIZER_ADAMW ? 2 : 1;
	struct zero_cut cuts[ZERO_CLASSES];
	double most = fmax(shard_elements(m, l, share, 0, cuts), shard_elements(m, l, share, l->dp - 1, cuts));
	double own = shard_elements(m, l, share, r->at.dp, cuts);
	r->params += ELEMENT * own;
	r->grads += ELEMENT * own;
	r->optimizer = ELEMENT * moments * own;
	r->buffers += ELEMENT * (l->dp * own + most);
	r->snapshot = saves ? (1 + moments) * ELEMENT * zero_saved(m, share, 3, cuts) : 0;
}

void plan_memory_rank(const struct job *job, const struct model_shape *m, const struct layout *l, int micros,
		      const struct stage *stages, bool saves, struct plan_rank *r)
{
	struct stage chunks[LAYOUT_CHUNKS_MOST];
	struct share share = layout_share(l, r->at, job->parallel.sp, stages, chunks);
	state_memory(job, m, l, &share, saves, r);
	if (job->parallel.sync == SYNC_SERVER)
		server_memory(job, m, l, &share, saves, r);
	pass_memory(job, m, l, micros, &share, r);
	r->buffers += token_bytes(job, micros) + kern_bytes(job, l, r);
	r->total = r->params + r->grads + r->optimizer + r->activations + r->buffers + r->snapshot;
}

const struct plan_rank *plan_largest(const struct plan *p, int pp)
{
	int n = p->world / p->layout.pp; /* ranks of one pipeline coordinate are adjacent */
	const struct plan_rank *best = &p->ranks[pp * n];
	for (int i = 1; i < n; i++)
		if (p->ranks[pp * n + i].total > best->total)
			best = &p->ranks[pp * n + i];
	return best;
}

void plan_memory(const struct job *job, const struct cluster *cluster, struct plan *p)
{
	for (int i = 0; i < p->world; i++) {
		struct plan_rank *r = &p->ranks[i];
		bool saves = fit_on_cpu(&cluster->kinds[cluster->nodes[r->node].kind]);
		plan_memory_rank(job, &p->shape, &p->layout, p->shares[r->at.dp].micros, p->stages, saves, r);
	}
}
