#include "plan/memory.h"

#include "base/attention_room.h"
#include "plan/memory_programs.h"
#include "plan/spec/speeds.h"

#include <math.h>

/* Bytes: an fp32 number; a token; the scratch memory of a CPU thread for 2-byte storage
 * (kernels/ops.h, BACKEND_LOW_PRECISION_LANE); what the operations on a GPU need whatever the
 * shapes are (kernels/cuda: scratch memory and the workspace of products). */
enum { ELEMENT = 4, TOKEN = 4, LOW_PRECISION_LANE = 16 << 20, CUDA_FIXED = (64 + 32) << 20 };

/* --- Activations --- */

/* If one tensor has more bytes than this, the arithmetic of activations.h overflows its
 * integers. */
#define TENSOR_MAX 1e17

/* Returns 0, or a lower bound of the bytes if they are too many for activations.h. So a job with
 * the largest sizes is still refused for its bytes. */
static double immense(const struct job *job, const struct model_shape *m, const struct layout *l)
{
	double tokens = (double)job->batch.micro * (double)m->seq / l->cp;
	double wide = fmax(fmax((double)m->hidden, (double)(m->heads * m->head_dim)),
			   2.0 * (double)m->ffn);
	double bytes = 8 * tokens * fmax(wide, (double)m->experts);
	return bytes > TENSOR_MAX ? bytes / l->tp : 0;
}

static double attention_bytes_of(const struct job *job, const struct model_shape *m, int heads,
				 int kv_heads, bool any_order)
{
	const int dim = (int)m->head_dim;
	struct attention_piece p = attention_piece_of(job->batch.micro, heads, kv_heads, m->seq,
						      m->seq, dim, any_order);
	return p.batch > 0 ? (double)attention_room(&p, m->seq, m->seq, dim, any_order) : 0;
}

/* On a GPU, what cuDNN's backward pass of attention needs where it can be used
 * (kernels/cuda/attention_choose.h): it is allocated to measure it, whatever is chosen. Both of its
 * forms, if they are measured, share one workspace. */
static double attention_bytes(const struct job *job, const struct model_shape *m,
			      const struct layout *l)
{
	int heads = (int)(m->heads / l->tp),
	    kv_heads = (int)(m->kv_heads > l->tp ? m->kv_heads / l->tp : 1);
	if (job->job.device != DEVICE_CUDA || !shape_attention_by_cudnn(job, m, l->cp))
		return 0;
	double ordered = attention_bytes_of(job, m, heads, kv_heads, false);
	return job->job.deterministic == DETERMINISTIC_ANY_ORDER
		       ? fmax(ordered, attention_bytes_of(job, m, heads, kv_heads, true))
		       : ordered;
}

/* The tensors of a layer that share one copy with other layers'. */
static double work_of(const struct act_dims *d, int layer)
{
	double sum = 0;
	for (int a = 0; a < ACTS; a++)
		sum += activations_home(d, layer, false, (enum act)a) == ACT_SHARED
			       ? (double)activations_bytes(d, (enum act)a)
			       : 0;
	return sum;
}

void plan_memory_sizes_of(const struct job *job, const struct model_shape *m,
			  const struct layout *l, int tp_rank, bool split, struct memory_sizes *out)
{
	struct memory_sizes s = { .immense = immense(job, m, l) };
	struct act_dims d;
	if (s.immense > 0) {
		*out = s;
		return;
	}
	struct stage inner = { .last = false }, last = { .last = true };
	activations_dims_of(job, m, l, tp_rank, split, &d);
	if (plan_memory_foreign(job)) {
		plan_memory_program_sizes(job, m, l, &d, out);
		return;
	}
	s.offload = d.offload;
	s.every = d.mode == RECOMPUTE_NONE ? 0 : (int)d.every;
	for (int again = 0; again < 2; again++) {
		/* A layer of that kind: layer 0 recomputes. Layer 1 does not, if not all layers
		 * do. */
		int layer = again ? 0 : d.every > 1 ? 1 : -1;
		if (layer < 0 && s.every)
			continue;
		layer = layer < 0 ? 0 : layer;
		s.layer[again] = (double)activations_layer_bytes(&d, layer, false);
		s.first[again] = s.layer[again] - (double)activations_layer_bytes(&d, layer, true);
	}
	for (int again = 0; again < 2; again++)
		s.work[again] = work_of(&d, again ? 0 : 1);
	s.copies = (double)activations_fp8_weights(&d);
	for (int a = 0; a < SLOTS; a++) {
		s.slot += (double)activations_slot_bytes(&d, &inner, (enum act_slot)a);
		s.slot_last += (double)(activations_slot_bytes(&d, &last, (enum act_slot)a) -
					activations_slot_bytes(&d, &inner, (enum act_slot)a));
	}
	for (int a = 0; a < SCRATCHES; a++) {
		s.scratch += (double)activations_scratch_bytes(&d, false, (enum act_scratch)a);
		s.scratch_last +=
			(double)(activations_scratch_bytes(&d, true, (enum act_scratch)a) -
				 activations_scratch_bytes(&d, false, (enum act_scratch)a));
	}
	s.scratch += (double)activations_fp8_table(&d);
	s.scratch += m->rope ? (double)activations_rope_bytes(&d) : 0;
	s.scratch += attention_bytes(job, m, l);
	if (d.moe) {
		s.kept = (double)activations_experts_kept(&d);
		s.kept_scratch = (double)activations_experts_scratch(&d);
		s.kept_again = activations_experts_recompute(&d, 0);
	}
	*out = s;
}

/* The number of layers in [lo, hi) that recompute. */
static int memory_again(const struct memory_sizes *s, int lo, int hi)
{
	return s->every ? (hi + s->every - 1) / s->every - (lo + s->every - 1) / s->every : 0;
}

static double layers_of(const struct memory_sizes *s, const struct stage *stage)
{
	int again = memory_again(s, stage->layer_lo, stage->layer_hi),
	    inner = stage->layer_hi - stage->layer_lo - again;
	bool first = s->every && stage->layer_lo % s->every == 0;
	return again * s->layer[1] + inner * s->layer[0] -
	       (stage->layer_hi > stage->layer_lo ? s->first[first] : 0);
}

double plan_memory_slot(const struct memory_sizes *s, const struct stage *stage)
{
	int again = s->kept_again ? memory_again(s, stage->layer_lo, stage->layer_hi) : 0;
	return (s->offload ? 0 : layers_of(s, stage)) + s->slot + (stage->last ? s->slot_last : 0) -
	       (stage->first && stage->last ? s->slot_alone : 0) +
	       s->kept * (stage->layer_hi - stage->layer_lo - again);
}

double plan_memory_slots(const struct memory_sizes *s, const struct stage *stage, int live,
			 int whole, double turns)
{
	int again = memory_again(s, stage->layer_lo, stage->layer_hi),
	    inner = stage->layer_hi - stage->layer_lo - again;
	double bytes = live * plan_memory_slot(s, stage) -
		       (live - whole) * (again * s->freed[1] + inner * s->freed[0]);
	return s->on_demand ? turns * bytes : bytes;
}

double plan_memory_offloaded(const struct memory_sizes *s, const struct stage *stage)
{
	return s->offload ? layers_of(s, stage) : 0;
}

/* The bytes of the largest layer of a chunk. */
static double largest(const struct memory_sizes *s, const struct stage *stage)
{
	int layers = stage->layer_hi - stage->layer_lo,
	    again = memory_again(s, stage->layer_lo, stage->layer_hi);
	bool first = s->every && stage->layer_lo % s->every == 0;
	double most = layers > 0 ? s->layer[first] - s->first[first] : 0;
	if (again > first)
		most = fmax(most, s->layer[1]);
	if (layers - again > !first)
		most = fmax(most, s->layer[0]);
	return most;
}

double plan_memory_shared(const struct memory_sizes *s, const struct stage *chunks, int n)
{
	double staged = 0, sum = s->scratch + s->kept_scratch;
	bool last = false;
	int again = 0, layers = 0;
	for (int i = 0; i < n; i++) {
		layers += chunks[i].layer_hi - chunks[i].layer_lo;
		staged = fmax(staged, largest(s, &chunks[i]));
		last |= chunks[i].last;
		again += memory_again(s, chunks[i].layer_lo, chunks[i].layer_hi);
	}
	double end = last ? s->scratch_last : 0, work = layers ? s->work[again > 0] : 0;
	return sum + layers * s->copies + (s->offload ? STAGED * staged : 0) +
	       (s->on_demand ? fmax(end, work) : end + work) +
	       (again && s->kept_again ? s->kept : 0);
}

static void pass_memory(const struct job *job, const struct model_shape *m, const struct layout *l,
			int micros, const struct share *share, struct plan_rank *r)
{
	struct memory_sizes sizes;
	struct sched_slots live;
	int sum = 0;
	plan_memory_sizes_of(job, m, l, r->at.tp, schedule_splits(job->parallel.schedule), &sizes);
	if ((r->activations = sizes.immense) > 0)
		return;
	schedule_slots(job->parallel.schedule, l, micros, r->at.pp, &live);
	for (int c = 0; c < share->n_chunks; c++)
		sum += live.live[c];
	for (int c = 0; c < share->n_chunks; c++) {
		r->activations += plan_memory_slots(&sizes, &share->chunks[c], live.live[c],
						    live.whole[c], (double)live.most / sum);
		r->host += live.live[c] * plan_memory_offloaded(&sizes, &share->chunks[c]);
	}
	r->buffers += plan_memory_shared(&sizes, share->chunks, share->n_chunks);
}

enum { LOGITS_LEAST = 128 };

int64_t plan_memory_logits_less(const struct job *job)
{
	int64_t half = job->batch.logits / 2;
	bool counts = job->job.device == DEVICE_CUDA && !plan_memory_foreign(job);
	return counts && half >= LOGITS_LEAST ? half : 0;
}

/* --- State, tokens and the whole rank --- */

/* Bytes of the step's tokens and of those that are read ahead. */
static double token_bytes(const struct job *job, int micros)
{
	double planes = job->data.documents == DOCUMENTS_MASK ? 3 : 2;
	double steps = fmin((double)job->data.prefetch + 1, (double)job->job.steps);
	return TOKEN * steps * planes * (double)micros * (double)job->batch.micro *
	       (double)job->model.seq;
}

double plan_memory_rest(const struct job *job, int micros, int threads)
{
	bool low_precision = job->precision.dtype != DTYPE_FP32 && job->job.device == DEVICE_CPU;
	if (plan_memory_foreign(job))
		return 0;
	if (job->job.device == DEVICE_CUDA) /* tokens wait in the host's memory */
		return CUDA_FIXED + ZERO_STEP_NUMBERS;
	return token_bytes(job, micros) +
	       (low_precision ? (double)LOW_PRECISION_LANE * (threads ? threads : 1) : 0);
}

double plan_memory_staged(const struct job *job)
{
	int moments = optimizer_full_states(job->optimizer.kind);
	bool masters = job->precision.dtype != DTYPE_FP32;
	if (!job->offload.optimizer || job->job.device != DEVICE_CUDA || plan_memory_foreign(job))
		return 0;
	return zero_staged_bytes(moments + masters) +
	       (masters ? ELEMENT * (double)ZERO_PUBLISHED : 0);
}

/* Sets the parameters, the gradients, the optimizer state and the store's buffers as the ZeRO stage
 * divides them (zero.h). */
void plan_memory_state(const struct job *job, const struct model_shape *m, const struct layout *l,
		       const struct share *share, const int64_t elements[UNIT_KINDS],
		       const int counts[UNIT_KINDS], const struct zero_cut cuts[ZERO_CLASSES],
		       struct plan_rank *r)
{
	struct optimizer_memory optimizer;
	struct zero_memory z;
	if (plan_memory_foreign(job)) {
		plan_memory_program_state(job, m, l, share, elements, counts, cuts, r);
		return;
	}
	zero_memory_of(elements, counts, (int)job->parallel.zero, cuts,
		       job->precision.dtype == DTYPE_FP32 ? ELEMENT : ELEMENT / 2, &z);
	r->params = z.params;
	r->grads = z.grads;
	optimizer_memory_of(job->optimizer.kind, m, share, counts, (int)job->parallel.zero, cuts,
			    &optimizer);
	r->optimizer = z.masters + optimizer.state;
	r->buffers = z.gather + z.reduce + plan_memory_staged(job) + optimizer.work;
}

double plan_memory_images(const struct job *job)
{
	bool copies = job->checkpoint.memory_every > 0 && job->restart.warm;
	return copies ? 1 + 2 * (1 + (double)job->checkpoint.copies) : 1;
}

static void state_memory(const struct job *job, const struct model_shape *m, const struct layout *l,
			 const struct share *share, struct plan_rank *r)
{
	int stage = (int)job->parallel.zero, counts[UNIT_KINDS];
	int64_t elements[UNIT_KINDS];
	struct zero_cut cuts[ZERO_CLASSES];
	zero_cuts(l, r->at, stage,
		  job->parallel.zero_shard == ZERO_SHARD_NODE ? r->node_replicas : 0, cuts);
	for (int kind = 0; kind < UNIT_KINDS; kind++) {
		elements[kind] = catalogue_unit_elements(m, share, kind);
		counts[kind] = catalogue_unit_count(m, share, kind);
	}
	plan_memory_state(job, m, l, share, elements, counts, cuts, r);
	r->snapshot = ELEMENT * plan_memory_images(job) *
		      (zero_saved(m, share, stage, cuts) +
		       optimizer_saved(job->optimizer.kind, m, share, stage, cuts));
}

void plan_memory_sum(const struct job *job, bool on_cpu, struct plan_rank *r)
{
	if (job->offload.optimizer) {
		r->host += r->optimizer;
		r->optimizer = 0;
	}
	if (!on_cpu) {
		r->host += r->snapshot;
		r->snapshot = 0;
	}
	r->buffers += plan_memory_program_reserve(job) *
		      (r->params + r->grads + r->optimizer + r->activations + r->buffers);
	r->total = r->params + r->grads + r->optimizer + r->activations + r->buffers + r->snapshot;
}

/* Elements of one server's shard. It is the block that ZeRO 3 would leave to a replica. */
static double shard_elements(const struct model_shape *m, const struct layout *l,
			     const struct share *share, int dp, struct zero_cut cuts[ZERO_CLASSES])
{
	struct zero_memory z;
	zero_cuts(l, (struct coords){ .dp = dp }, 3, 0, cuts);
	zero_memory(m, share, 3, cuts, ELEMENT, &z);
	return z.owned;
}

/* Adds the memory of a parameter server (agent/server). The bytes so far are the worker's, which
 * holds everything whole. The server needs its shard's parameters, gradient and state, and a buffer
 * for each worker. Both share a buffer for a shard. */
static void server_memory(const struct job *job, const struct model_shape *m,
			  const struct layout *l, const struct share *share, struct plan_rank *r)
{
	int moments = optimizer_full_states(job->optimizer.kind);
	struct zero_cut cuts[ZERO_CLASSES];
	double own = shard_elements(m, l, share, r->at.dp, cuts);
	r->params += ELEMENT * own;
	r->grads += ELEMENT * own;
	r->optimizer = ELEMENT * moments * own;
	r->buffers += ELEMENT * (l->dp + 1) * own;
	r->snapshot = (1 + moments) * ELEMENT * plan_memory_images(job) *
		      zero_saved(m, share, 3, cuts);
}

void plan_memory_rank(const struct job *job, const struct model_shape *m, const struct layout *l,
		      int micros, const struct stage *stages, bool on_cpu, struct plan_rank *r)
{
	struct stage chunks[LAYOUT_CHUNKS_MAX];
	struct share share = layout_share(l, r->at, job->parallel.sp, stages, chunks);
	r->host = 0;
	state_memory(job, m, l, &share, r);
	if (job->parallel.sync == SYNC_SERVER)
		server_memory(job, m, l, &share, r);
	pass_memory(job, m, l, micros, &share, r);
	r->buffers += plan_memory_rest(
		job, micros, r->threads ? r->threads : speeds_threads(job, layout_rank(l, r->at)));
	plan_memory_sum(job, on_cpu, r);
}
