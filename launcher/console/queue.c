/* queue: the job of a run in Slurm's queue. */
#include "launcher/console/look.h"
#include "launcher/rundir/submissions.h"
#include "launcher/slurm/controller.h"
#include "plan/spec/job/job.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool console_queue_waits(const struct queue_job *j)
{
	static const char *const words[] = { "PENDING",     "REQUEUED",     "REQUEUE_HOLD",
					     "REQUEUE_FED", "SPECIAL_EXIT", "RESV_DEL_HOLD" };
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (!strcmp(j->state, words[i]))
			return true;
	return false;
}

bool console_queue_runs(const struct queue_job *j)
{
	static const char *const words[] = { "RUNNING", "CONFIGURING", "SUSPENDED", "COMPLETING",
					     "STOPPED", "SIGNALING",   "RESIZING",  "STAGE_OUT" };
	for (size_t i = 0; i < sizeof words / sizeof *words; i++)
		if (!strcmp(j->state, words[i]))
			return true;
	return false;
}

static bool is_job_id(const char *id)
{
	size_t len = strlen(id);
	return len > 0 && len < LAUNCH_JOB_ID && strspn(id, "0123456789") == len;
}

double console_queue_submitted(const char *run)
{
	struct rundir_submissions s;
	if (rundir_submissions_read(run, &s, NULL))
		return 0;
	double time = s.n ? s.of[s.n - 1].time : 0;
	rundir_submissions_free(&s);
	return time;
}

/* The id of the last job, and in `job` how Slurm is reached for it. */
static int read_submission(const char *run, char id[LAUNCH_JOB_ID], struct job *job, struct err *e)
{
	char file[RUN_PATH];
	struct rundir_submissions s;
	struct err why = ERR_INIT;
	if (rundir_submissions_read(run, &s, e))
		return -1;
	int rc = 0;
	if (!s.n || !is_job_id(s.of[s.n - 1].job)) {
		rc = err_set(e, ERR_NOTFOUND, "%.300s: no job was submitted for this run", run);
	} else {
		snprintf(id, LAUNCH_JOB_ID, "%s", s.of[s.n - 1].job);
		run_path_submission(file, run, (uint32_t)s.of[s.n - 1].submission);
		/* Without its file Slurm's commands are left. */
		if (job_load(file, NULL, 0, job, &why))
			rc = job_words(NULL, 0, job, e);
	}
	rundir_submissions_free(&s);
	return rc;
}

static int ask(const char *run, const char *id, struct job *job, struct queue_job *out,
	       struct err *e)
{
	char last[LAUNCH_JOB_ID];
	struct slurm_controller *c;
	struct err why = ERR_INIT;
	if (read_submission(run, last, job, &why)) {
		if (!id)
			return err_set(e, why.code, "%s", why.text);
		if (job_words(NULL, 0, job, e))
			return -1;
	}
	id = id ? id : last;
	if (!is_job_id(id))
		return err_set(e, ERR_NOTFOUND, "\"%.40s\" is not the id of a job", id);
	if (slurm_controller_open(job, &c, e))
		return -1;
	int rc = slurm_controller_show(c, id, out, e);
	slurm_controller_close(c);
	return rc;
}

/* Slurm is asked one question at a time. */
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;

int console_queue_ask(const char *run, const char *id, struct queue_job *out, struct err *e)
{
	struct job *job = calloc(1, sizeof *job); /* too large for a stack */
	pthread_mutex_lock(&asking);
	int rc = job ? ask(run, id, job, out, e) : err_set(e, ERR_NOMEM, "no memory to ask Slurm");
	pthread_mutex_unlock(&asking);
	free(job);
	return rc;
}
