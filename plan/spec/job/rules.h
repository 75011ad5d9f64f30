/*
 * job_rules — the rules about contradictions between keys whose values are valid, by theme, and
 * what the rules share.
 *
 * For plan/spec/job/check*.c and write.c only. A rule is a function of struct rule_job. It returns 0, or -1
 * from REFUSE with the two values, the contradiction and the nearest value that works. The error
 * names the key that was given last as the one to look at. To add a rule: write a function and add
 * it to the table of its file.
 */
#ifndef MUSTER_PLAN_SPEC_JOB_RULES_H
#define MUSTER_PLAN_SPEC_JOB_RULES_H

#include "plan/spec/job/keys.h"
#include "plan/spec/model/model.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct rule_job {
	const struct job *job;
	struct model_shape shape;
	const struct job_source *src;
	struct err *err;
};

typedef int rule(const struct rule_job *j);

#define AT(section, key) offsetof(struct job, section.key)

/* keys: an array of AT(…) of the keys involved; then the text as for printf. */
#define REFUSE(j, keys, ...) \
	job_rule_refuse(j, keys, (int)(sizeof keys / sizeof *keys), __VA_ARGS__)
__attribute__((format(printf, 4, 5))) int job_rule_refuse(const struct rule_job *j,
							  const size_t *offsets, int n,
							  const char *fmt, ...);

/* Whether the key has another value than its default. */
bool job_rule_changed(const struct job *job, size_t offset);

/* check_program.c: whether the key has no effect because the job runs a program of the user, or because
 * it does not. */
bool job_rule_foreign(const struct job *job, const struct job_key *key);

/* Refuses a pattern of node_path.h that has a % other than that of %N. */
int job_rule_pattern(const struct rule_job *j, size_t offset, const char *pattern);

/* The value from `least` to `most` that is nearest to `from` (the lower one of two) and for which
 * `good` holds; `least` if there is none. */
int64_t job_rule_nearest(const struct rule_job *j, int64_t from, int64_t least, int64_t most,
			 bool (*good)(const struct rule_job *j, int64_t value));

/* Each checks the rules of its table in order. */
int job_rules_model(const struct rule_job *j); /* check_model.c: sizes, families */
/* check_parallel.c: degrees, schedules, ZeRO, the devices' speeds */
int job_rules_parallel(const struct rule_job *j);
/* check_train.c: batch, precision, optimizer, data */
int job_rules_train(const struct rule_job *j);
int job_rules_program(const struct rule_job *j); /* check_program.c: a program of the user */
/* check_parallel.c: those of the degrees that a program of the user has, too */
int job_rules_degrees(const struct rule_job *j);
int job_rules_checkpoint(const struct rule_job *j); /* check_checkpoint.c: the tiers */
int job_rules_slurm(const struct rule_job *j);      /* check_slurm.c: what sbatch takes */
int job_rules_metrics(const struct rule_job *j);    /* check_metrics.c: exports */
int job_rules_notify(const struct rule_job *j);     /* check_notify.c: addresses, lists of words */
int job_rules_log(const struct rule_job *j);        /* check_log.c: where the logs are */
/* check_idle.c: keys that have no effect with the other values */
int job_rules_idle(const struct rule_job *j);

#endif
