#include "plan/memory_programs.h"

#include <math.h>

/* The properties of a program on which its memory depends. Bytes are per element. */
struct program {
	/* FSDP: the parameters and their gradients are fp32 shards; 2-byte copies of the parameters
	 * are gathered from them. Otherwise the parameters are 2-byte numbers with fp32 masters */
	bool shards;
	double grad;   /* a gradient that stays until the update */
	bool piles_up; /* in a pipeline, whole gradients until the last micro-batch */
	double layers; /* ZeRO 3: as many layers have gathered parameters at once */
	/* ZeRO 2 and 3: a whole gradient on its way to the shards, of half as many layers */
	double grad_moved;
	bool stores;      /* scores are in memory */
	bool masks;       /* masks of dropout are in memory whatever the rate is */
	bool norms_again; /* the compiler computes norms again in the backward pass */
	bool eight;       /* inputs of linears in 8 bits are kept as such */
	/* the router's weights multiply the activations of experts, so their results are not
	 * kept */
	bool weighs_first;
	/* tensors of the stream in a pipeline that live as long as a micro-batch: a chunk's result,
	 * and the buffers for its input and its gradient */
	double messages;
	bool gathers_kept; /* sequence parallelism: gathered inputs of linears are kept in a layer */
	/* a logit at the loss; with the vocabulary split over tensor-parallel ranks */
	double logit, logit_tp;
	double fused;   /* the same with plan.loss = fused */
	double reserve; /* plan_memory_program_reserve() */
};

/* Megatron-LM of 2021 and 2022, fp16: 2-byte parameters and gradients; the fp32 copies of gradients
 * live in the update, when no activations do. megatron/core/tensor_parallel/cross_entropy.py: fp16
 * logits (2), their fp32 copy (4), exponentials and probabilities (4), the gradient (2). Peaks are
 * of allocated memory. */
#define MEGATRON \
	{ \
		.grad = 2, .layers = 2, .grad_moved = 2, .stores = true, .masks = true, \
		.logit = 12, .logit_tp = 12, .fused = 4 \
	}

/* PyTorch's FSDP. Logits at the loss, F.cross_entropy of fp32 logits: the 2-byte logits (2), the
 * logarithms of probabilities (4), their gradient (4), that of the logits (4). With DTensor's
 * loss_parallel (torch/distributed/tensor/parallel/loss.py, _nll_loss_and_log_softmax_backward) the
 * operations are not fused: the 2-byte logits (2), the logarithms (4), one-hot gradient (4),
 * exponentials (4), their sum (4) and the product (4). torch's pipelines reduce gradients after the
 * last micro-batch: whole fp32 sums until then. Peaks are of the allocator's reserved memory. */
#define FSDP \
	.shards = true, .grad = 4, .piles_up = true, .layers = 2, .grad_moved = 6, .messages = 3, \
	.gathers_kept = true, .logit = 14, .logit_tp = 22, .fused = 4

/* Megatron-Core: fp32 masters and moments, and 2-byte gradients. NVIDIA's benchmarks sum
 * gradients in bf16 (grad_sync_dtype of NeMo, grad_reduce_in_fp32 of Megatron-Bridge). Logits
 * as above, but the probabilities become the gradient in place. */
#define MEGATRON_CORE \
	.grad = 2, .layers = 2, .grad_moved = 2, .eight = true, .logit = 10, .logit_tp = 10, \
	.fused = 4, .reserve = 0.03

static const struct program programs[JOB_ENGINES] = {
	/* "Memory efficient token permutation": megatron/core/transformer/moe/README.md, release
	 * 0.13 */
	[ENGINE_MEGATRON_CORE] = { MEGATRON_CORE, .weighs_first = true },
	[ENGINE_MEGATRON_CORE_GRAPHS] = { MEGATRON_CORE, .weighs_first = true },
	[ENGINE_MEGATRON_CORE_2026] = { MEGATRON_CORE, .weighs_first = true },
	[ENGINE_MEGATRON_CORE_2024] = { MEGATRON_CORE },
	[ENGINE_MEGATRON_2021] = MEGATRON,
	[ENGINE_MEGATRON_2022] = MEGATRON,
	[ENGINE_FSDP_EAGER] = { FSDP, .eight = true, .reserve = 0.03 },
	[ENGINE_FSDP_COMPILED] = { FSDP, .norms_again = true, .reserve = 0.03 },
	[ENGINE_FSDP_ASYNC_TP] = { FSDP, .norms_again = true, .reserve = 0.03 },
	/* ZeRO-3 of 2021, fp16. It gathers one matrix after the other, a third of a layer, and the
	 * next one ahead. */
	[ENGINE_DEEPSPEED] = { .grad = 2,
			       .layers = 2.0 / 3,
			       .grad_moved = 4,
			       .stores = true,
			       .masks = true,
			       .logit = 12,
			       .logit_tp = 12,
			       .fused = 4 },
};

enum { ELEMENT = 4, HALF = 2 };

static const struct program *program_of(const struct job *job)
{
	return &programs[job->plan.engine];
}

bool plan_memory_foreign(const struct job *job)
{
	return job->plan.engine != ENGINE_MUSTER;
}

double plan_memory_program_reserve(const struct job *job)
{
	return plan_memory_foreign(job) ? program_of(job)->reserve : 0;
}

/* --- Activations --- */

/* A tensor of the feed-forward part: rows × columns. A mixture's rows are those of an equal
 * load. */
static double ffn_bytes(const struct act_dims *d, int64_t columns, double width)
{
	return width * (double)(d->n * (d->moe ? d->top : 1) * columns);
}

/* What a mixture keeps besides: the experts' inputs, which the ranks of a tp group hold whole,
 * their results, which they share, and the router's probabilities. */
static double mixture_bytes(const struct program *p, const struct act_dims *d,
			    const struct layout *l, double input)
{
	double rows = (double)(d->n * d->top * d->c),
	       result = p->weighs_first ? 0 : (double)d->width / (d->sp ? l->tp : 1);
	return rows * (input + result) + ELEMENT * (double)(d->s * d->experts);
}

/* The inputs of the linears; eight: as 1-byte copies, where others need them too. */
static double inputs_bytes(const struct program *p, const struct act_dims *d)
{
	bool eight = p->eight && d->fp8;
	double width = eight ? 1 : (double)d->width;
	double rows = (double)(d->s * d->c) * width;
	return (p->norms_again ? 0 : 2 * rows) + ffn_bytes(d, d->act, width) +
	       (eight ? (double)(d->n * d->q) : 0);
}

static double kept_bytes(enum job_recompute mode, const struct program *p, const struct act_dims *d,
			 const struct model_shape *m, const struct layout *l)
{
	double stream = (double)(d->s * d->c), width = (double)d->width;
	double masks = p->masks || d->dropout ? 2 * stream : 0;
	double scores = p->stores && mode == RECOMPUTE_NONE
				? 5 * (double)(d->heads * d->n) * (double)m->seq
				: 0;
	double mixture = d->moe ? mixture_bytes(p, d, l, p->eight && d->fp8 ? 1 : width) : 0;
	return 2 * stream * width + inputs_bytes(p, d) + masks + scores + mixture +
	       width * (double)(d->n * (d->qkv + d->q)) + ffn_bytes(d, d->up, width);
}

/* Between the halves of a backward pass: the inputs of linears and the gradients of their
 * outputs. */
static double half_bytes(const struct act_dims *d)
{
	double width = (double)d->width;
	return width * (4 * (double)(d->s * d->c) + (double)(d->n * (d->q + d->qkv))) +
	       ffn_bytes(d, d->act + d->up, width);
}

/* A layer that is computed again: all that it keeps, and the gradient of its widest tensor. */
static double again_bytes(const struct program *p, const struct act_dims *d,
			  const struct model_shape *m, const struct layout *l)
{
	struct program whole = *p;
	double gathered = d->sp && p->gathers_kept ? 2 * (double)(d->n * d->c * d->width) : 0;
	whole.norms_again = false;
	return kept_bytes(RECOMPUTE_NONE, &whole, d, m, l) + gathered +
	       ffn_bytes(d, d->up, (double)d->width);
}

static double logit_bytes(const struct job *job, const struct program *p, const struct layout *l)
{
	if (job->plan.loss == LOSS_FUSED)
		return p->fused;
	return l->tp > 1 ? p->logit_tp : p->logit;
}

void plan_memory_program_sizes(const struct job *job, const struct model_shape *m,
			       const struct layout *l, const struct act_dims *d,
			       struct memory_sizes *out)
{
	const struct program *p = program_of(job);
	double width = (double)d->width, stream = width * (double)(d->s * d->c);
	struct memory_sizes s = { .on_demand = true, .offload = d->offload };
	s.every = d->mode == RECOMPUTE_FULL ? (int)d->every : 0;
	s.layer[0] = kept_bytes(d->mode == RECOMPUTE_SELECTIVE ? d->mode : RECOMPUTE_NONE, p, d, m,
				l);
	s.layer[1] = stream;
	for (int again = 0; again < 2 && d->split && !d->offload; again++)
		s.freed[again] = s.layer[again] - half_bytes(d);
	s.slot = s.slot_alone = p->messages * stream;
	s.work[1] = again_bytes(p, d, m, l);
	s.scratch_last = logit_bytes(job, p, l) * (double)(d->n * d->vocab) +
			 (d->sp ? width * (double)(d->n * d->c) : 0);
	*out = s;
}

/* --- State --- */

/* Adds the parameters, gradients and masters of units of a kind, and the copies that are whole. */
static void add_unit(const struct program *p, const struct layout *l, int stage,
		     const struct zero_cut *cut, int kind, double whole, int count,
		     struct plan_rank *r)
{
	const struct zero_policy *policy = zero_policy(stage, cut);
	bool layer = kind == UNIT_LAYER || kind == UNIT_EXPERTS;
	int64_t lo, hi;
	zero_owned((int64_t)whole, stage, cut, &lo, &hi);
	double own = (double)(hi - lo);
	bool piles = p->piles_up && l->pp > 1;
	r->params += count * HALF * (!policy->params ? whole : p->shards ? 0 : own);
	r->grads += count * (piles ? ELEMENT * whole : p->grad * (policy->grads ? own : whole));
	r->optimizer += count * ELEMENT * own;
	if (policy->params)
		r->buffers += HALF * whole * (layer ? fmin(count, p->layers) : count);
	if (policy->grads && layer && count)
		r->buffers += p->grad_moved * whole * p->layers / 2;
}

void plan_memory_program_state(const struct job *job, const struct model_shape *m,
			       const struct layout *l, const struct share *share,
			       const int64_t elements[UNIT_KINDS], const int counts[UNIT_KINDS],
			       const struct zero_cut cuts[ZERO_CLASSES], struct plan_rank *r)
{
	struct optimizer_memory optimizer;
	int stage = (int)job->parallel.zero;
	r->params = r->grads = r->optimizer = r->buffers = 0;
	for (int kind = 0; kind < UNIT_KINDS; kind++)
		add_unit(program_of(job), l, stage, &cuts[zero_class(kind)], kind,
			 (double)elements[kind], counts[kind], r);
	optimizer_memory_of(job->optimizer.kind, m, share, counts, stage, cuts, &optimizer);
	r->optimizer += optimizer.state;
}
