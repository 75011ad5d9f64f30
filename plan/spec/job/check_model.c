/* Contradictions between the model's sizes. */
#include "plan/spec/job/rules.h"

#include "base/numbers.h"

/* The widest head for which kernels/ops.h guarantees attention. NARROW_MAX: the numbers that a
 * thread's scratch memory holds for 2-byte storage (BACKEND_LOW_PRECISION_LANE), less what
 * alignment may need. */
enum { HEAD_WIDEST = 256, NARROW_MAX = (4 << 20) - 4096 };

static bool divides_hidden(const struct rule_job *j, int64_t heads)
{
	return j->job->model.hidden % heads == 0;
}

static int check_heads(const struct rule_job *j)
{
	static const size_t keys[] = { AT(model, heads), AT(model, hidden) };
	const struct job *job = j->job;
	if (!job->model.head_dim && job->model.hidden % job->model.heads)
		return REFUSE(j, keys,
			      "heads = %lld does not divide hidden = %lld; use heads = %lld, "
			      "another hidden, or give head_dim",
			      (long long)job->model.heads, (long long)job->model.hidden,
			      (long long)job_rule_nearest(j, job->model.heads, 1, job->model.hidden,
							  divides_hidden));
	return 0;
}

static bool divides_heads(const struct rule_job *j, int64_t kv_heads)
{
	return j->job->model.heads % kv_heads == 0;
}

static int check_kv_heads(const struct rule_job *j)
{
	static const size_t keys[] = { AT(model, kv_heads), AT(model, heads) };
	const struct job *job = j->job;
	if (job->model.kv_heads && job->model.heads % job->model.kv_heads)
		return REFUSE(j, keys,
			      "kv_heads = %lld does not divide heads = %lld; use kv_heads = %lld",
			      (long long)job->model.kv_heads, (long long)job->model.heads,
			      (long long)job_rule_nearest(j, job->model.kv_heads, 1,
							  job->model.heads, divides_heads));
	return 0;
}

static int check_head_width(const struct rule_job *j)
{
	static const size_t keys[] = { AT(model, head_dim), AT(model, heads), AT(model, hidden),
				       AT(model, family) };
	if (j->shape.head_dim % 2 || j->shape.head_dim > HEAD_WIDEST)
		return REFUSE(j, keys,
			      "a head is %lld wide, and attention takes even widths up to %d; "
			      "change hidden, heads or head_dim",
			      (long long)j->shape.head_dim, HEAD_WIDEST);
	return 0;
}

/* Sums of sizes must fit 63 bits. */
#define PARAMS_MAX 1e18

static int check_size(const struct rule_job *j)
{
	static const size_t keys[] = { AT(model, experts), AT(model, layers), AT(model, ffn),
				       AT(model, hidden) };
	const struct model_shape *m = &j->shape;
	double params = 3.0 * (double)m->layers * (double)(m->experts ? m->experts : 1) *
			(double)m->hidden * (double)m->ffn;
	if (params > PARAMS_MAX)
		return REFUSE(j, keys,
			      "experts = %lld of ffn = %lld in layers = %lld are %.1g parameters; "
			      "use sizes below %.0e",
			      (long long)m->experts, (long long)m->ffn, (long long)m->layers,
			      params, PARAMS_MAX);
	return 0;
}

static int check_experts(const struct rule_job *j)
{
	static const size_t top[] = { AT(model, experts_per_token), AT(model, experts) };
	static const size_t capacity[] = { AT(model, capacity) };
	const struct job *job = j->job;
	if (!j->shape.experts)
		return 0;
	if (job->model.experts_per_token > job->model.experts)
		return REFUSE(j, top,
			      "experts_per_token = %lld are more than experts = %lld; use "
			      "experts_per_token = %lld",
			      (long long)job->model.experts_per_token,
			      (long long)job->model.experts, (long long)job->model.experts);
	if (job->model.capacity > 0 && job->model.capacity < 1)
		return REFUSE(j, capacity,
			      "capacity = %g gives an expert less than its fair share of the "
			      "tokens, so that some are always dropped; "
			      "use capacity = 1, or 0 to drop none",
			      job->model.capacity);
	return 0;
}

/* A processor widens 2-byte storage row by row. The scratch memory must hold at least one row, with
 * all that its operation needs of it. */
static int check_rows(const struct rule_job *j)
{
	static const size_t keys[] = { AT(precision, dtype), AT(parallel, tp),
				       AT(model, vocab),     AT(model, ffn),
				       AT(model, hidden),    AT(model, experts_per_token) };
	const struct model_shape *m = &j->shape;
	const struct job *job = j->job;
	int64_t tp = job->parallel.tp, vocab = (m->vocab + tp - 1) / tp,
		ffn = 6 * ((m->ffn + tp - 1) / tp);
	int64_t hidden = max_int64(6, m->experts ? 2 * m->top + 2 : 0) * m->hidden,
		most = max_int64(vocab, max_int64(ffn, hidden));
	if (job->precision.dtype != DTYPE_FP32 && job->job.device == DEVICE_CPU &&
	    most > NARROW_MAX)
		return REFUSE(j, keys,
			      "dtype = %s takes %lld numbers at once for a row of %s, and room is "
			      "for %d; use dtype = fp32, or a smaller model",
			      job_word(job, AT(precision, dtype)), (long long)most,
			      most == vocab ? "vocab"
			      : most == ffn ? "ffn"
					    : "hidden",
			      NARROW_MAX);
	return 0;
}

static int check_rope(const struct rule_job *j)
{
	static const size_t keys[] = { AT(model, rope_low), AT(model, rope_high) };
	const struct job *job = j->job;
	if (job->model.rope_scaling == ROPE_LLAMA3 && job->model.rope_low >= job->model.rope_high)
		return REFUSE(j, keys,
			      "rope_low = %g is not below rope_high = %g; use rope_low = %g",
			      job->model.rope_low, job->model.rope_high, job->model.rope_high / 4);
	return 0;
}

int job_rules_model(const struct rule_job *j)
{
	static rule *const rules[] = { check_heads,   check_kv_heads, check_head_width, check_size,
				       check_experts, check_rows,     check_rope };
	for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
		if (rules[i](j))
			return -1;
	return 0;
}
