/* Contradictions between keys that are each valid. The rules are in check_*.c, one file for each
 * subject. */
#include "plan/spec/job/rules.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* Returns the involved key to cite: the one from the command line, otherwise the last one in the
 * file. */
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

int job_rule_refuse(const struct rule_job *j, const size_t *offsets, int n, const char *fmt, ...)
{
	struct buf why = BUF_INIT;
	va_list ap;
	va_start(ap, fmt);
	buf_vprintf(&why, fmt, ap);
	va_end(ap);
	job_refuse(j->src, cited(j->src, offsets, n), j->err, buf_str(&why));
	buf_fini(&why);
	return -1;
}

bool job_rule_changed(const struct job *job, size_t offset)
{
	const struct job_key *key = &job_keys[job_key_at(offset)];
	struct buf value = BUF_INIT, def = BUF_INIT;
	struct job *defaults = calloc(1, sizeof *defaults); /* too large for a small stack */
	if (!defaults)
		return false;
	job_value_read(key, key->def, defaults, &def);
	job_value_write(key, defaults, &def);
	job_value_write(key, job, &value);
	bool changed = strcmp(buf_str(&value), buf_str(&def));
	buf_fini(&def);
	buf_fini(&value);
	free(defaults);
	return changed;
}

int job_rule_pattern(const struct rule_job *j, size_t offset, const char *pattern)
{
	const size_t keys[] = { offset };
	const struct job_key *key = &job_keys[job_key_at(offset)];
	for (const char *p = strchr(pattern, '%'); p; p = strchr(p + 2, '%'))
		if (p[1] != 'N')
			return REFUSE(j, keys,
				      "%s = %s has a %% that is not %%N, the name of the node; "
				      "remove it",
				      key->name, pattern);
	return 0;
}

int64_t job_rule_nearest(const struct rule_job *j, int64_t from, int64_t least, int64_t most,
			 bool (*good)(const struct rule_job *j, int64_t value))
{
	for (int64_t d = 0; from - d >= least || from + d <= most; d++) {
		if (from - d >= least && from - d <= most && good(j, from - d))
			return from - d;
		if (from + d >= least && from + d <= most && good(j, from + d))
			return from + d;
	}
	return least;
}

/* The replicas of a parameter server are whole, so there is nothing to choose. */
static int rule_open(const struct rule_job *j)
{
	static const size_t keys[] = { AT(parallel, sync), AT(parallel, automatic) };
	static const size_t program[] = { AT(job, program), AT(parallel, automatic) };
	if (job_has_program(j->job))
		return REFUSE(j, program,
			      "muster cannot choose the degrees of a program of your own; give "
			      "them in [parallel], or leave them out");
	if (j->job->parallel.sync == SYNC_SERVER)
		return REFUSE(j, keys,
			      "sync = server leaves nothing to decide automatically; use auto = "
			      "no, or sync = all-reduce");
	return 0;
}

/* The rules of the built-in training. A search that closes open keys obeys those about layouts, and
 * checks the job again. */
static int check_training(const struct rule_job *j)
{
	return job_rules_model(j) || (!j->job->open && job_rules_parallel(j)) ||
			       job_rules_train(j) || job_rules_checkpoint(j) || job_rules_idle(j)
		       ? -1
		       : 0;
}

int job_check(const struct job *job, const struct job_source *src, struct err *e)
{
	struct rule_job j = { .job = job, .src = src, .err = e };
	shape_of_job(job, &j.shape);
	if (job->open && rule_open(&j))
		return -1;
	if (!job_has_program(job) && check_training(&j))
		return -1;
	if (job_has_program(job) && job_rules_degrees(&j))
		return -1;
	return job_rules_program(&j) || job_rules_slurm(&j) || job_rules_metrics(&j) ||
			       job_rules_notify(&j) || job_rules_log(&j)
		       ? -1
		       : 0;
}

int job_check_run(const struct job *job, const char *name, struct err *e)
{
	struct job_source src = { .name = name };
	if (!*job->data.path && !job_has_program(job))
		return job_refuse(&src, job_key_at(AT(data, path)), e,
				  "is not given, and there is nothing to train on; set it to the "
				  "PREFIX that `muster data pack FILES -o PREFIX` wrote, or set "
				  "job.program to run a program of your own");
	return 0;
}
