#include "launcher/cli/queue_target.h"

#include "base/run_paths.h"
#include "launcher/rundir/submissions.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool has_submissions(const char *run)
{
	char path[RUN_PATH];
	run_path(path, run, RUN_SUBMISSIONS);
	return !access(path, F_OK);
}

static bool is_folder(const char *path)
{
	struct stat st;
	return !stat(path, &st) && S_ISDIR(st.st_mode);
}

/* The run folder that the word names. */
static int find_run(const char *word, const char *const *words, int n_words, struct job *job,
		    char out[PATH_MAX], struct err *e)
{
	size_t len = strlen(word);
	int n;
	if (is_folder(word)) {
		n = snprintf(out, PATH_MAX, "%s", word);
	} else if (len > 4 && !strcmp(word + len - 4, ".ini")) {
		if (job_load(word, words, n_words, job, e))
			return -1;
		n = snprintf(out, PATH_MAX, "%s/%s", job->job.run_dir, job->job.name);
	} else {
		n = snprintf(out, PATH_MAX, "runs/%s", word);
	}
	if (n >= PATH_MAX || !has_submissions(out))
		return err_set(e, ERR_NOTFOUND,
			       "%.200s: no job was submitted for this run (%.200s/" RUN_SUBMISSIONS
			       " is missing); give a run folder, the name of a run in runs/, a job "
			       "file, or "
			       "the id of a job",
			       word, out);
	return 0;
}

static int take_ids(const struct rundir_submissions *s, const char *run, struct queue_target *t,
		    struct err *e)
{
	t->ids = calloc((size_t)s->n + 1, sizeof *t->ids);
	if (!t->ids)
		return err_set(e, ERR_NOMEM, "no memory for the jobs of the run");
	for (int i = 0; i < s->n; i++) {
		const char *id = s->of[i].job;
		size_t len = strlen(id);
		if (len > 0 && len < LAUNCH_JOB_ID && strspn(id, "0123456789") == len &&
		    rundir_submissions_find(s, id) == i)
			strcpy(t->ids[t->n++], id);
	}
	if (!t->n)
		return err_set(e, ERR_NOTFOUND,
			       "%.200s/" RUN_SUBMISSIONS
			       ": contains no job; submit one with muster submit",
			       run);
	return 0;
}

/* The job of a run says where the token is sent to, and which file holds it. That of another user's run
 * must not. */
static int distrust_foreign(const char *run, struct job *job, struct err *e)
{
	struct stat st;
	if (stat(run, &st))
		return err_errno(e, ERR_IO, "%.300s: cannot read the folder's owner", run);
	if (st.st_uid == geteuid() && !(st.st_mode & 022))
		return 0;
	if (*job->slurm.rest && !getenv("MUSTER_SLURM_REST"))
		return err_set(e, ERR_AUTH,
			       "%.300s: another user owns this run folder, or may write to it, so "
			       "muster sends no token to the server that it names; set "
			       "MUSTER_SLURM_REST, or give the id of the job",
			       run);
	*job->slurm.rest_token_file = *job->slurm.rest_ca_file = '\0';
	return 0;
}

/* Reads the jobs of a run, and the job file of its last submission. */
static int open_run(const char *word, const char *const *words, int n_words, struct job *job,
		    struct queue_target *t, struct err *e)
{
	char run[PATH_MAX], file[RUN_PATH];
	struct rundir_submissions s;
	if (find_run(word, words, n_words, job, run, e) || rundir_submissions_read(run, &s, e))
		return -1;
	int rc = take_ids(&s, run, t, e);
	if (!rc) {
		run_path_submission(file, run, (uint32_t)s.of[s.n - 1].submission);
		rc = job_load(file, words, n_words, job, e) || distrust_foreign(run, job, e) ? -1
											     : 0;
	}
	rundir_submissions_free(&s);
	t->is_run = true;
	return rc;
}

static int open_id(const char *word, const char *const *words, int n_words, struct job *job,
		   struct queue_target *t, struct err *e)
{
	t->ids = calloc(1, sizeof *t->ids);
	if (!t->ids)
		return err_set(e, ERR_NOMEM, "no memory for the id of a job");
	snprintf(t->ids[0], sizeof t->ids[0], "%s", word);
	t->n = 1;
	return job_words(words, n_words, job, e);
}

int command_queue_target_open(const char *word, const char *const *words, int n_words,
			      struct queue_target *out, struct err *e)
{
	static struct job job; /* too large for a small stack */
	size_t len = strlen(word);
	struct queue_target t = { .n = 0 };
	bool is_id = len > 0 && len < LAUNCH_JOB_ID && strspn(word, "0123456789") == len &&
		     !is_folder(word);
	int rc = is_id ? open_id(word, words, n_words, &job, &t, e)
		       : open_run(word, words, n_words, &job, &t, e);
	if (rc || slurm_controller_open(&job, &t.controller, e)) {
		command_queue_target_close(&t);
		return -1;
	}
	*out = t;
	return 0;
}

void command_queue_target_close(struct queue_target *t)
{
	slurm_controller_close(t->controller);
	free(t->ids);
	*t = (struct queue_target){ .n = 0 };
}
