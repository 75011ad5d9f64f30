/*
 * elastic — a run of two nodes whose manager and whose checks of nodes are doubles. It stands on
 * the supervisor of harness.h.
 */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_ELASTIC_H
#define MUSTER_TESTS_UNIT_LAUNCHER_ELASTIC_H

#include "launcher/child.h"
#include "tests/unit/launcher/harness.h"

static struct {
	struct cluster machines; /* two nodes with a GPU each */
	struct deployment *first;
	struct job job;
	/* the manager of the nodes */
	enum node_state nodes[2];
	int surveys, free, requeues;
	bool silent, partly, broken, refuse;
	/* what a check finds on node 1 and on node 0; NULL: nothing is printed; "!…": the whole
	 * line */
	const char *needs, *check, *check0;
	char go[300], answer[600];
	int checks, ended; /* checks that were started; that have ended */
	void (*checked)(void *arg, int status, const char *output);
	void *check_arg;
	/* the burn-in that was started */
	int burn_ins;
	char burn_in_address[NET_ADDR_MAX], burn_in_nodes[2 * TOPO_NAME + 2];
	unsigned char burn_in_secret[AUTH_SECRET_BYTES];
	void (*burn_in_ended)(void *arg, int status, const char *output);
	void *burn_in_arg;
	const char *burn_in_devices; /* "1" or "not 1"; NULL: it got no number of devices */
	void (*done)(void *arg, const struct survey *s); /* of the survey that is under way */
	void *arg;
} m;

struct surveying {
	int unused;
};
static struct surveying one_survey;

static inline int begin_survey(uv_loop_t *loop, const struct survey_request *r,
			       void (*done)(void *arg, const struct survey *s), void *arg,
			       struct surveying **out, struct err *e)
{
	(void)loop;
	assert_int_equal(r->cluster->n_nodes, 2);
	assert_null(m.done); /* one at a time */
	if (m.broken)
		return err_set(e, ERR_NOMEM, "cannot start another process");
	m.surveys++;
	m.done = done;
	m.arg = arg;
	*out = &one_survey;
	return 0;
}

static inline void stop_survey(struct surveying *s)
{
	assert_ptr_equal(s, &one_survey);
	m.done = NULL;
}

static inline int requeue_job(const char *exclude, int min_nodes, int max_nodes, struct err *e)
{
	(void)exclude;
	assert_int_equal(min_nodes, 2);
	assert_int_equal(max_nodes, 2);
	m.requeues++;
	return m.refuse ? err_set(e, ERR_UNSUPPORTED, "scontrol failed (1): Access denied") : 0;
}

static inline void on_check_ended(void *arg, int status, const char *output)
{
	(void)arg;
	m.ended++;
	m.checked(m.check_arg, status, output);
}

/* The check answers once the file `go` exists: with a line for each node that it asks. */
static inline int check_nodes(uv_loop_t *loop, const struct check_request *r,
			      void (*ended)(void *arg, int status, const char *output), void *arg,
			      struct child **out, struct err *e)
{
	static char script[] = "until [ -e \"$0\" ]; do sleep 0.01; done; echo \"$1\"";
	char *const argv[] = { "sh", "-c", script, m.go, m.answer, NULL };
	const struct child_command c = { .argv = argv, .out = -1, .tied = true };
	const char *const names[] = { m.machines.nodes[0].name, m.machines.nodes[1].name };
	char both[2 * TOPO_NAME + 2];
	snprintf(both, sizeof both, "%s,%s", names[0], names[1]);
	int first = r->n_nodes == 2 || !strcmp(r->nodes, names[0]) ? 0 : 1;
	assert_string_equal(r->nodes, r->n_nodes == 2 ? both : names[first]);
	assert_string_equal(r->needs, "{}");
	snprintf(m.go, sizeof m.go, "%s/go", h.dir);
	m.answer[0] = '\0';
	for (int i = first; i < first + r->n_nodes; i++) {
		const char *text = i ? m.check : m.check0;
		size_t used = strlen(m.answer);
		if (text && *text == '!')
			snprintf(m.answer + used, sizeof m.answer - used, "%s\n", text + 1);
		else if (text)
			snprintf(m.answer + used, sizeof m.answer - used,
				 LAUNCH_CHECK_TAG "%s: %s\n", names[i], text);
	}
	unlink(m.go);
	m.checks++;
	m.checked = ended;
	m.check_arg = arg;
	return launcher_child_watch(loop, &c, on_check_ended, NULL, out, e);
}

static inline void answer_check(void)
{
	uv_timer_t awake;
	int before = m.ended;
	close(open(m.go, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	uv_timer_init(&h.loop, &awake);
	uv_timer_start(&awake, on_nothing, 1, 1);
	while (m.ended == before)
		uv_run(&h.loop, UV_RUN_ONCE);
	uv_close((uv_handle_t *)&awake, NULL);
	deliver_all();
}

static inline void answer_survey(void)
{
	void (*done)(void *arg, const struct survey *s) = m.done;
	struct survey s = { .answered = !m.silent,
			    .nodes = m.nodes,
			    .n_nodes = 2,
			    .partly = !m.silent || m.partly,
			    .job_known = !m.silent,
			    .can_requeue = !m.silent,
			    .free = m.free,
			    .why = "no answer" };
	assert_non_null(done);
	m.done = NULL;
	done(m.arg, &s);
	deliver_all();
}

static inline int burn_in(uv_loop_t *loop, const struct burn_in_request *r,
			  void (*ended)(void *arg, int status, const char *output), void *arg,
			  struct child **out, struct err *e)
{
	(void)loop;
	(void)out; /* there is no process */
	m.burn_ins++;
	snprintf(m.burn_in_address, sizeof m.burn_in_address, "%s", r->address);
	snprintf(m.burn_in_nodes, sizeof m.burn_in_nodes, "%s", r->nodes);
	assert_int_equal(auth_secret_parse(r->secret, m.burn_in_secret, e), 0);
	assert_string_equal(r->auth, "secret");
	m.burn_in_devices = NULL;
	for (char *const *w = r->words; *w; w += 2)
		if (!strcmp(*w, "--devices"))
			m.burn_in_devices = !strcmp(w[1], "1") ? "1" : "not 1";
	m.burn_in_ended = ended;
	m.burn_in_arg = arg;
	return 0;
}

static const struct launch_ops elastic_ops = { .name = "fake",
					       .start = fake_start,
					       .kill = fake_kill,
					       .close = fake_close,
					       .survey = begin_survey,
					       .survey_stop = stop_survey,
					       .requeue = requeue_job,
					       .check_nodes = check_nodes,
					       .burn_in = burn_in };

/* Starts the run of this job: two ranks, one per node. */
static inline void start_job(const char *const *words, int n)
{
	struct cluster whole, used;
	struct cluster_slot gone[14];
	struct err e = ERR_INIT;
	for (int i = 0; i < 14; i++)
		gone[i] = (struct cluster_slot){ i / 7, 1 + i % 7 };
	if (job_words(words, n, &m.job, &e) || topo_cluster_open("dgx-h100:2", 0, &whole, &e) ||
	    topo_cluster_without(&whole, gone, 14, &m.machines, &e) ||
	    topo_cluster_without(&m.machines, NULL, 0, &used, &e) ||
	    launcher_deployment_build(&m.job, 2, 0, &used, &m.first, &e))
		fail_msg("%s", e.text);
	topo_cluster_free(&whole);
	supervise_close(h.supervisor);
	uv_run(&h.loop, UV_RUN_DEFAULT);
	const struct supervise_options o = {
		.loop = &h.loop,
		.job = &m.job,
		.machines = &m.machines,
		.first = m.first,
		.ops = &elastic_ops,
		.agent = h.agent,
		.needs = m.needs,
		.run = h.run,
		.term = h.term,
		.listener = -1,
		.address = "127.0.0.1:1",
		.limits = SUPERVISE_LIMITS,
		.now = fake_now,
	};
	assert_int_equal(supervise_open(&o, &h.supervisor, NULL), 0);
	supervise_start(h.supervisor);
}

/* The built-in training, with these words of the job in addition. */
static inline void start_run(const char *a, const char *b)
{
	const char *words[] = { "model.layers=8",
				"model.hidden=1024",
				"model.heads=8",
				"model.vocab=256",
				"model.seq=1024",
				"batch.global=64",
				"parallel.dp=2",
				"job.device=cuda",
				"checkpoint.resume=none",
				"restart.backoff=0",
				"restart.warm=no",
				a,
				b };
	start_job(words, 11 + (a != NULL) + (b != NULL));
}

static inline void train_first(void)
{
	train_all();
	for (int i = 0; i < h.world; i++)
		send_step(&h.peers[i], MSG_METRICS, 3);
}

/* The same, and its first generation trains. */
static inline void open_run(const char *a, const char *b)
{
	start_run(a, b);
	train_first();
}

/* A program of the user. */
static inline void open_program(void)
{
	static const char *const words[] = { "job.program=train", "job.name=run",
					     "job.device=cuda",   "parallel.dp=2",
					     "restart.backoff=0", "program.show=none" };
	start_job(words, sizeof words / sizeof *words);
	train_first();
}

/* The agent of rank 1 ends because its node has this state now. */
static inline void lose_node(enum node_state state)
{
	m.nodes[1] = state;
	end_rank(1);
}

static inline int setup_run(void **state)
{
	memset(&m, 0, sizeof m);
	m.nodes[0] = m.nodes[1] = NODE_UP;
	return setup(state);
}

static inline int teardown_run(void **state)
{
	int rc = teardown(state);
	launcher_deployment_free(m.first);
	topo_cluster_free(&m.machines);
	return rc;
}

static inline void shrink(void)
{
	lose_node(NODE_UNREACHABLE);
	answer_survey();
	assert_int_equal(h.world, 1);
	train_all();
	send_step(&h.peers[0], MSG_METRICS, 4);
}

/* The agents do what the supervisor asks: they write a checkpoint and finish. */
static inline void finish_all(int64_t step)
{
	int world = h.world; /* the last end may start the next generation */
	for (int i = 0; i < world; i++) {
		assert_true(h.peers[i].stopped && h.peers[i].checkpoint);
		send_step(&h.peers[i], MSG_FINISHED, step);
	}
	for (int i = 0; i < world; i++)
		end_process(i, 0);
	deliver_all();
}

#define T(f) cmocka_unit_test_setup_teardown(f, setup_run, teardown_run)

#endif
