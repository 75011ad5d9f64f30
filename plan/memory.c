#include "plan/fit.h"
#include "plan/zero.h"

#include <math.h>

/* The engine's (agent/model/activations.c): fp32, pieces of whole 64-byte lines. */
enum { ELEMENT = 4, LINE = 16 };

/* In doubles: the largest sizes that a job may ask for do not fit 63 bits, and must be refused for their bytes. */
static double whole_lines(double elements)
{
	return ceil(elements / LINE) * LINE;
}

/* This shard's widths. */
struct widths {
	double n, c;              /* tokens of a micro-batch, hidden */
	double heads, qkv, q;
	double up, act;           /* ffn's input, with the gate, and output */
	double vocab;
};

static struct widths widths_of(const struct job *job, const struct model_shape *m, int tp, int tp_rank)
{
	int64_t kv_lo, kv_hi, f_lo, f_hi, v_lo, v_hi;
	partition(m->kv_heads, tp, tp_rank, 1, &kv_lo, &kv_hi);
	partition(m->ffn, tp, tp_rank, partition_grain(m->ffn, tp, CATALOGUE_FFN_GRAIN), &f_lo, &f_hi);
	partition(m->vocab, tp, tp_rank, partition_grain(m->vocab, tp, CATALOGUE_VOCAB_GRAIN), &v_lo, &v_hi);
	double kv = (double)(kv_hi - kv_lo), heads = kv * (double)(m->heads / m->kv_heads);
	double f = (double)(f_hi - f_lo);
	return (struct widths){
		.n = (double)job->batch.micro * (double)m->seq,
		.c = (double)m->hidden,
		.heads = heads,
		.qkv = (heads + 2 * kv) * (double)m->head_dim,
		.q = heads * (double)m->head_dim,
		.up = m->gated ? 2 * f : f,
		.act = f,
		.vocab = (double)(v_hi - v_lo),
	};
}

static double norm_kept(const struct model_shape *m, const struct widths *w, bool sum)
{
	return (sum ? whole_lines(w->n * w->c) : 0) + (m->rms ? 1 : 2) * whole_lines(w->n);
}

/* Elements that a rank keeps of one micro-batch's pass through a chunk, from its forward to its backward pass. */
static double slot_elements(const struct model_shape *m, const struct widths *w, const struct stage *stage)
{
	double hidden = whole_lines(w->n * w->c);
	double layer = 2 * norm_kept(m, w, true) + 2 * hidden + whole_lines(w->n * w->qkv) + whole_lines(w->n * w->q) +
		       whole_lines(w->n * w->heads) + whole_lines(w->n * w->up) + whole_lines(w->n * w->act);
	double slot = 3 * hidden + (stage->layer_hi - stage->layer_lo) * layer;
	/* The first norm's input is the stage's own. */
	slot -= hidden;
	if (stage->last)
		slot += norm_kept(m, w, true) + hidden;
	return slot;
}

static double most(double a, double b)
{
	return a > b ? a : b;
}

static double scratch_elements(const struct widths *w, const struct stage *stage)
{
	double sum = whole_lines(w->n * w->c) + whole_lines(w->n * most(w->qkv, w->up)) + whole_lines(w->n * most(w->q, w->act));
	if (stage->last) {
		double rows = (double)model_head_rows((int64_t)w->n, (int64_t)w->vocab);
		sum += whole_lines(rows * w->vocab) + whole_lines(rows) + whole_lines(2 * rows);
	}
	return sum;
}

/* Parameters, gradients, the optimizer's state, the store's buffers: as the ZeRO stage divides them (zero.h). */
static void state_memory(const struct job *job, const struct model_shape *m, const struct layout *l, const struct share *share, bool saves,
			 struct plan_rank *r)
{
	int stage = (int)job->parallel.zero, moments = job->optimizer.kind == OPTIMIZER_ADAMW ? 2 : 1;
	struct zero_cut cuts[ZERO_CLASSES];
	struct zero_memory z;
	zero_cuts(l, r->at, stage, 0, cuts);
	zero_memory(m, share, stage, cuts, job->precision.dtype == DTYPE_FP32 ? ELEMENT : ELEMENT / 2, &z);
	r->params = z.params;
	r->grads = z.grads;
	r->optimizer = job->offload.optimizer ? 0 : z.masters + ELEMENT * moments * z.owned;
	r->buffers = z.gather + z.reduce;
	r->snapshot = saves ? (1 + moments) * ELEMENT * zero_saved(m, share, stage, cuts) : 0;
}

void plan_memory_rank(const struct job *job, const struct model_shape *m, const struct layout *l, int micros,
		      const struct stage *stages, bool saves, struct plan_rank *r)
{
	struct stage chunks[LAYOUT_CHUNKS_MOST];
	struct share share = layout_share(l, r->at, job->parallel.sp, stages, chunks);
	struct widths w = widths_of(job, m, l->tp, r->at.tp);
	struct stage all = { .last = false };
	double slots = 0;
	struct sched_slots live;
	schedule_slots(job->parallel.schedule, l, micros, r->at.pp, &live);
	double tokens = 2 * (double)micros * w.n;
	for (int c = 0; c < l->chunks; c++) {
		slots += live.live[c] * slot_elements(m, &w, &chunks[c]);
		all.last |= chunks[c].last;
	}
	state_memory(job, m, l, &share, saves, r);
	r->activations = ELEMENT * slots;
	r->buffers += ELEMENT * (scratch_elements(&w, &all) + tokens);
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
