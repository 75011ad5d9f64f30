#include "tests/bench/agents/agents.h"

#include "base/clock.h"
#include "base/net.h"
#include "launcher/child.h"
#include "launcher/deployment.h"
#include "launcher/descriptors.h"
#include "launcher/supervise/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SELF = 4096 };

/* --- the launch backend: a stand-in for all agents of a launch ------------------------------ */

struct launch {
	struct launch_events ev;
	struct child *child;
	uv_poll_t poll; /* of its standard output, where it reports the ends of agents */
	int fd;
	struct buf text;
};

static const char *folder; /* of the run */

/* A line: the rank that an agent was started as, and its wait status. */
static void report_ends(struct launch *l)
{
	char *line = l->text.data, *end;
	size_t taken = 0;
	while (l->text.len > taken && (end = strchr(line, '\n'))) {
		int rank, status;
		*end = '\0';
		if (sscanf(line, "%d %d", &rank, &status) == 2)
			l->ev.exited(l->ev.arg, rank, status);
		else
			fprintf(stderr, "stand-in: %s\n", line);
		taken += (size_t)(end + 1 - line);
		line = end + 1;
	}
	buf_drop(&l->text, taken);
}

static void read_ends(struct launch *l)
{
	char chunk[65536];
	ssize_t n;
	while ((n = read(l->fd, chunk, sizeof chunk)) > 0)
		buf_add(&l->text, chunk, (size_t)n);
	report_ends(l);
}

static void on_output(uv_poll_t *poll, int status, int events)
{
	(void)status;
	(void)events;
	read_ends(poll->data);
}

static void on_poll_closed(uv_handle_t *h)
{
	struct launch *l = h->data;
	close(l->fd);
	l->ev.all_gone(l->ev.arg); /* calls stand_in_close() */
}

static void on_ended(void *arg, int status, const char *output)
{
	struct launch *l = arg;
	(void)output;
	l->child = NULL;
	read_ends(l);
	if (status)
		fprintf(stderr, "stand-in: ended with wait status %d\n", status);
	uv_close((uv_handle_t *)&l->poll, on_poll_closed);
}

/* "0-999/1000" */
static void set_ranks(const struct launch_request *r)
{
	struct buf text = BUF_INIT;
	if (r->ranks)
		for (int i = 0; i < r->n_ranks; i++)
			buf_printf(&text, "%s%d", i ? "," : "", r->ranks[i]);
	else
		buf_printf(&text, "0-%d", r->n_ranks - 1);
	buf_printf(&text, "/%d", r->plan->world);
	setenv(AGENT_ENV_RANKS, buf_str(&text), 1);
	buf_fini(&text);
}

static int spawn(uv_loop_t *loop, const struct launch_request *r, struct launch *l, int out,
		 struct err *e)
{
	char number[16], dir[AGENTS_PATH];
	snprintf(number, sizeof number, "%u", r->generation);
	snprintf(dir, sizeof dir, "%s", folder);
	set_ranks(r);
	setenv(AGENT_ENV_ADDRESS, r->address, 1);
	setenv(AGENT_ENV_SECRET, r->secret, 1);
	setenv(AGENT_ENV_GENERATION, number, 1);
	char *argv[] = { (char *)(uintptr_t)r->agent, (char[]){ "stand-in" }, dir, NULL };
	const struct child_command c = { .argv = argv, .out = out, .tied = true };
	int rc = launcher_child_watch(loop, &c, on_ended, l, &l->child, e);
	unsetenv(AGENT_ENV_SECRET);
	return rc;
}

static int stand_in_start(uv_loop_t *loop, const struct launch_request *r,
			  const struct launch_events *ev, struct launch **out, struct err *e)
{
	int ends[2];
	struct launch *l = calloc(1, sizeof *l);
	if (!l || pipe2(ends, O_CLOEXEC)) {
		free(l);
		return err_set(e, ERR_NOMEM, "cannot make a pipe to a stand-in");
	}
	l->ev = *ev;
	l->fd = ends[0];
	int rc = spawn(loop, r, l, ends[1], e);
	close(ends[1]);
	if (rc) {
		close(ends[0]);
		free(l);
		return -1;
	}
	fcntl(l->fd, F_SETFL, O_NONBLOCK);
	uv_poll_init(loop, &l->poll, l->fd);
	l->poll.data = l;
	uv_poll_start(&l->poll, UV_READABLE, on_output);
	*out = l;
	return 0;
}

static void stand_in_kill(struct launch *l, bool node_lost)
{
	(void)node_lost;
	if (l->child)
		launcher_child_signal(l->child, SIGKILL);
}

static void stand_in_close(struct launch *l)
{
	buf_fini(&l->text);
	free(l);
}

/* --- the survey of the nodes ------------------------------------------------------------------ */

struct surveying {
	uv_timer_t timer; /* the answer comes from the loop */
	void (*done)(void *arg, const struct survey *s);
	void *arg;
	int n_nodes;
};

static void on_timer_closed(uv_handle_t *h)
{
	free(h->data);
}

static void end_survey(struct surveying *v)
{
	uv_close((uv_handle_t *)&v->timer, on_timer_closed);
}

/* -1: every node is up. */
static int find_down(void)
{
	char path[AGENTS_PATH];
	double node = -1;
	snprintf(path, sizeof path, "%s/" AGENTS_DOWN, folder);
	FILE *in = fopen(path, "re");
	if (in && fscanf(in, "%lf", &node) != 1)
		node = -1;
	if (in)
		fclose(in);
	return (int)node;
}

static void on_survey_timer(uv_timer_t *timer)
{
	struct surveying *v = timer->data;
	struct survey s = { .answered = true, .n_nodes = v->n_nodes, .job_known = true };
	int down = find_down();
	s.nodes = calloc((size_t)v->n_nodes, sizeof *s.nodes); /* NODE_UP */
	if (s.nodes && down >= 0)
		s.nodes[down] = NODE_DOWN;
	v->done(v->arg, &s);
	free(s.nodes);
	end_survey(v);
}

static int start_survey(uv_loop_t *loop, const struct survey_request *r,
			void (*done)(void *arg, const struct survey *s), void *arg,
			struct surveying **out, struct err *e)
{
	struct surveying *v = calloc(1, sizeof *v);
	if (!v)
		return err_set(e, ERR_NOMEM, "no memory for a survey");
	*v = (struct surveying){ .done = done, .arg = arg, .n_nodes = r->cluster->n_nodes };
	uv_timer_init(loop, &v->timer);
	v->timer.data = v;
	uv_timer_start(&v->timer, on_survey_timer, 0, 0);
	*out = v;
	return 0;
}

/* As under Slurm with muster's helpers: the ends of agents are seen, and a single one cannot be killed. */
static const struct launch_ops stand_in_ops = {
	.name = "stand-in",
	.word = LAUNCHER_SLURM,
	.start = stand_in_start,
	.kill = stand_in_kill,
	.survey = start_survey,
	.survey_stop = end_survey,
	.close = stand_in_close,
};

/* --- the run ------------------------------------------------------------------------------ */

static int plan_run(int n, struct job *job, struct cluster *machines, struct deployment **first,
		    struct err *e)
{
	char spec[64], dp[64], global[64];
	struct cluster used = { 0 };
	int replicas = n / (AGENTS_TP * AGENTS_PP);
	snprintf(spec, sizeof spec, "dgx-h100:%d", n / AGENTS_NODE);
	snprintf(dp, sizeof dp, "parallel.dp=%d", replicas);
	snprintf(global, sizeof global, "batch.global=%d", 8 * replicas);
	const char *words[] = {
		"job.name=run",
		"job.steps=100000",
		"job.device=cuda",
		"model.family=llama",
		"model.layers=80",
		"model.hidden=8192",
		"model.heads=64",
		"model.kv_heads=8",
		"model.vocab=32000",
		"model.seq=2048",
		"parallel.tp=8",
		"parallel.pp=5",
		"parallel.zero=1",
		"precision.dtype=bf16",
		"batch.micro=1",
		"recompute.mode=full",
		dp,
		global,
	};
	if (job_words(words, sizeof words / sizeof *words, job, e) ||
	    topo_cluster_open(spec, 0, machines, e) || topo_cluster_open(spec, 0, &used, e))
		return -1;
	return launcher_deployment_build(job, replicas, job->open, &used, first, e);
}

static int run(int n, uv_loop_t *loop, struct supervise_options *o, struct err *e)
{
	static struct job job;
	static struct cluster machines;
	struct deployment *first = NULL;
	char self[SELF], address[NET_ADDR_MAX];
	ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
	struct terminal_options look = { .fd = STDOUT_FILENO, .every = 1000 };
	if (len < 0)
		return err_errno(e, ERR_IO, "/proc/self/exe");
	self[len] = '\0';
	if (plan_run(n, &job, &machines, &first, e) || launcher_descriptors_allow(n, 1, e) ||
	    rundir_open(folder, "run", &o->run, e) || supervise_terminal_open(&look, &o->term, e) ||
	    net_listen("127.0.0.1", &o->listener, address, e))
		return -1;
	o->loop = loop;
	o->job = &job;
	o->machines = &machines;
	o->first = first;
	o->agent = self;
	o->address = address;
	int status = supervise_run(o);
	supervise_terminal_close(o->term);
	rundir_close(o->run);
	launcher_deployment_free(first);
	topo_cluster_free(&machines);
	return status;
}

int agents_supervise(int n, const char *dir)
{
	uv_loop_t loop;
	struct err e = ERR_INIT;
	struct supervise_options o = {
		.ops = &stand_in_ops,
		.limits = SUPERVISE_LIMITS,
		.now = clock_s,
	};
	folder = dir;
	if (uv_loop_init(&loop))
		return 1;
	int status = run(n, &loop, &o, &e);
	if (status < 0)
		fprintf(stderr, "agents: %s\n", e.text);
	uv_loop_close(&loop);
	return status < 0 ? 1 : status;
}
