#include "plan/spec/model/model.h"

#include "base/attention_room.h"
#include "base/numbers.h"

#include <math.h>

#define ROW(id, name, help, ...) [FAMILY_##id] = { .word = name, __VA_ARGS__ },
const struct shape_family shape_families[FAMILIES] = { SHAPE_FAMILIES(ROW) };
#undef ROW

static int64_t or_default(int64_t value, int64_t otherwise)
{
	return value ? value : otherwise;
}

void shape_of_job(const struct job *job, struct model_shape *out)
{
	const struct shape_family *f = &shape_families[job->model.family];
	int64_t hidden = job->model.hidden;
	*out = (struct model_shape){
		.family = job->model.family,
		.layers = job->model.layers,
		.hidden = hidden,
		.heads = job->model.heads,
		.kv_heads = or_default(job->model.kv_heads, job->model.heads),
		.head_dim = or_default(job->model.head_dim, hidden / job->model.heads),
		.ffn = or_default(job->model.ffn,
				  f->gated ? round_up_int64(8 * hidden / 3, 256) : 4 * hidden),
		.vocab = job->model.vocab,
		.seq = job->model.seq,
		.rms = f->rms,
		.rope = f->rope,
		.gated = f->gated,
		.qkv_bias = f->qkv_bias,
		.bias = f->bias,
		.qk_norm = f->qk_norm,
		.tied = job->model.tie_head == TIE_AUTO ? f->tied : job->model.tie_head == TIE_YES,
		.norm_eps = job->model.norm_eps,
		.rope_theta = job->model.rope_theta,
		.init_std = job->model.init_std,
		.rope_scaling = job->model.rope_scaling,
		.rope_factor = job->model.rope_factor,
		.rope_low = job->model.rope_low,
		.rope_high = job->model.rope_high,
		.rope_original = job->model.rope_original,
		.experts = f->experts ? job->model.experts : 0,
		.top = f->experts ? job->model.experts_per_token : 0,
		.router = f->experts ? job->model.router : ROUTER_SOFTMAX_AFTER,
	};
}

bool shape_attention_by_cudnn(const struct job *job, const struct model_shape *m, int cp)
{
	return job->job.deterministic != DETERMINISTIC_YES && job->precision.dtype != DTYPE_FP32 &&
	       cp == 1 && !(job->model.attn_dropout > 0) && m->head_dim % 8 == 0 &&
	       m->head_dim <= ATTENTION_ROOM_DIM;
}

/* Number of weights in a layer's matrix products, with `ffns` feed-forward parts. */
static int64_t layer_matrices(const struct model_shape *m, int64_t ffns)
{
	int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
	return m->hidden * (2 * q + 2 * kv) + ffns * m->hidden * m->ffn * (m->gated ? 3 : 2) +
	       m->experts * m->hidden;
}

int64_t shape_params(const struct model_shape *m)
{
	int64_t q = m->heads * m->head_dim, kv = m->kv_heads * m->head_dim;
	int64_t norm = m->hidden * (m->rms ? 1 : 2), qk_norms = m->qk_norm ? 2 * m->head_dim : 0;
	int64_t biases = (m->qkv_bias ? q + 2 * kv : 0) +
			 (m->bias ? m->hidden + m->ffn + m->hidden : 0);
	int64_t embed = m->vocab * m->hidden;
	return embed + (m->rope ? 0 : m->seq * m->hidden) +
	       m->layers * (layer_matrices(m, m->experts ? m->experts : 1) + biases + 2 * norm +
			    qk_norms) +
	       norm + (m->tied ? 0 : embed);
}

double shape_cost_layer(const struct model_shape *m)
{
	/* Scores and weighted values: 2 products of 2·q·seq FLOPs, half of them masked; the
	 * backward pass takes twice as many. */
	double attention = 6.0 * (double)(m->heads * m->head_dim) * (double)m->seq;
	return 6.0 * (double)layer_matrices(m, m->experts ? m->top : 1) + attention;
}

double shape_cost_head(const struct model_shape *m)
{
	return 6.0 * (double)m->vocab * (double)m->hidden;
}

double shape_cost_embed(const struct model_shape *m)
{
	/* No products, but three passes over a row of 4-byte elements, at the ten
	 * FLOPs that a machine does while it moves a byte. */
	return 120.0 * (double)m->hidden;
}

int64_t shape_head_rows(int64_t n, int64_t row_bytes, int64_t most, int64_t grain)
{
	int64_t fit = max_int64(most / row_bytes, 1);
	int64_t chunks = (n + fit - 1) / fit, equal = (n + chunks - 1) / chunks;
	if (chunks == 1 || fit < grain)
		return equal;
	return min_int64(round_up_int64(equal, grain), fit / grain * grain);
}

double shape_flops_token(const struct model_shape *m)
{
	return (double)m->layers * shape_cost_layer(m) + shape_cost_head(m);
}

double shape_rope_turn(const struct model_shape *m, int64_t i)
{
	double f = pow(m->rope_theta, -2.0 * (double)i / (double)m->head_dim);
	if (m->rope_scaling == ROPE_PLAIN)
		return f;
	if (m->rope_scaling == ROPE_LINEAR)
		return f / m->rope_factor;
	double wave = 2 * M_PI / f, context = (double)m->rope_original;
	if (wave < context / m->rope_high)
		return f;
	if (wave > context / m->rope_low)
		return f / m->rope_factor;
	double smooth = (context / wave - m->rope_low) / (m->rope_high - m->rope_low);
	return (1 - smooth) * f / m->rope_factor + smooth * f;
}
