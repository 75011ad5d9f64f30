/* Refuses keys that belong to a choice that was not made. With a value other than the default
 * they would have no effect, but whoever wrote them expects one. A resolved job holds every
 * key, so a default counts as not given. Also refuses keys that a parameter server does not
 * support, and those that only muster's own engine has if another program is planned for. */
#include "plan/spec/job/rules.h"
#include "plan/spec/schedule/schedule.h"

#include <stdlib.h>
#include <string.h>

static bool rope(const struct job *job)
{
	return shape_families[job->model.family].rope;
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
	return shape_families[job->model.family].experts;
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

static bool bf16(const struct job *job)
{
	return job->precision.dtype == DTYPE_BF16;
}

static bool is_in_8_bits(const struct job *job)
{
	return job->precision.fp8 != FP8_OFF;
}

static bool is_low_precision(const struct job *job)
{
	return job->precision.dtype != DTYPE_FP32;
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

static bool has_local(const struct job *job)
{
	return job->checkpoint.local[0] != '\0';
}

static bool keeps_copies(const struct job *job)
{
	return job->checkpoint.memory_every != 0;
}

static bool goes_on_warm(const struct job *job)
{
	return job->restart.warm || job->checkpoint.memory_every <= 0;
}

static bool has_remote(const struct job *job)
{
	return job->checkpoint.remote[0] != '\0';
}

static bool skips(const struct job *job)
{
	return job->health.bad_numbers == BAD_NUMBERS_SKIP;
}

static bool judges_spikes(const struct job *job)
{
	return job->health.bad_numbers != BAD_NUMBERS_RETRY;
}

static bool foreign(const struct job *job)
{
	return job->plan.engine != ENGINE_MUSTER;
}

/* `key` has an effect only if `chosen` holds, which depends on `other`. `would` names the values of
 * `other` with which it holds. NULL: `other` is an enum, and its values are tried. */
/* clang-format off */
static const struct idle {
	size_t key, other;
	bool (*chosen)(const struct job *job);
	const char *would;
} idles[] = {
	{ AT(job, deterministic), AT(job, device), cuda, "cuda" },
	{ AT(job, graphs), AT(job, device), cuda, "cuda" },
	{ AT(model, rope_theta), AT(model, family), rope, NULL },
	{ AT(model, rope_scaling), AT(model, family), rope, NULL },
	{ AT(model, rope_factor), AT(model, rope_scaling), rope_scaled, "linear or llama3" },
	{ AT(model, rope_low), AT(model, rope_scaling), rope_llama3, "llama3" },
	{ AT(model, rope_high), AT(model, rope_scaling), rope_llama3, "llama3" },
	{ AT(model, rope_original), AT(model, rope_scaling), rope_llama3, "llama3" },
	{ AT(model, experts), AT(model, family), moe, NULL },
	{ AT(model, experts_per_token), AT(model, family), moe, NULL },
	{ AT(model, router), AT(model, family), moe, NULL },
	{ AT(model, aux_loss), AT(model, family), moe, NULL },
	{ AT(model, z_loss), AT(model, family), moe, NULL },
	{ AT(model, capacity), AT(model, family), moe, NULL },
	{ AT(parallel, ep), AT(model, family), moe, NULL },
	{ AT(parallel, sp), AT(parallel, tp), tensor, "2 or more" },
	{ AT(parallel, chunks), AT(parallel, schedule), chunked, NULL },
	{ AT(parallel, zero_shard), AT(parallel, zero), zero, "1, 2 or 3" },
	{ AT(parallel, staleness), AT(parallel, sync), server, "server" },
	{ AT(recompute, every), AT(recompute, mode), recomputing, "selective or full" },
	{ AT(precision, fp8), AT(precision, dtype), is_low_precision, "bf16 or fp16" },
	{ AT(precision, fp8_scaling), AT(precision, fp8), is_in_8_bits, "e4m3 or hybrid" },
	{ AT(precision, fp8_scaling), AT(precision, dtype), bf16, "bf16" },
	{ AT(precision, loss_scale), AT(precision, dtype), fp16, "fp16" },
	{ AT(precision, loss_scale_window), AT(precision, dtype), fp16, "fp16" },
	{ AT(precision, loss_scale_window), AT(precision, loss_scale), dynamic_scale, "0 (dynamic)" },
	{ AT(precision, stochastic_rounding), AT(precision, dtype), is_low_precision, "bf16 or fp16" },
	{ AT(optimizer, decay_steps), AT(optimizer, schedule), decays, "cosine or linear" },
	{ AT(optimizer, min_lr), AT(optimizer, schedule), falls, "cosine, linear, inverse-sqrt or wsd" },
	{ AT(optimizer, cooldown), AT(optimizer, schedule), wsd, "wsd" },
	{ AT(checkpoint, local_every), AT(checkpoint, local), has_local, "a folder" },
	{ AT(checkpoint, local_keep), AT(checkpoint, local), has_local, "a folder" },
	{ AT(checkpoint, copies), AT(checkpoint, memory_every), keeps_copies, "-1, or 1 and more" },
	{ AT(checkpoint, memory_every), AT(restart, warm), goes_on_warm, "yes" },
	{ AT(checkpoint, remote_every), AT(checkpoint, remote), has_remote, "s3://bucket/prefix" },
	{ AT(checkpoint, remote_keep), AT(checkpoint, remote), has_remote, "s3://bucket/prefix" },
	{ AT(checkpoint, remote_bandwidth), AT(checkpoint, remote), has_remote, "s3://bucket/prefix" },
	{ AT(checkpoint, remote_wait), AT(checkpoint, remote), has_remote, "s3://bucket/prefix" },
	{ AT(health, spike_z), AT(health, bad_numbers), judges_spikes, NULL },
	{ AT(health, spike_window), AT(health, bad_numbers), judges_spikes, NULL },
	{ AT(health, max_skips), AT(health, bad_numbers), skips, NULL },
	{ AT(health, skip_before), AT(health, bad_numbers), skips, NULL },
	{ AT(plan, loss), AT(plan, engine), foreign, NULL },
};
/* clang-format on */

/* Keys that only some optimizers read, according to their table (plan/spec/optimizers.h). */
static const struct optimizer_idle {
	size_t key;
	enum optimizer_key bit;
} optimizer_idles[] = {
	{ AT(optimizer, momentum), OPTIMIZER_MOMENTUM },
	{ AT(optimizer, beta1), OPTIMIZER_BETA1 },
	{ AT(optimizer, beta2), OPTIMIZER_BETA2 },
	{ AT(optimizer, eps), OPTIMIZER_EPS },
};

/* The replicas of a parameter server are whole and in fp32, and they have no last step in common to
 * which all could go back. */
static const size_t not_with_server[] = {
	AT(parallel, tp),   AT(parallel, cp),       AT(parallel, pp),     AT(parallel, ep),
	AT(parallel, zero), AT(offload, optimizer), AT(precision, dtype), AT(health, bad_numbers),
};

/* Other programs have no parameter server, and give unlike devices equal shares of the work. */
static const size_t not_with_programs[] = { AT(parallel, sync), AT(launch, speeds) };

/* "tp = 2" */
static void value_of(const struct job *job, size_t offset, struct buf *out)
{
	const struct job_key *key = &job_keys[job_key_at(offset)];
	buf_printf(out, "%s = ", key->name);
	job_value_write(key, job, out);
}

/* Copies the job: it is too large for a small stack. No memory: no value is listed. */
static struct job *copy_of(const struct job *job)
{
	struct job *copy = malloc(sizeof *copy);
	if (copy)
		*copy = *job;
	return copy;
}

/* "interleaved or breadth-first": the values of the enum key `other` with which `key` works. */
static void list_working_values(const struct job *job, const struct idle *i,
				const struct job_key *other, struct buf *out)
{
	struct job *tried = copy_of(job);
	const char *last = NULL;
	for (int value = 0; tried && other->words[value]; value++) {
		memcpy((char *)tried + other->offset, &value, sizeof value);
		if (!i->chosen(tried))
			continue;
		if (last)
			buf_printf(out, "%s%s", out->len ? ", " : "", last);
		last = other->words[value];
	}
	buf_printf(out, "%s%s", out->len ? " or " : "", last ? last : "");
	free(tried);
}

/* Refuses a key that has no effect. would: the values of the key `decides` with which it would have
 * one. */
static int refuse_idle(const struct rule_job *j, size_t idle, size_t decides, const char *would)
{
	const size_t keys[] = { idle, decides };
	const struct job_key *key = &job_keys[job_key_at(idle)],
			     *other = &job_keys[job_key_at(decides)];
	struct buf has = BUF_INIT, lacks = BUF_INIT;
	value_of(j->job, idle, &has);
	value_of(j->job, decides, &lacks);
	job_rule_refuse(j, keys, 2, "%s has no effect with [%s] %s; use %s = %s, or %s = %s",
			buf_str(&has), other->section, buf_str(&lacks), other->name, would,
			key->name, key->def);
	buf_fini(&lacks);
	buf_fini(&has);
	return -1;
}

static int refuse_without_choice(const struct rule_job *j, const struct idle *i)
{
	struct buf would = BUF_INIT;
	if (i->would)
		buf_puts(&would, i->would);
	else
		list_working_values(j->job, i, &job_keys[job_key_at(i->other)], &would);
	int rc = refuse_idle(j, i->key, i->other, buf_str(&would));
	buf_fini(&would);
	return rc;
}

/* Lists the optimizers that read the key: "adamw or muon". bit 0: those that update each element
 * independently. */
static void list_optimizers(unsigned bit, struct buf *out)
{
	const char *last = NULL;
	for (int i = 0; i < OPTIMIZER_KINDS; i++) {
		const struct optimizer *o = optimizer_of((enum job_optimizer)i);
		if (bit ? !(o->keys & bit) : !o->elementwise)
			continue;
		if (last)
			buf_printf(out, "%s%s", out->len ? ", " : "", last);
		last = o->name;
	}
	buf_printf(out, "%s%s", out->len ? " or " : "", last ? last : "");
}

static int check_optimizer_keys(const struct rule_job *j)
{
	const struct optimizer *o = optimizer_of(j->job->optimizer.kind);
	for (size_t i = 0; i < sizeof optimizer_idles / sizeof *optimizer_idles; i++) {
		const struct optimizer_idle *idle = &optimizer_idles[i];
		if ((o->keys & idle->bit) || !job_rule_changed(j->job, idle->key))
			continue;
		struct buf would = BUF_INIT;
		list_optimizers(idle->bit, &would);
		refuse_idle(j, idle->key, AT(optimizer, kind), buf_str(&would));
		buf_fini(&would);
		return -1;
	}
	return 0;
}

/* Refuses an update that reads whole matrices where it cannot run: on a parameter server, which
 * holds parts of them, and on a GPU. */
static int check_optimizer_place(const struct rule_job *j)
{
	static const size_t sync[] = { AT(optimizer, kind), AT(parallel, sync) };
	static const size_t device[] = { AT(optimizer, kind), AT(job, device) };
	const struct optimizer *o = optimizer_of(j->job->optimizer.kind);
	if (o->elementwise || (!server(j->job) && !cuda(j->job)))
		return 0;
	struct buf others = BUF_INIT;
	list_optimizers(0, &others);
	if (server(j->job))
		REFUSE(j, sync,
		       "kind = %s updates whole matrices, and with [parallel] sync = server each "
		       "server holds parts of them; use kind = %s, or sync = all-reduce",
		       o->name, buf_str(&others));
	else
		REFUSE(j, device,
		       "kind = %s runs on the CPU only in this version; use kind = %s, or [job] "
		       "device = cpu",
		       o->name, buf_str(&others));
	buf_fini(&others);
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

static int check_program(const struct rule_job *j)
{
	for (size_t i = 0;
	     foreign(j->job) && i < sizeof not_with_programs / sizeof *not_with_programs; i++) {
		if (!job_rule_changed(j->job, not_with_programs[i]))
			continue;
		const size_t keys[] = { not_with_programs[i], AT(plan, engine) };
		struct buf has = BUF_INIT, program = BUF_INIT;
		value_of(j->job, not_with_programs[i], &has);
		value_of(j->job, AT(plan, engine), &program);
		REFUSE(j, keys,
		       "%s does not work with [plan] %s: only muster's own engine has it; leave it "
		       "out, or use engine = muster",
		       buf_str(&has), buf_str(&program));
		buf_fini(&program);
		buf_fini(&has);
		return -1;
	}
	return 0;
}

/* A search may still decide whether a key of `idles` has an effect. */
int job_rules_idle(const struct rule_job *j)
{
	for (size_t i = 0; !j->job->open && i < sizeof idles / sizeof *idles; i++)
		if (!idles[i].chosen(j->job) && job_rule_changed(j->job, idles[i].key))
			return refuse_without_choice(j, &idles[i]);
	return check_optimizer_keys(j) || check_optimizer_place(j) || check_server(j) ||
			       check_program(j)
		       ? -1
		       : 0;
}
