/*
 * Contradictions: keys that are each right and cannot be together. One
 * function a rule, all in the table at the end; each names the key that was given
 * last as the one to look at.
 */
#include "plan/job_keys.h"

#include "plan/model.h"

#include <stdarg.h>

#define AT(section, key) offsetof(struct job, section.key)

enum { WORLD_MOST = 1000000 };

/* Of the keys involved, the one from the command line, else the last one in the file. */
static int cited(const struct job_source *src, const size_t *offsets, int n)
{
	int best = job_key_at(offsets[0]);
	for (int i = 1; i < n && src->line[best] >= 0; i++) {
		int key = job_key_at(offsets[i]);
		if (src->line[key] < 0 || src->line[key] > src->line[best])
			best = key;
	}
	return best;
}

__attribute__((format(printf, 5, 6)))
static int contradict(const struct job_source *src, struct err *e, const size_t *offsets, int n, const char *fmt, ...)
{
	struct buf why = BUF_INIT;
	va_list ap;
	va_start(ap, fmt);
	buf_vprintf(&why, fmt, ap);
	va_end(ap);
	job_refuse(src, cited(src, offsets, n), e, buf_str(&why));
	buf_fini(&why);
	return -1;
}

#define CONTRADICT(keys, ...) contradict(src, e, keys, (int)(sizeof keys / sizeof *keys), __VA_ARGS__)

static int check_heads(const struct job *job, const struct job_source *src, struct err *e)
{
	static const size_t keys[] = { AT(model, heads), AT(model, hidden) };
	if (!job->model.head_dim && job->model.hidden % job->model.heads)
		return CONTRADICT(keys, "heads = %lld does not divide hidden = %lld; change one of them or give head_dim",
				  (long long)job->model.heads, (long long)job->model.hidden);
	return 0;
}

static int check_kv_heads(const struct job *job, const struct job_source *src, struct err *e)
{
	static const size_t keys[] = { AT(model, kv_heads), AT(model, heads) };
	if (job->model.kv_heads && job->model.heads % job->model.kv_heads)
		return CONTRADICT(keys, "kv_heads = %lld does not divide heads = %lld; change one of them",
				  (long long)job->model.kv_heads, (long long)job->model.heads);
	return 0;
}

/* What kernels/ops.h promises of attention. */
enum { HEAD_WIDEST = 256 };

static int check_head_width(const struct job *job, const struct job_source *src, struct err *e)
{
	static const size_t keys[] = { AT(model, head_dim), AT(model, heads), AT(model, hidden), AT(model, family) };
	struct model_shape m;
	model_shape(job, &m);
	if (m.head_dim % 2 || m.head_dim > HEAD_WIDEST)
		return CONTRADICT(keys, "a head is %lld wide, and attention takes even widths up to %d; change hidden, heads or head_dim",
				  (long long)m.head_dim, HEAD_WIDEST);
	return 0;
}

static int check_tp(const struct job *job, const struct job_source *src, struct err *e)
{
	struct model_shape m;
	model_shape(job, &m);
	static const size_t kv[] = { AT(parallel, tp), AT(model, kv_heads), AT(model, heads) };
	static const size_t ffn[] = { AT(parallel, tp), AT(model, ffn), AT(model, hidden) };
	static const size_t vocab[] = { AT(parallel, tp), AT(model, vocab) };
	if (m.kv_heads < job->parallel.tp)
		return CONTRADICT(kv, "tp = %lld would split one of the %lld key/value heads, which is not supported yet; use tp of at most %lld",
				  (long long)job->parallel.tp, (long long)m.kv_heads, (long long)m.kv_heads);
	if (m.ffn < job->parallel.tp)
		return CONTRADICT(ffn, "tp = %lld cannot cut ffn = %lld; use tp of at most %lld",
				  (long long)job->parallel.tp, (long long)m.ffn, (long long)m.ffn);
	if (m.vocab < job->parallel.tp)
		return CONTRADICT(vocab, "tp = %lld cannot cut vocab = %lld; use tp of at most %lld",
				  (long long)job->parallel.tp, (long long)m.vocab, (long long)m.vocab);
	return 0;
}

static int check_pp(const struct job *job, const struct job_source *src, struct err *e)
{
	static const size_t keys[] = { AT(parallel, pp), AT(model, layers) };
	if (job->parallel.pp > job->model.layers)
		return CONTRADICT(keys, "pp = %lld needs a layer for each stage and layers = %lld; use pp of at most %lld",
				  (long long)job->parallel.pp, (long long)job->model.layers, (long long)job->model.layers);
	return 0;
}

static int64_t world(const struct job *job)
{
	return job->parallel.tp * job->parallel.pp * (job->parallel.dp ? job->parallel.dp : 1);
}

static int check_world(const struct job *job, const struct job_source *src, struct err *e)
{
	static const size_t keys[] = { AT(parallel, dp), AT(parallel, pp), AT(parallel, tp) };
	if (world(job) > WORLD_MOST)
		return CONTRADICT(keys, "tp × pp × dp = %lld ranks; use degrees whose product is at most %d",
				  (long long)world(job), WORLD_MOST);
	return 0;
}

static int check_batch(const struct job *job, const struct job_source *src, struct err *e)
{
	static const size_t keys[] = { AT(batch, global), AT(batch, micro), AT(parallel, dp) };
	int64_t dp = job->parallel.dp ? job->parallel.dp : 1;
	if (job->batch.global % (job->batch.micro * dp))
		return CONTRADICT(keys, "global = %lld is not a multiple of micro × dp = %lld × %lld; change one of them",
				  (long long)job->batch.global, (long long)job->batch.micro, (long long)dp);
	return 0;
}

static int check_rate(const struct job *job, const struct job_source *src, struct err *e)
{
	static const size_t rates[] = { AT(optimizer, min_lr), AT(optimizer, lr) };
	static const size_t warmup[] = { AT(optimizer, warmup), AT(job, steps) };
	static const size_t decay[] = { AT(optimizer, decay_steps), AT(optimizer, warmup) };
	if (job->optimizer.min_lr > job->optimizer.lr)
		return CONTRADICT(rates, "min_lr = %g is above lr = %g; lower min_lr", job->optimizer.min_lr, job->optimizer.lr);
	if (job->optimizer.warmup > job->job.steps)
		return CONTRADICT(warmup, "warmup = %lld is longer than the run of %lld steps; shorten it",
				  (long long)job->optimizer.warmup, (long long)job->job.steps);
	if (job->optimizer.decay_steps && job->optimizer.decay_steps < job->optimizer.warmup)
		return CONTRADICT(decay, "decay_steps = %lld lies before the end of warmup = %lld; raise decay_steps, or 0 for job.steps",
				  (long long)job->optimizer.decay_steps, (long long)job->optimizer.warmup);
	return 0;
}

static int check_eval(const struct job *job, const struct job_source *src, struct err *e)
{
	static const size_t keys[] = { AT(data, eval_every), AT(data, validation) };
	if (job->data.eval_every && job->data.validation <= 0)
		return CONTRADICT(keys, "eval_every = %lld asks for evaluations and validation = 0 holds no samples out; raise validation or set eval_every = 0",
				  (long long)job->data.eval_every);
	return 0;
}

static int check_launch(const struct job *job, const struct job_source *src, struct err *e)
{
	static const size_t local[] = { AT(launch, devices), AT(parallel, tp), AT(parallel, pp), AT(parallel, dp) };
	static const size_t slurm[] = { AT(slurm, gpus_per_node), AT(slurm, nodes), AT(parallel, tp), AT(parallel, pp), AT(parallel, dp) };
	int64_t gpus = job->slurm.nodes * job->slurm.gpus_per_node;
	if (job->launch.launcher == LAUNCHER_LOCAL && job->launch.devices && job->launch.devices < world(job))
		return CONTRADICT(local, "devices = %lld cannot hold the %lld ranks of tp × pp × dp; raise devices or lower a degree",
				  (long long)job->launch.devices, (long long)world(job));
	if (job->launch.launcher == LAUNCHER_SLURM && gpus && gpus < world(job))
		return CONTRADICT(slurm, "nodes × gpus_per_node = %lld cannot hold the %lld ranks of tp × pp × dp; ask for more or lower a degree",
				  (long long)gpus, (long long)world(job));
	return 0;
}

static int check_slurm_time(const struct job *job, const struct job_source *src, struct err *e)
{
	static const size_t keys[] = { AT(slurm, signal_before), AT(slurm, time) };
	int64_t limit = *job->slurm.time ? job_time_seconds(job->slurm.time) : 0;
	if (limit > 0 && job->slurm.signal_before >= limit)
		return CONTRADICT(keys, "signal_before = %lld s leaves nothing of the time limit of %lld s; lower it or raise time",
				  (long long)job->slurm.signal_before, (long long)limit);
	return 0;
}

int job_check(const struct job *job, const struct job_source *src, struct err *e)
{
	static int (*const checks[])(const struct job *, const struct job_source *, struct err *) = {
		check_heads, check_kv_heads, check_head_width, check_tp, check_pp, check_world, check_batch,
		check_rate, check_eval, check_launch, check_slurm_time,
	};
	for (int i = 0; i < (int)(sizeof checks / sizeof *checks); i++)
		if (checks[i](job, src, e))
			return -1;
	return 0;
}

int job_check_run(const struct job *job, const char *name, struct err *e)
{
	struct job_source src = { .name = name };
	if (!*job->data.path)
		return job_refuse(&src, job_key_at(AT(data, path)), e,
				  "is not given, and there is nothing to train on; set it to the PREFIX that `muster data pack FILES -o PREFIX` wrote");
	if (job->job.device == DEVICE_CUDA)
		return job_refuse(&src, job_key_at(AT(job, device)), e,
				  "cuda can be planned for, but the agents of this version compute on the CPU; set it to cpu");
	return 0;
}
