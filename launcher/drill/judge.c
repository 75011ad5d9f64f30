#include "launcher/drill/judge.h"

#include "base/clock.h"
#include "launcher/drill/injections.h"
#include "launcher/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { AUDIT_SECONDS = 300, SQUEUE_SECONDS = 30, STEP_SECONDS = 30, SHM_SECONDS = 5, SHOWN = 8 };

/* A changed layout may change the results by this much, because sums have another order. */
#define RELAID_TOLERANCE 1e-5

bool drill_list_has(const char *list, const char *name)
{
	size_t n = strlen(name);
	for (const char *at = list; n && *at; at += strcspn(at, ","), at += *at == ',')
		if (strcspn(at, ",") == n && !strncmp(at, name, n))
			return true;
	return false;
}

static int check_status(const struct injection *in, const struct drill_run *r, int first,
			struct err *e)
{
	if (first != in->status)
		return err_set(e, ERR_CORRUPT, "the exit status is %d instead of %d", first,
			       in->status);
	if (in->again && r->status != STATUS_DONE)
		return err_set(e, ERR_CORRUPT,
			       "started again, the run ended with exit status %d instead of 0",
			       r->status);
	if (in->one_launch && r->story.launches > 1)
		return err_set(e, ERR_CORRUPT,
			       "%d generations were started, although another start cannot help",
			       r->story.launches);
	return 0;
}

static int check_name(const struct injection *in, const struct drill_run *r, struct err *e)
{
	const char *fault = r->story.fault;
	if (*in->faults && !*fault)
		return err_set(e, ERR_CORRUPT,
			       "muster named no fault: it did not happen, or was not noticed");
	if (in->later && !drill_list_has(r->story.faults, in->later))
		return err_set(e, ERR_CORRUPT, "the fault %s was not named, only %s", in->later,
			       r->story.faults);
	if (!*in->faults || drill_list_has(in->faults, fault))
		return 0;
	return err_set(e, ERR_CORRUPT, "the fault was named %s instead of %s", fault, in->faults);
}

static int check_hang(const struct injection *in, const struct drill_run *r, struct err *e)
{
	const struct drill_story *s = &r->story;
	int last = r->d->reference.first.world - 1;
	if (!in->hang)
		return 0;
	if (!*s->hung_kind)
		return err_set(e, ERR_CORRUPT, "muster did not say which rank hung first");
	if (s->hung_rank != last || strcmp(s->hung_kind, in->hang))
		return err_set(e, ERR_CORRUPT,
			       "the hang of rank %d (%s) was named as one of rank %d (%s): %.600s",
			       last, in->hang, s->hung_rank, s->hung_kind, s->hung_text);
	return 0;
}

/* Reads what `muster data audit --json` printed. */
static int read_audit(const char *text, int64_t samples, struct err *e)
{
	json_t *o = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	const json_t *proven = json_object_get(o, "proven"), *n = json_object_get(o, "samples");
	json_t *finding = json_array_get(json_object_get(o, "findings"), 0);
	char *shown = finding ? json_dumps(finding, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
	int rc = 0;
	if (!json_is_true(proven))
		rc = err_set(e, ERR_CORRUPT, "the samples are not proven: %.800s",
			     shown ? shown : "the audit gave no answer");
	else if (json_integer_value(n) != samples)
		rc = err_set(e, ERR_CORRUPT, "%lld samples were used instead of %lld",
			     (long long)json_integer_value(n), (long long)samples);
	free(shown);
	json_decref(o);
	return rc;
}

static int check_samples(const struct drill_run *r, struct err *e)
{
	const struct drill_options *o = r->d->o;
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	char *argv[] = { (char *)(uintptr_t)o->agent, (char[]){ "data" },   (char[]){ "audit" },
			 (char *)(uintptr_t)r->path,  (char[]){ "--json" }, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	int rc = launcher_child_run(&c, AUDIT_SECONDS, &text, &why);
	if (rc && (why.code == ERR_TIMEOUT || why.code == ERR_NOTFOUND || why.code == ERR_NOMEM))
		err_set(e, why.code, "%s", why.text);
	else
		rc = read_audit(buf_str(&text), r->d->steps * o->job->batch.global, e);
	buf_fini(&text);
	return rc;
}

static int check_result(const struct drill_run *r, struct err *e)
{
	struct err why = ERR_INIT;
	const struct job *job = r->d->o->job;
	/* With a parameter server the losses depend on which replica is first; and with sums in any
	 * order, two runs differ more with each step. */
	if (job->parallel.sync == SYNC_SERVER ||
	    (job->job.device == DEVICE_CUDA && job->job.deterministic == DETERMINISTIC_ANY_ORDER))
		return check_samples(r, e);
	bool relaid = r->story.relaid ||
		      memcmp(&r->story.first, &r->d->reference.first, sizeof r->story.first) != 0;
	if (drill_story_compare(&r->d->reference, &r->story, relaid ? RELAID_TOLERANCE : 0, &why))
		return err_set(e, why.code, "%s", why.text);
	return check_samples(r, e);
}

int drill_steps_count(void)
{
	char jobs[64];
	char *argv[] = { (char[]){ "squeue" },      (char[]){ "--steps" },
			 (char[]){ "--noheader" },  jobs,
			 (char[]){ "--format=%j" }, NULL };
	struct buf text = BUF_INIT;
	struct err why = ERR_INIT;
	int n = 0;
	snprintf(jobs, sizeof jobs, "--jobs=%.40s", getenv("SLURM_JOB_ID"));
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	if (!launcher_child_run(&c, SQUEUE_SECONDS, &text, &why))
		for (const char *at = buf_str(&text); *at; at += strcspn(at, "\n"), at += *at != 0)
			n += !strncmp(at, "muster-", 7);
	buf_fini(&text);
	return n;
}

/* The controller learns of a step's end a moment after its processes have ended. */
static int check_steps_left(const struct drill_run *r, struct err *e)
{
	double end = clock_s() + STEP_SECONDS;
	int more;
	while ((more = drill_steps_count() - r->job_steps) > 0 && clock_s() < end)
		usleep(200000);
	return more > 0 ? err_set(e, ERR_CORRUPT,
				  "squeue --steps lists %d more job step%s than before", more,
				  more > 1 ? "s" : "")
			: 0;
}

static int check_left(const struct drill_run *r, struct err *e)
{
	pid_t left[SHOWN];
	int n = drill_run_left(r, left, SHOWN);
	if (n)
		return err_set(e, ERR_CORRUPT, "%s%d process%s left, such as %ld",
			       n == SHOWN ? "at least " : "", n, n > 1 ? "es are" : " is",
			       (long)left[0]);
	int shm;
	double end = clock_s() + SHM_SECONDS; /* another run may be starting or ending */
	while ((shm = drill_shm_names()) > r->shm && clock_s() < end)
		usleep(200000);
	if (shm > r->shm)
		return err_set(e, ERR_CORRUPT, "/dev/shm has %d more name%s than before",
			       shm - r->shm, shm - r->shm > 1 ? "s" : "");
	return r->d->slurm && !r->injection->keeps_step ? check_steps_left(r, e) : 0;
}

int drill_judge(const struct drill_run *r, int first_status, struct err *e)
{
	const struct injection *in = r->injection;
	return check_status(in, r, first_status, e) || (in->result && check_result(r, e)) ||
			       check_name(in, r, e) || check_hang(in, r, e) || check_left(r, e) ||
			       (in->check && in->check(r, e))
		       ? -1
		       : 0;
}
