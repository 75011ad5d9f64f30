#include "plan/spec/model/activations.h"

#include "base/numbers.h"

enum { LINE = 64, I32 = 4, F32 = 4, I64 = 8, F64 = 8 };

enum { LOGITS_HOST = 256 << 20 };

static bool on_device(const struct job *job)
{
	return job->job.device == DEVICE_CUDA;
}

static int64_t width_of(const struct job *job)
{
	return job->precision.dtype == DTYPE_FP32 ? 4 : 2;
}

int64_t activations_logits_row(const struct job *job, int64_t vocab)
{
	return on_device(job) ? round_up_int64(vocab, ACT_LOGITS_ROW) : vocab;
}

int64_t activations_logits_rows(const struct job *job, int64_t n, int64_t vocab)
{
	if (!on_device(job))
		return shape_head_rows(n, vocab * F32, LOGITS_HOST, 1);
	return shape_head_rows(n, activations_logits_row(job, vocab) * width_of(job),
			       job->batch.logits << 20, ACT_LOGITS_ROWS);
}

int64_t activations_lines(int64_t bytes)
{
	return (bytes + LINE - 1) / LINE * LINE;
}

static int64_t cut(int64_t n, const struct layout *l, int tp_rank, int64_t grain)
{
	int64_t lo, hi;
	layout_partition(n, l->tp, tp_rank, layout_partition_grain(n, l->tp, grain), &lo, &hi);
	return hi - lo;
}

/* All tp ranks compute the same rows at once, because they reduce these rows' numbers: as many
 * as the largest shard permits. The first one has the most grains, and the last one has the
 * remainder. */
static int64_t rows_of_all(const struct job *job, int64_t vocab, const struct layout *l, int64_t n)
{
	int64_t first = cut(vocab, l, 0, CATALOGUE_VOCAB_GRAIN),
		last = cut(vocab, l, l->tp - 1, CATALOGUE_VOCAB_GRAIN);
	return activations_logits_rows(job, n, max_int64(first, last));
}

/* The greatest common divisor of all tp ranks' shards of ffn. */
static int64_t act_divisor(int64_t ffn, const struct layout *l)
{
	int64_t divisor = 0;
	for (int rank = 0; rank < l->tp; rank++)
		for (int64_t n = cut(ffn, l, rank, CATALOGUE_FFN_GRAIN), rest; n; n = rest) {
			rest = divisor % n;
			divisor = n;
		}
	return divisor;
}

void activations_dims_of(const struct job *job, const struct model_shape *m, const struct layout *l,
			 int tp_rank, bool split, struct act_dims *out)
{
	bool shared = m->kv_heads < l->tp; /* several tp ranks hold one kv head */
	int64_t kv = shared ? 1 : cut(m->kv_heads, l, tp_rank, 1);
	struct act_dims d = {
		.c = m->hidden,
		.micro = job->batch.micro,
		.seq = m->seq / l->cp,
		.heads = shared ? m->heads / l->tp : kv * (m->heads / m->kv_heads),
		.kv_heads = kv,
		.dim = m->head_dim,
		.act = cut(m->ffn, l, tp_rank, CATALOGUE_FFN_GRAIN),
		.act_divisor = act_divisor(m->ffn, l),
		.vocab = cut(m->vocab, l, tp_rank, CATALOGUE_VOCAB_GRAIN),
		.stats = m->rms ? 1 : 2,
		.width = width_of(job),
		.sp = job->parallel.sp && l->tp > 1,
		.cp = l->cp > 1,
		.dropout = job->model.dropout > 0,
		.moe = m->experts > 0,
		.qk_norm = m->qk_norm,
		.experts = m->experts,
		.top = m->top,
		.routed = activations_expert_rows(job, m, l),
		.split = split,
		.offload = job->offload.activations,
		.device = on_device(job),
		.mode = job->recompute.mode,
		.fp8 = job->precision.fp8 != FP8_OFF,
		.fp8_weights = job->precision.fp8 != FP8_OFF && job->parallel.zero < 3,
		.fp8_delayed_layers = job->precision.fp8 != FP8_OFF && job->precision.fp8_scaling ==
									       FP8_SCALING_DELAYED
					      ? m->layers
					      : 0,
		.every = job->recompute.every,
	};
	d.n = d.micro * d.seq;
	d.s = d.sp ? d.n / l->tp : d.n;
	d.q = d.heads * d.dim;
	d.qkv = (d.heads + 2 * kv) * d.dim;
	d.up = m->gated ? 2 * d.act : d.act;
	d.logits_row = activations_logits_row(job, d.vocab);
	d.rows = rows_of_all(job, m->vocab, l, d.n);
	*out = d;
}

int64_t activations_fp8_row(int64_t n)
{
	return round_up_int64(n, ACT_FP8_ROW);
}

int64_t activations_first_head(const struct model_shape *m, const struct layout *l, int tp_rank)
{
	int64_t lo, hi;
	if (m->kv_heads < l->tp)
		return tp_rank * (m->heads / l->tp);
	layout_partition(m->kv_heads, l->tp, tp_rank, 1, &lo, &hi);
	return lo * (m->heads / m->kv_heads);
}

int64_t activations_rope_bytes(const struct act_dims *d)
{
	return activations_lines(2 * d->seq * (d->dim / 2) * F32);
}

enum job_recompute activations_mode(const struct act_dims *d, int layer)
{
	return layer % d->every == 0 ? d->mode : RECOMPUTE_NONE;
}

/* What each recomputation mode does with a tensor. SPLIT: it is in the slot if the backward pass is
 * split, and otherwise nowhere. */
enum fate { KEEP, AGAIN, SPLIT };
static const enum fate fates[ACTS][3] = {
	/* none, selective, full */
	[ACT_NORM1_X] = { KEEP, KEEP, KEEP },     [ACT_NORM1_STATS] = { KEEP, KEEP, AGAIN },
	[ACT_Y1] = { KEEP, AGAIN, AGAIN },        [ACT_QKV] = { KEEP, KEEP, AGAIN },
	[ACT_QK] = { KEEP, KEEP, AGAIN },         [ACT_QK_STATS] = { KEEP, KEEP, AGAIN },
	[ACT_O] = { KEEP, AGAIN, AGAIN },         [ACT_LSE] = { KEEP, AGAIN, AGAIN },
	[ACT_NORM2_X] = { KEEP, KEEP, AGAIN },    [ACT_NORM2_STATS] = { KEEP, KEEP, AGAIN },
	[ACT_Y2] = { KEEP, AGAIN, AGAIN },        [ACT_UP] = { KEEP, KEEP, AGAIN },
	[ACT_ACT] = { KEEP, AGAIN, AGAIN },       [ACT_DATTN] = { SPLIT, SPLIT, SPLIT },
	[ACT_DQKV] = { SPLIT, SPLIT, SPLIT },     [ACT_DMLP] = { SPLIT, SPLIT, SPLIT },
	[ACT_DUP] = { SPLIT, SPLIT, SPLIT },      [ACT_Y1_FP8] = { KEEP, AGAIN, AGAIN },
	[ACT_Y2_FP8] = { KEEP, AGAIN, AGAIN },    [ACT_ACT_FP8] = { KEEP, AGAIN, AGAIN },
	[ACT_FP8_SCALES] = { KEEP, KEEP, AGAIN },
};

/* The 8-bit copy that replaces an input of a linear; ACTS: there is none. */
static enum act copy_of(const struct act_dims *d, enum act a)
{
	if (!d->fp8 || (d->moe && a != ACT_Y1) || (d->sp && a != ACT_ACT))
		return ACTS;
	return a == ACT_Y1    ? ACT_Y1_FP8
	       : a == ACT_Y2  ? ACT_Y2_FP8
	       : a == ACT_ACT ? ACT_ACT_FP8
			      : ACTS;
}

static bool is_missing(const struct act_dims *d, enum act a)
{
	switch (a) {
	case ACT_QK:
	case ACT_QK_STATS:
		return !d->qk_norm;
	case ACT_UP:
	case ACT_ACT:
	case ACT_DUP:
		return d->moe;
	case ACT_Y1_FP8:
		return copy_of(d, ACT_Y1) == ACTS;
	case ACT_Y2_FP8:
		return copy_of(d, ACT_Y2) == ACTS;
	case ACT_ACT_FP8:
		return copy_of(d, ACT_ACT) == ACTS;
	case ACT_FP8_SCALES:
		return !d->fp8;
	default:
		return false;
	}
}

enum act_storage activations_home(const struct act_dims *d, int layer, bool first, enum act a)
{
	if ((a == ACT_NORM1_X && first) || is_missing(d, a))
		return ACT_NONE;
	if (copy_of(d, a) != ACTS)
		return ACT_SHARED;
	switch (fates[a][activations_mode(d, layer)]) {
	case KEEP:
		return ACT_SAVED;
	case AGAIN:
		return ACT_SHARED;
	default:
		return d->split ? ACT_SAVED : ACT_NONE;
	}
}

int64_t activations_bytes(const struct act_dims *d, enum act a)
{
	switch (a) {
	case ACT_NORM1_STATS:
	case ACT_NORM2_STATS:
		return activations_lines(d->stats * d->s * F32);
	case ACT_QKV:
	case ACT_DQKV:
		return activations_lines(d->n * d->qkv * d->width);
	case ACT_QK:
		return activations_lines(d->n * (d->heads + d->kv_heads) * d->dim * d->width);
	case ACT_QK_STATS:
		return activations_lines(d->n * (d->heads + d->kv_heads) * F32);
	case ACT_O:
		return activations_lines(d->n * d->q * d->width);
	case ACT_LSE:
		return activations_lines(d->heads * d->n * F32);
	case ACT_UP:
	case ACT_DUP:
		return activations_lines(d->n * d->up * d->width);
	case ACT_ACT:
		return activations_lines(d->n * d->act * d->width);
	case ACT_Y1_FP8:
	case ACT_Y2_FP8:
		return activations_lines(activations_fp8_row(d->n) * d->c);
	case ACT_ACT_FP8:
		return activations_lines(activations_fp8_row(d->n) * d->act);
	case ACT_FP8_SCALES:
		return activations_lines(ACT_LINEARS * ACT_FP8_SCALE_BYTES);
	default:
		return activations_lines(d->s * d->c * d->width);
	}
}

int64_t activations_layer_bytes(const struct act_dims *d, int layer, bool first)
{
	int64_t sum = 0;
	for (int a = 0; a < ACTS; a++)
		if (activations_home(d, layer, first, (enum act)a) == ACT_SAVED)
			sum += activations_bytes(d, (enum act)a);
	return sum;
}

int64_t activations_place_bytes(const struct act_dims *d, enum act_input a)
{
	switch (a) {
	case PLACE_SAMPLES:
		return activations_lines(d->micro * I64);
	case PLACE_ROWS:
		return d->dropout ? activations_lines(d->s * I64) : 0;
	default:
		return activations_lines(d->n * I32);
	}
}

static int64_t places_total(const struct act_dims *d)
{
	int64_t sum = 0;
	for (int a = 0; a < PLACES && d->device; a++)
		sum += activations_place_bytes(d, (enum act_input)a);
	return sum;
}

int64_t activations_slot_bytes(const struct act_dims *d, const struct stage *stage, enum act_slot a)
{
	int64_t stream = activations_lines(d->s * d->c * d->width);
	switch (a) {
	case SLOT_NORM_X:
		return stage->last ? stream : 0;
	case SLOT_NORM_STATS:
		return stage->last ? activations_lines(d->stats * d->s * F32) : 0;
	case SLOT_Y:
		return stage->last ? activations_lines(d->n * d->c * d->width) : 0;
	case SLOT_INPUTS:
		return places_total(d);
	default:
		return stream;
	}
}

/* The widest inner tensor of the feed-forward part. Experts do not count: their linears are not
 * multiplied in 8 bits. */
static int64_t ffn_widest(const struct act_dims *d)
{
	return d->moe ? 0 : max_int64(d->up, d->act);
}

/* The widest input or output of a linear. */
static int64_t widest(const struct act_dims *d)
{
	return max_int64(max_int64(d->c, ffn_widest(d)), max_int64(d->qkv, d->q));
}

/* Bytes of a linear's weights in 8 bits. Those of up and of q, k, v are [width, c], the others
 * [c, width]; experts' linears are not multiplied in 8 bits. */
static int64_t weight_bytes(const struct act_dims *d, enum act_linear l, bool transposed)
{
	const int64_t widths[] = { [ACT_LINEAR_QKV] = d->qkv,
				   [ACT_LINEAR_O] = d->q,
				   [ACT_LINEAR_UP] = d->moe ? 0 : d->up,
				   [ACT_LINEAR_DOWN] = d->moe ? 0 : d->act };
	bool of_inputs = l == ACT_LINEAR_QKV || l == ACT_LINEAR_UP;
	int64_t in = of_inputs ? d->c : widths[l], out = of_inputs ? widths[l] : d->c;
	return activations_lines(in * (transposed ? activations_fp8_row(out) : out));
}

static int64_t largest_weight(const struct act_dims *d)
{
	int64_t most = 0;
	for (int l = 0; l < ACT_LINEARS; l++)
		most = max_int64(most, weight_bytes(d, (enum act_linear)l, true));
	return most;
}

int64_t activations_scratch_bytes(const struct act_dims *d, bool last, enum act_scratch a)
{
	switch (a) {
	case SCRATCH_FULL:
	case SCRATCH_SENT:
		return d->sp ? activations_lines(d->n * d->c * d->width) : 0;
	case SCRATCH_SUB:
		return d->dropout ? activations_lines(d->s * d->c * d->width) : 0;
	case SCRATCH_HIDDEN:
		return activations_lines(d->s * d->c * d->width);
	case SCRATCH_MAX:
		return last ? activations_lines(d->rows * F32) : 0;
	case SCRATCH_SUMS:
		return last ? activations_lines(2 * d->rows * F32) : 0;
	case SCRATCH_WIDE:
		return activations_lines(d->n * max_int64(d->qkv, d->moe ? 0 : d->up) * d->width);
	case SCRATCH_NARROW:
		return activations_lines(d->n * max_int64(d->q, d->moe ? 0 : d->act) * d->width);
	case SCRATCH_HEADS:
		return d->qk_norm ? activations_lines(d->n * d->q * d->width) : 0;
	case SCRATCH_ROWS:
		return d->dropout && !d->device ? activations_lines(d->s * I64) : 0;
	case SCRATCH_POSITIONS:
		return d->device ? activations_lines(d->n * I32) : 0;
	case SCRATCH_LOSS:
		return d->device ? activations_lines(3 * F64) : 0;
	case SCRATCH_LOGITS:
		return last ? activations_lines(d->rows * d->logits_row * d->width) : 0;
	case SCRATCH_HEAD:
		return last && d->logits_row > d->vocab
			       ? activations_lines(d->logits_row * d->c * d->width)
			       : 0;
	case SCRATCH_RING_KV:
	case SCRATCH_RING_DKV:
		return d->cp ? activations_lines(2 * d->n * 2 * d->kv_heads * d->dim * d->width)
			     : 0;
	case SCRATCH_RING_O:
		return d->cp ? activations_bytes(d, ACT_O) : 0;
	case SCRATCH_RING_LSE:
		return d->cp ? activations_bytes(d, ACT_LSE) : 0;
	case SCRATCH_FP8_ROWS:
	case SCRATCH_FP8_TRANSPOSED:
		return d->fp8 ? activations_lines(activations_fp8_row(d->n) * widest(d)) : 0;
	case SCRATCH_FP8_WEIGHT:
		return d->fp8 && !d->fp8_weights ? largest_weight(d) : 0;
	case SCRATCH_FP8_SCALES:
		return d->fp8 ? activations_lines((ACT_LINEARS + 1) * ACT_FP8_SCALE_BYTES) : 0;
	case SCRATCH_FP8_SUMS:
		return d->fp8_delayed_layers ? activations_lines(d->c * F32) : 0;
	default:
		return 0;
	}
}

int64_t activations_fp8_weight(const struct act_dims *d, enum act_linear l, bool transposed)
{
	return d->fp8_weights ? weight_bytes(d, l, transposed) : 0;
}

int64_t activations_fp8_table(const struct act_dims *d)
{
	return 2 * activations_lines(2 * d->fp8_delayed_layers * ACT_LINEARS * ACT_FP8_SCALE_BYTES);
}

int64_t activations_fp8_weights(const struct act_dims *d)
{
	int64_t sum = activations_lines(ACT_LINEARS * ACT_FP8_SCALE_BYTES);
	for (int l = 0; l < ACT_LINEARS; l++)
		sum += activations_fp8_weight(d, (enum act_linear)l, false) +
		       activations_fp8_weight(d, (enum act_linear)l, true);
	return d->fp8_weights ? sum : 0;
}

static int64_t layers_total(const struct act_dims *d, const struct stage *stage)
{
	int64_t sum = 0;
	for (int l = stage->layer_lo; l < stage->layer_hi; l++)
		sum += activations_layer_bytes(d, l, l == stage->layer_lo);
	return sum;
}

int64_t activations_slot_total(const struct act_dims *d, const struct stage *stage)
{
	int64_t sum = d->offload ? 0 : layers_total(d, stage);
	for (int a = 0; a < SLOTS; a++)
		sum += activations_slot_bytes(d, stage, (enum act_slot)a);
	return sum;
}

int64_t activations_offloaded(const struct act_dims *d, const struct stage *stage)
{
	return d->offload ? layers_total(d, stage) : 0;
}

int64_t activations_staged(const struct act_dims *d, const struct stage *chunks, int n_chunks)
{
	int64_t largest = 0;
	for (int i = 0; i < n_chunks && d->offload; i++)
		for (int l = chunks[i].layer_lo; l < chunks[i].layer_hi; l++)
			largest = max_int64(largest,
					    activations_layer_bytes(d, l, l == chunks[i].layer_lo));
	return largest;
}

/* A tensor is in the work home if any layer has it there. */
static int64_t work_total(const struct act_dims *d, const struct stage *chunks, int n_chunks)
{
	int64_t sum = 0;
	for (int a = 0; a < ACTS; a++) {
		bool used = false;
		for (int i = 0; i < n_chunks; i++)
			for (int l = chunks[i].layer_lo; l < chunks[i].layer_hi && !used; l++)
				used = activations_home(d, l, l == chunks[i].layer_lo,
							(enum act)a) == ACT_SHARED;
		sum += used ? activations_bytes(d, (enum act)a) : 0;
	}
	return sum;
}

int64_t activations_shared_total(const struct act_dims *d, const struct stage *chunks, int n_chunks,
				 bool rope)
{
	int64_t sum = work_total(d, chunks, n_chunks) +
		      STAGED * activations_staged(d, chunks, n_chunks) +
		      (rope ? activations_rope_bytes(d) : 0);
	bool last = false;
	for (int i = 0; i < n_chunks; i++) {
		last |= chunks[i].last;
		sum += (chunks[i].layer_hi - chunks[i].layer_lo) * activations_fp8_weights(d);
	}
	for (int a = 0; a < SCRATCHES; a++)
		sum += activations_scratch_bytes(d, last, (enum act_scratch)a);
	return sum + activations_fp8_table(d);
}

int64_t activations_experts_kept(const struct act_dims *d)
{
	const struct act_expert_rows *r = &d->routed;
	int64_t choices = d->n * d->top, rows = r->received, row = d->c * d->width,
		f = d->act * d->width;
	int64_t routes =
		2 * activations_lines(choices * F32) + activations_lines(d->n * d->experts * F32) +
		activations_lines(d->n * F32) + activations_lines(d->micro * d->experts * F32) +
		activations_lines(choices * I64) + activations_lines(r->sent * I64) +
		(d->device ? activations_lines(d->experts * I64) : 0);
	if (r->block)
		routes += activations_lines(r->mine * I64) + 2 * activations_lines(rows * I64);
	int64_t halves = d->split ? activations_lines(rows * row) + activations_lines(rows * 2 * f)
				  : 0;
	return routes + activations_lines(rows * row) + activations_lines(r->sent * row) +
	       activations_lines(rows * 2 * f) + activations_lines(rows * f) + halves;
}

bool activations_experts_recompute(const struct act_dims *d, int layer)
{
	return activations_mode(d, layer) == RECOMPUTE_FULL && !d->split;
}

int64_t activations_experts_scratch(const struct act_dims *d)
{
	const struct act_expert_rows *r = &d->routed;
	int64_t rows = r->received, row = d->c * d->width, f = d->act * d->width;
	int64_t router = activations_lines(d->n * d->experts * d->width) +
			 activations_lines(d->n * d->experts * F32) +
			 activations_lines(d->n * d->top * F32) +
			 activations_lines(d->experts * I64) +
			 (r->block ? activations_lines(r->ranks * r->mine * I64) : 0);
	/* On a device: the choices in each piece of a sequence (at most two) and before it. */
	if (d->device)
		router += 2 * activations_lines(2 * d->micro * d->experts * I64);
	return router + 2 * activations_lines(d->n * row) + activations_lines(r->sent * row) +
	       3 * activations_lines(rows * row) + activations_lines(rows * f) +
	       activations_lines(rows * 2 * f);
}
