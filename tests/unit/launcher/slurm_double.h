/* slurm_double — a supervisor of the harness in a job whose Slurm is a double. */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_SLURM_DOUBLE_H
#define MUSTER_TESTS_UNIT_LAUNCHER_SLURM_DOUBLE_H

#include "tests/unit/launcher/harness.h"

/* The double of Slurm. */
static struct {
	int queries, requeues;
	bool broken, refuse;
	void (*done)(void *arg, const struct stop_answer *a); /* of the query that is under way */
	void *arg;
	/* the chain and the comment */
	int queued, again, cancelled, comments;
	bool refuse_job, ended; /* the job cannot be requeued any more */
	bool successor_cancelled;
	void (*on_queued)(void *arg, const char *id, const char *why);
	void *queue_arg;
	char comment[256];
} slurm;

struct stop_query {
	int unused;
};
struct queueing {
	int unused;
};
static struct stop_query one_query;
static struct queueing one_queueing;

static int begin_query(uv_loop_t *loop, const struct job *job,
		       void (*done)(void *arg, const struct stop_answer *a), void *arg,
		       struct stop_query **out, struct err *e)
{
	(void)loop;
	assert_ptr_equal(job, &h.first.job);
	assert_null(slurm.done); /* one at a time */
	if (slurm.broken)
		return err_set(e, ERR_NOMEM, "cannot start another process");
	slurm.queries++;
	slurm.done = done;
	slurm.arg = arg;
	*out = &one_query;
	return 0;
}

static void end_query(struct stop_query *q)
{
	assert_ptr_equal(q, &one_query);
	slurm.done = NULL;
}

static int requeue(const char *exclude, int min_nodes, int max_nodes, struct err *e)
{
	assert_string_equal(exclude, "");
	assert_int_equal(min_nodes + max_nodes, 0);
	slurm.requeues++;
	if (slurm.ended)
		return err_set(e, ERR_ABORTED, "job 41 is being ended already (PREEMPTED)");
	return slurm.refuse ? err_set(e, ERR_UNSUPPORTED, "scontrol failed (1): Access denied") : 0;
}

static void answer(enum stop_cause cause, double left)
{
	void (*done)(void *arg, const struct stop_answer *a) = slurm.done;
	assert_non_null(done);
	slurm.done = NULL;
	done(slurm.arg,
	     &(struct stop_answer){
		     .answered = true, .cause = cause, .left = left, .can_requeue = true });
	deliver_all();
}

static const char *own_job(void)
{
	return "41";
}

static int queue_next(uv_loop_t *loop, const char *script,
		      void (*done)(void *arg, const char *id, const char *why), void *arg,
		      struct queueing **out, struct err *e)
{
	(void)loop;
	(void)e;
	assert_non_null(strstr(script, "/submit-3.sbatch"));
	slurm.queued++;
	slurm.on_queued = done;
	slurm.queue_arg = arg;
	*out = &one_queueing;
	return 0;
}

static void end_queueing(struct queueing *q)
{
	assert_ptr_equal(q, &one_queueing);
	slurm.on_queued = NULL;
}

static int cancel(const char *const *ids, int n, struct err *e)
{
	(void)e;
	assert_string_equal(ids[0], "42");
	slurm.cancelled += n;
	return slurm.refuse ? err_set(e, ERR_IO, "scancel failed (1): no controller") : 0;
}

static int comment(uv_loop_t *loop, const char *text,
		   void (*ended)(void *arg, int status, const char *output), void *arg,
		   struct child **out, struct err *e)
{
	(void)loop;
	(void)e;
	slurm.comments++;
	snprintf(slurm.comment, sizeof slurm.comment, "%s", text);
	*out = (struct child *)&slurm;
	ended(arg, 0, "");
	return 0;
}

static inline void answer_nothing(void)
{
	void (*done)(void *arg, const struct stop_answer *a) = slurm.done;
	assert_non_null(done);
	slurm.done = NULL;
	done(slurm.arg, &(struct stop_answer){ .left = -1, .why = "no answer" });
	deliver_all();
}

static int submit_again(const char *script, char id[LAUNCH_JOB_ID], struct err *e)
{
	assert_non_null(strstr(script, "/submit-3.sbatch"));
	slurm.again++;
	snprintf(id, LAUNCH_JOB_ID, "44");
	return slurm.refuse_job ? err_set(e, ERR_UNSUPPORTED, "sbatch failed (1): QOSMaxJobs") : 0;
}

static bool job_waits(const char *id)
{
	assert_string_equal(id, "42");
	return !slurm.successor_cancelled;
}

static int setup_slurm(void **state)
{
	static struct launch_ops ops;
	memset(&slurm, 0, sizeof slurm);
	if (setup(state))
		return -1;
	supervise_close(h.supervisor);
	ops = fake_ops;
	ops.stop_query = begin_query;
	ops.stop_query_end = end_query;
	ops.requeue = requeue;
	ops.own_job = own_job;
	ops.queue_next = queue_next;
	ops.queue_next_end = end_queueing;
	ops.submit_again = submit_again;
	ops.job_waits = job_waits;
	ops.cancel = cancel;
	ops.comment = comment;
	h.first.job.slurm.requeue = true;
	h.first.job.slurm.signal_before = 60;
	return open_supervisor(&ops);
}

/* Trains until step 4. The first query is about the time limit; `left` as in struct stop_answer. */
static void start_training(double left)
{
	supervise_start(h.supervisor);
	train_all();
	pass_time(0.1);
	answer(STOP_BY_PERSON, left);
	send_step(&h.peers[0], MSG_METRICS, 4);
}

/* The agents write their last checkpoint and leave. */
static void finish_all(void)
{
	send_step(&h.peers[0], MSG_CKPT, 5);
	for (int i = 0; i < WORLD; i++)
		send_step(&h.peers[i], MSG_FINISHED, 5);
	for (int i = 0; i < WORLD; i++)
		end_process(i, 0);
}

#endif
