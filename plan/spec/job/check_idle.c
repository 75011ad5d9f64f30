/*
 * Keys that belong to a choice which was not made: given another value than their default they
 * would change nothing, and whoever wrote them expects something. A resolved job holds every key,
 * so a default counts as not given. And what the parameter server cannot be together with.
 */
#include "plan/spec/job/rules.h"
#include "plan/spec/schedule/schedule.h"

#include <string.h>

static bool rope(const struct job *job)
{
	return job->model.family != FAMILY_GPT2;
}

static bool rope_scaled(const struct job *job)
{
	return job->model.rope_scaling != ROPE_PLAIN;
}

static bool rope_llama3(const struct job *job)
{
	return job->model.rope_scaling == ROPE_LLAMA3;
}

static bool moe(const struct job *job)
{
	return job->model.family == FAMILY_MIXTRAL;
}

static bool cuda(const struct job *job)
{
	return job->job.device == DEVICE_CUDA;
}

static bool tensor(const struct job *job)
{
	return job->parallel.tp > 1;
}

static bool chunked(const struct job *job)
{
	return schedule_kinds[job->parallel.schedule]->chunks_most > 1;
}

static bool zero(const struct job *job)
{
	return job->parallel.zero > 0;
}

static bool server(const struct job *job)
{
	return job->parallel.sync == SYNC_SERVER;
}

static bool recomputing(const struct job *job)
{
	return job->recompute.mode != RECOMPUTE_NONE;
}

static bool fp16(const struct job *job)
{
	return job->precision.dtype == DTYPE_FP16;
}

static bool dynamic_scale(const struct job *job)
{
	return fp16(job) && job->precision.loss_scale <= 0;
}

static bool narrow(const struct job *job)
{
	return job->precision.dtype != DTYPE_FP32;
}

static bool adamw(const struct job *job)
{
	return job->optimizer.kind == OPTIMIZER_ADAMW;
}

static bool sgd(const struct job *job)
{
	return job->optimizer.kind == OPTIMIZER_SGD;
}

static bool decays(const struct job *job)
{
	return job->optimizer.schedule == LR_COSINE || job->optimizer.schedule == LR_LINEAR;
}

static bool falls(const struct job *job)
{
	return job->optimizer.schedule != LR_CONSTANT;
}

static bool wsd(const struct job *job)
{
	return job->optimizer.schedule == LR_WSD;
}

/* `key` works only if `chosen` holds, which `other` decides. `would` names the values of `other`
 * with which it holds; NULL: the first value of the enum with which it holds is found by trying. */
/* clang-format off */
static const struct idle {
	size_t key, other;
	bool (*chosen)(const struct job *job);
	const char *would;
} idles[] = {
	{ AT(job, graphs), AT(job, device), cuda, "cuda" },
	{ AT(model, rope_theta), AT(model, family), rope, "llama or mixtral" },
	{ AT(model, rope_scaling), AT(model, family), rope, "llama or mixtral" },
	{ AT(model, rope_factor), AT(model, rope_scaling), rope_scaled, "linear or llama3" },
	{ AT(model, rope_low), AT(model, rope_scaling), rope_llama3, "llama3" },
	{ AT(model, rope_high), AT(model, rope_scaling), rope_llama3, "llama3" },
	{ AT(model, rope_original), AT(model, rope_scaling), rope_llama3, "llama3" },
	{ AT(model, experts), AT(model, family), moe, "mixtral" },
	{ AT(model, experts_per_token), AT(model, family), moe, "mixtral" },
	{ AT(model, router), AT(model, family), moe, "mixtral" },
	{ AT(model, aux_loss), AT(model, family), moe, "mixtral" },
	{ AT(model, z_loss), AT(model, family), moe, "mixtral" },
	{ AT(model, capacity), AT(model, family), moe, "mixtral" },
	{ AT(parallel, ep), AT(model, family), moe, "mixtral" },
	{ AT(parallel, sp), AT(parallel, tp), tensor, "2 or more" },
	{ AT(parallel, chunks), AT(parallel, schedule), chunked, NULL },
	{ AT(parallel, zero_shard), AT(parallel, zero), zero, "1, 2 or 3" },
	{ AT(parallel, staleness), AT(parallel, sync), server, "server" },
	{ AT(recompute, every), AT(recompute, mode), recomputing, "selective or full" },
	{ AT(precision, fp8), AT(precision, dtype), narrow, "bf16 or fp16" },
	{ AT(precision, loss_scale), AT(precision, dtype), fp16, "fp16" },
	{ AT(precision, loss_scale_window), AT(precision, dtype), fp16, "fp16" },
	{ AT(precision, loss_scale_window), AT(precision, loss_scale), dynamic_scale, "0 (dynamic)" },
	{ AT(precision, stochastic_rounding), AT(precision, dtype), narrow, "bf16 or fp16" },
	{ AT(optimizer, momentum), AT(optimizer, kind), sgd, "sgd" },
	{ AT(optimizer, beta1), AT(optimizer, kind), adamw, "adamw" },
	{ AT(optimizer, beta2), AT(optimizer, kind), adamw, "adamw" },
	{ AT(optimizer, eps), AT(optimizer, kind), adamw, "adamw" },
	{ AT(optimizer, decay_steps), AT(optimizer, schedule), decays, "cosine or linear" },
	{ AT(optimizer, min_lr), AT(optimizer, schedule), falls, "cosine, linear, inverse-sqrt or wsd" },
	{ AT(optimizer, cooldown), AT(optimizer, schedule), wsd, "wsd" },
};
/* clang-format on */

/* A parameter server's replicas are whole, and in fp32. */
static const size_t not_with_server[] = {
	AT(parallel, tp),   AT(parallel, cp),       AT(parallel, pp),     AT(parallel, ep),
	AT(parallel, zero), AT(offload, optimizer), AT(precision, dtype),
};

/* "tp = 2" */
static void value_of(const struct job *job, size_t offset, struct buf *out)
{
	const struct job_key *key = &job_keys[job_key_at(offset)];
	buf_printf(out, "%s = ", key->name);
	job_value_write(key, job, out);
}

/* The first value of the enum key `other` with which `key` works. */
static const char *find_working_value(const struct job *job, const struct idle *i,
				      const struct job_key *other)
{
	struct job tried = *job;
	int value = -1;
	do {
		value++;
		memcpy((char *)&tried + other->offset, &value, sizeof value);
	} while (other->words[value + 1] && !i->chosen(&tried));
	return other->words[value];
}

static int refuse_idle(const struct rule_job *j, const struct idle *i)
{
	const size_t keys[] = { i->key, i->other };
	const struct job_key *key = &job_keys[job_key_at(i->key)],
			     *other = &job_keys[job_key_at(i->other)];
	struct buf has = BUF_INIT, lacks = BUF_INIT;
	value_of(j->job, i->key, &has);
	value_of(j->job, i->other, &lacks);
	const char *would = i->would ? i->would : find_working_value(j->job, i, other);
	job_rule_refuse(j, keys, 2, "%s has no effect with [%s] %s; use %s = %s, or %s = %s",
			buf_str(&has), other->section, buf_str(&lacks), other->name, would,
			key->name, key->def);
	buf_fini(&lacks);
	buf_fini(&has);
	return -1;
}

static int check_server(const struct rule_job *j)
{
	for (size_t i = 0; server(j->job) && i < sizeof not_with_server / sizeof *not_with_server;
	     i++) {
		if (!job_rule_changed(j->job, not_with_server[i]))
			continue;
		const size_t keys[] = { AT(parallel, sync), not_with_server[i] };
		const struct job_key *key = &job_keys[job_key_at(not_with_server[i])];
		struct buf has = BUF_INIT;
		value_of(j->job, not_with_server[i], &has);
		REFUSE(j, keys,
		       "sync = server does not work with [%s] %s in this version; use %s = %s, or "
		       "sync = all-reduce",
		       key->section, buf_str(&has), key->name, key->def);
		buf_fini(&has);
		return -1;
	}
	static const size_t device[] = { AT(parallel, sync), AT(job, device) };
	if (server(j->job) && cuda(j->job))
		return REFUSE(j, device,
			      "sync = server keeps shards of the parameters where the processor "
			      "updates them, and device = cuda computes elsewhere; "
			      "use sync = all-reduce, or device = cpu");
	return 0;
}

int job_rules_idle(const struct rule_job *j)
{
	for (size_t i = 0; i < sizeof idles / sizeof *idles; i++)
		if (!idles[i].chosen(j->job) && job_rule_changed(j->job, idles[i].key))
			return refuse_idle(j, &idles[i]);
	return check_server(j);
}
