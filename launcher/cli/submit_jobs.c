#include "launcher/cli/submit_jobs.h"

#include "base/buf.h"
#include "launcher/cli/command.h"
#include "launcher/rundir/submissions.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int command_submit_chain(const char *words, bool chain, const char *dependency, int *n,
			 struct err *e)
{
	char *end = NULL;
	long jobs = words ? strtol(words, &end, 10) : 1;
	if (words && (!*words || *end || jobs < 1 || jobs > SUBMIT_CHAIN_MAX))
		return err_set(e, ERR_USAGE,
			       "--chain %.40s: is not a number of jobs; use a number from 1 to %d",
			       words, SUBMIT_CHAIN_MAX);
	if (words && chain)
		return err_set(e, ERR_USAGE,
			       "--chain queues %ld jobs now, and slurm.chain = yes lets each job "
			       "queue the next one; use one of them",
			       jobs);
	if ((jobs > 1 || chain) && strchr(dependency, '?'))
		return err_set(e, ERR_USAGE,
			       "[slurm] dependency = %.200s: alternatives (?) cannot be combined "
			       "with a chain, whose jobs wait for one another; separate the "
			       "dependencies by commas",
			       dependency);
	*n = (int)jobs;
	return 0;
}

/* Writes the dependency of a job; NULL: the script's. Each later job waits for the first one, and with
 * it for the dependency of the first one. */
static const char *choose_dependency(const struct submit_jobs *s, int job, struct buf *out)
{
	if (!s->chained)
		return NULL;
	if (!job && *s->dependency)
		buf_printf(out, "%s,", s->dependency);
	buf_puts(out, "singleton");
	return buf_str(out);
}

static int queue_job(const struct submit_jobs *s, int job, char id[LAUNCH_JOB_ID], struct err *e)
{
	struct err lost = ERR_INIT;
	struct buf dependency = BUF_INIT;
	struct buf notes = BUF_INIT;
	int rc = slurm_controller_submit(s->controller, s->script,
					 choose_dependency(s, job, &dependency), id, &notes, e);
	buf_fini(&dependency);
	if (!rc && !job) /* the same for each job */
		command_lines("warning: ", buf_str(&notes));
	buf_fini(&notes);
	if (rc)
		return -1;
	printf("%s\n", id);
	const struct rundir_submission line = { .submission = (int)s->number, .job = id };
	if (rundir_submissions_append(s->run_dir, &line, &lost))
		fprintf(stderr,
			"muster: warning: job %s is queued, but muster cannot record it as a job "
			"of this run: %s\n",
			id, lost.text);
	return 0;
}

int command_submit_jobs(const struct submit_jobs *s, char first[LAUNCH_JOB_ID], int *queued,
			struct err *e)
{
	char later[LAUNCH_JOB_ID];
	struct err why = ERR_INIT;
	for (*queued = 0; *queued < s->n; ++*queued)
		if (queue_job(s, *queued, *queued ? later : first, &why))
			break;
	if (*queued == s->n)
		return 0;
	if (!*queued)
		return err_set(e, why.code, "%s", why.text);
	return err_set(
		e, why.code,
		"only %d of the %d jobs of the chain are queued, and stay so: %.800s; submit "
		"others later, or cancel these with scancel",
		*queued, s->n, why.text);
}
