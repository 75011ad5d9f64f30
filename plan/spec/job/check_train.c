/* Contradictions in the training keys: batch, recomputation, learning rate, evaluation. */
#include "base/ranges.h"
#include "plan/spec/job/rules.h"
#include "plan/spec/speeds.h"

static int check_batch(const struct rule_job *j)
{
	static const size_t keys[] = { AT(batch, global), AT(batch, micro), AT(parallel, dp) };
	const struct job *job = j->job;
	int64_t dp = job->parallel.dp ? job->parallel.dp : job->parallel.ep,
		share = job->batch.micro * dp;
	if (speeds_devices(job)) /* unequal shares: batch.h */
		return 0;
	int64_t near = (job->batch.global + share / 2) / share * share;
	if (job->batch.global % share)
		return REFUSE(j, keys,
			      "global = %lld is not a multiple of micro × dp = %lld × %lld; use "
			      "global = %lld",
			      (long long)job->batch.global, (long long)job->batch.micro,
			      (long long)dp, (long long)(near ? near : share));
	return 0;
}

static int check_recompute(const struct rule_job *j)
{
	static const size_t keys[] = { AT(recompute, every), AT(model, layers) };
	const struct job *job = j->job;
	if (job->recompute.mode != RECOMPUTE_NONE && job->recompute.every > job->model.layers)
		return REFUSE(j, keys,
			      "every = %lld is more than layers = %lld; use every = %lld at most",
			      (long long)job->recompute.every, (long long)job->model.layers,
			      (long long)job->model.layers);
	return 0;
}

static int check_rate(const struct rule_job *j)
{
	static const size_t rates[] = { AT(optimizer, min_lr), AT(optimizer, lr) };
	static const size_t warmup[] = { AT(optimizer, warmup), AT(job, steps) };
	static const size_t decay[] = { AT(optimizer, decay_steps), AT(optimizer, warmup) };
	static const size_t cooldown[] = { AT(optimizer, cooldown), AT(optimizer, warmup),
					   AT(job, steps) };
	const struct job *job = j->job;
	long long steps = job->job.steps, warm = job->optimizer.warmup;
	if (job->optimizer.min_lr > job->optimizer.lr)
		return REFUSE(j, rates, "min_lr = %g is above lr = %g; lower min_lr",
			      job->optimizer.min_lr, job->optimizer.lr);
	if (warm > steps)
		return REFUSE(j, warmup,
			      "warmup = %lld is longer than the run of %lld steps; shorten it",
			      warm, steps);
	if (job->optimizer.decay_steps && job->optimizer.decay_steps < warm)
		return REFUSE(j, decay,
			      "decay_steps = %lld is before the end of warmup = %lld; raise "
			      "decay_steps, or 0 for job.steps",
			      (long long)job->optimizer.decay_steps, warm);
	if (job->optimizer.schedule == LR_WSD && job->optimizer.cooldown > steps - warm)
		return REFUSE(j, cooldown,
			      "cooldown = %lld is longer than what warmup = %lld leaves of the run "
			      "of %lld steps; use cooldown = %lld at most",
			      (long long)job->optimizer.cooldown, warm, steps, steps - warm);
	return 0;
}

static int check_eval(const struct rule_job *j)
{
	static const size_t keys[] = { AT(data, eval_every), AT(data, validation) };
	const struct job *job = j->job;
	if (job->data.eval_every && job->data.validation <= 0)
		return REFUSE(j, keys,
			      "eval_every = %lld requests evaluations and validation = 0 "
			      "holds out no samples; raise validation or set eval_every = 0",
			      (long long)job->data.eval_every);
	return 0;
}

static int check_skip(const struct rule_job *j)
{
	static const size_t keys[] = { AT(data, skip) };
	struct ranges r;
	struct err why = ERR_INIT;
	if (ranges_parse(j->job->data.skip, &r, &why))
		return REFUSE(j, keys, "%s; write positions and ranges such as 320-335,640",
			      why.text);
	if (r.n > RANGES_MAX / 2) /* rollbacks add others */
		return REFUSE(j, keys, "skip has %d ranges; write at most %d", r.n, RANGES_MAX / 2);
	return 0;
}

/* Rules about keys that a search may decide. The search obeys them. */
static rule *const searched_rules[] = { check_batch, check_recompute, NULL };
static rule *const other_rules[] = { check_rate, check_eval, check_skip, NULL };

static int check_rules(const struct rule_job *j, rule *const *rules)
{
	for (; *rules; rules++)
		if ((*rules)(j))
			return -1;
	return 0;
}

int job_rules_train(const struct rule_job *j)
{
	return (!j->job->open && check_rules(j, searched_rules)) || check_rules(j, other_rules) ? -1
												: 0;
}
