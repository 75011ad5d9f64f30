#include "launcher/slurm/stop_cause.h"

#include "launcher/child.h"
#include "launcher/slurm/limit.h"
#include "launcher/slurm/slurm.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

enum { ANSWER_MS = 5000, ATTEMPTS = 3, AT_ONCE_S = 5 };

struct stop_query {
	uv_loop_t *loop;
	struct slurm_limit limit;
	int attempts;
	struct child *scontrol;
	int64_t signal_before;
	void (*done)(void *arg, const struct stop_answer *a);
	void *arg;
};

enum stop_cause slurm_stop_cause_of(const struct job_record *r, time_t now, int restarts,
				    int64_t signal_before)
{
	bool running = slurm_job_state_is_running(r->state);
	if (running && r->preempted)
		return STOP_PREEMPTED;
	if (!strcmp(r->reason, "TimeLimit"))
		return STOP_TIME_LIMIT;
	if (running && r->ends && r->ends - now <= signal_before + SLURM_LIMIT_SLACK_S)
		return STOP_TIME_LIMIT;
	if (running)
		return STOP_BY_PERSON;
	if (r->restarts > restarts)
		return STOP_REQUEUED;
	/* An earlier start of the job may have been preempted. */
	bool preempted_now = r->preempted && r->ends && r->ends - r->preempted <= AT_ONCE_S;
	return preempted_now || !strcmp(r->state, "PREEMPTED") ? STOP_PREEMPTED : STOP_CANCELLED;
}

void slurm_stop_query_end(struct stop_query *q)
{
	if (q->scontrol) {
		launcher_child_signal(q->scontrol, SIGKILL);
		launcher_child_forget(q->scontrol);
	}
	q->scontrol = NULL;
	slurm_limit_close(&q->limit, free, q);
}

static void report(struct stop_query *q, const struct stop_answer *a)
{
	q->done(q->arg, a);
	slurm_stop_query_end(q);
}

static void on_late(void *arg)
{
	struct stop_answer a = { .left = -1 };
	snprintf(a.why, sizeof a.why, "scontrol: no answer from slurmctld within %d s",
		 ANSWER_MS / 1000);
	report(arg, &a);
}

static int own_restarts(void)
{
	const char *count = getenv("SLURM_RESTART_COUNT");
	return count ? atoi(count) : 0;
}

static int start_scontrol(struct stop_query *q, struct err *e);

static void on_job(void *arg, int status, const char *output)
{
	struct stop_query *q = arg;
	struct stop_answer a = { .left = -1 };
	struct job_record r;
	struct err e = ERR_INIT;
	time_t now = time(NULL);
	q->scontrol = NULL;
	/* Slurm sends its SIGTERM to all processes of the batch script's step. */
	if (WIFSIGNALED(status) && WTERMSIG(status) == SIGTERM && q->attempts < ATTEMPTS &&
	    !start_scontrol(q, &e))
		return;
	if (launcher_child_result("scontrol show job", status, output, &e) ||
	    slurm_job_record_parse(output, getenv("SLURM_JOB_ID"), &r, &e)) {
		snprintf(a.why, sizeof a.why, "%.190s", e.text);
		report(q, &a);
		return;
	}
	a.answered = true;
	a.cause = slurm_stop_cause_of(&r, now, own_restarts(), q->signal_before);
	a.can_requeue = r.can_requeue;
	a.restarts = r.restarts;
	if (r.ends)
		a.left = difftime(r.ends, now);
	slurm_job_record_free(&r);
	report(q, &a);
}

static int start_scontrol(struct stop_query *q, struct err *e)
{
	/* Users may have chosen another format of times. */
	char *argv[] = { "env", "SLURM_TIME_FORMAT=standard", "scontrol", "--oneliner", "show",
			 "job", getenv("SLURM_JOB_ID"),       NULL };
	const struct child_command c = { .argv = argv, .out = -1, .absent = SLURM_ABSENT };
	q->attempts++;
	if (!launcher_child_watch(q->loop, &c, on_job, q, &q->scontrol, e))
		return 0;
	q->scontrol = NULL;
	return -1;
}

int slurm_stop_query(uv_loop_t *loop, const struct job *job,
		     void (*done)(void *arg, const struct stop_answer *a), void *arg,
		     struct stop_query **out, struct err *e)
{
	const char *id = getenv("SLURM_JOB_ID");
	struct stop_query *q = id ? calloc(1, sizeof *q) : NULL;
	if (!q)
		return id ? err_set(e, ERR_NOMEM, "no memory to ask Slurm why the job stops")
			  : err_set(e, ERR_NOTFOUND, "SLURM_JOB_ID is not set");
	*q = (struct stop_query){
		.loop = loop, .signal_before = job->slurm.signal_before, .done = done, .arg = arg
	};
	if (start_scontrol(q, e)) {
		free(q);
		return -1;
	}
	slurm_limit_init(&q->limit, loop);
	slurm_limit_start(&q->limit, ANSWER_MS, on_late, q);
	*out = q;
	return 0;
}
