/* A job with a program of the user (job.program): what it cannot combine with, and what has no effect
 * without it. The program decides by itself what the built-in training is told by the job. */
#include "base/words.h"
#include "plan/spec/job/retry_on.h"
#include "plan/spec/job/rules.h"

#include <stdlib.h>
#include <string.h>

/* Sections and single keys ("section.key") of the built-in training. */
static const char *const of_training[] = {
	"model",
	"recompute",
	"offload",
	"precision",
	"batch",
	"optimizer",
	"data",
	"checkpoint",
	"plan",
	"trace",
	"job.steps",
	"job.seed",
	"job.deterministic",
	"job.graphs",
	"parallel.auto",
	"parallel.chunks",
	"parallel.stages",
	"parallel.schedule",
	"parallel.sp",
	"parallel.overlap",
	"parallel.zero",
	"parallel.zero_shard",
	"parallel.sync",
	"parallel.staleness",
	"launch.speeds",
	"network.backend",
	"network.sockets",
	"network.integrity",
	"network.timeout",
	"health.compare_every",
	"health.spike_z",
	"health.spike_window",
	"health.max_skips",
	"health.skip_before",
	"health.slow_policy",
	"warn.memory",
	"warn.predicted",
	"warn.slow",
	"warn.data",
};

static bool belongs_to_training(const struct job_key *key)
{
	size_t n = strlen(key->section);
	for (size_t i = 0; i < sizeof of_training / sizeof *of_training; i++) {
		const char *at = of_training[i];
		if (!strncmp(at, key->section, n) &&
		    (!at[n] || (at[n] == '.' && !strcmp(at + n + 1, key->name))))
			return true;
	}
	return false;
}

static bool belongs_to_program(const struct job_key *key)
{
	return !strcmp(key->section, "program") || key->offset == AT(restart, retry_on);
}

/* Refuses the first key of these that has another value than its default. */
static int refuse_keys(const struct rule_job *j, bool (*belongs)(const struct job_key *key),
		       const char *why)
{
	for (int i = 0; i < job_n_keys; i++) {
		if (!belongs(&job_keys[i]) || !job_rule_changed(j->job, job_keys[i].offset))
			continue;
		const size_t keys[] = { job_keys[i].offset };
		struct buf value = BUF_INIT;
		job_value_write(&job_keys[i], j->job, &value);
		int rc = REFUSE(j, keys, "%s = %s has no effect %s", job_keys[i].name,
				buf_str(&value), why);
		buf_fini(&value);
		return rc;
	}
	return 0;
}

/* The words are read again when a task starts; a person hears of a missing quote now. */
static int check_words(const struct rule_job *j)
{
	static const size_t keys[] = { AT(job, program) };
	struct err e = ERR_INIT;
	char **words = NULL;
	int rc = words_parse(j->job->job.program, &words, &e) ? REFUSE(j, keys, "%s", e.text) : 0;
	free(words);
	return rc;
}

static int check_bad_numbers(const struct rule_job *j)
{
	static const size_t keys[] = { AT(health, bad_numbers), AT(job, program) };
	if (j->job->health.bad_numbers == BAD_NUMBERS_SKIP)
		return REFUSE(j, keys,
			      "bad_numbers = skip skips samples, and the program reads them by "
			      "itself; use retry or stop");
	return 0;
}

/* Slurm sends its signal so long before the time limit, and kills at the limit. */
static int check_stop_grace(const struct rule_job *j)
{
	static const size_t keys[] = { AT(program, stop_grace), AT(slurm, signal_before) };
	const struct job *job = j->job;
	double grace = job->program.stop_grace, before = (double)job->slurm.signal_before;
	if (*job->slurm.time && before > 0 && grace > before)
		return REFUSE(j, keys,
			      "stop_grace = %g s is longer than signal_before = %g s, so Slurm "
			      "would kill tasks that still save; raise slurm.signal_before to the "
			      "double, or lower stop_grace",
			      grace, before);
	return 0;
}

static int check_retry_on(const struct rule_job *j)
{
	static const size_t keys[] = { AT(restart, retry_on) };
	struct buf why = BUF_INIT;
	int rc = job_retry_on_check(j->job->restart.retry_on, &why);
	if (rc)
		REFUSE(j, keys, "%s", buf_str(&why));
	buf_fini(&why);
	return rc;
}

bool job_has_program(const struct job *job)
{
	return *job->job.program != '\0';
}

int64_t job_steps(const struct job *job)
{
	return job_has_program(job) ? 0 : job->job.steps;
}

bool job_rule_foreign(const struct job *job, const struct job_key *key)
{
	return job_has_program(job) ? belongs_to_training(key)
				    : belongs_to_program(key) || key->offset == AT(job, program);
}

int job_rules_program(const struct rule_job *j)
{
	if (!job_has_program(j->job))
		return refuse_keys(j, belongs_to_program,
				   "without a program; set job.program, or leave it out");
	return refuse_keys(j, belongs_to_training,
			   "with job.program, because the program decides that by itself; leave it "
			   "out") ||
			       check_words(j) || check_bad_numbers(j) || check_stop_grace(j) ||
			       check_retry_on(j)
		       ? -1
		       : 0;
}
