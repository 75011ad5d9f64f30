/* Real processes on this host: PMIx's server, fork, kill, and the supervisor that controls them. */
#include "base/agent_env.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/net.h"
#include "launcher/pmix/local.h"
#include "launcher/supervise/supervise.h"
#include "tests/unit/launcher/fake_agent.h"
#include "tests/unit/launcher/event_lines.h"
#include "tests/unit/tmpdir.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { WORLD = 4 };

static struct {
	char dir[256], self[4096];
	struct node_kind kind;
	struct cluster_node node;
	struct plan_rank ranks[WORLD];
	struct deployment first;
	struct rundir *run;
} t;

static int setup(void **state)
{
	(void)state;
	memset(&t, 0, sizeof t);
	if (!tmpdir_make(t.dir, sizeof t.dir) || rundir_open(t.dir, "run", &t.run, NULL) ||
	    readlink("/proc/self/exe", t.self, sizeof t.self - 1) < 0)
		return -1;
	snprintf(t.node.name, sizeof t.node.name, "here");
	snprintf(t.first.job.checkpoint.resume, sizeof t.first.job.checkpoint.resume, "auto");
	t.first.job.job.steps = 30;
	t.first.job.restart.max_restarts = 5;
	t.first.job.restart.max_futile = 2;
	t.first.job.restart.backoff = 0.05;
	t.first.job.restart.hang_timeout = 30;
	t.kind.devices = WORLD;
	t.first.cluster =
		(struct cluster){ .kinds = &t.kind, .n_kinds = 1, .nodes = &t.node, .n_nodes = 1 };
	t.first.plan = (struct plan){
		.world = WORLD,
		.layout = { .tp = WORLD, .cp = 1, .dp = 1, .pp = 1, .ep = 1, .chunks = 1 },
		/* The end of the run predicts checkpoints from the model. */
		.shape = { .layers = 1,
			   .hidden = 8,
			   .heads = WORLD,
			   .kv_heads = WORLD,
			   .head_dim = 2,
			   .ffn = 8,
			   .vocab = 8,
			   .seq = 8 },
		.ranks = t.ranks,
		.threads = 1
	};
	for (int i = 0; i < WORLD; i++)
		t.ranks[i].threads = 1;
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	char remove[512];
	rundir_close(t.run);
	snprintf(remove, sizeof remove, "rm -rf '%s'", t.dir);
	return system(remove) ? -1 : 0;
}

/* Supervises a run of agents that behave as `words` ask; returns the exit status. */
static int run_agents(const char *agent, const char *words)
{
	uv_loop_t loop;
	struct terminal *term;
	struct terminal_options look = { .fd = open("/dev/null", O_WRONLY | O_CLOEXEC),
					 .every = 1,
					 .steps = 30 };
	char host[NET_ADDR_MAX], address[NET_ADDR_MAX];
	json_t *doc = json_pack("{s:i}", "world", WORLD);
	static char text[] = "[job]\n";
	t.first.job_text = text;
	t.first.plan_doc = doc;
	setenv("FAKE_AGENT", words, 1);
	setenv("FAKE_AGENT_RUN", rundir_path(t.run), 1);
	assert_int_equal(uv_loop_init(&loop), 0);
	assert_int_equal(supervise_terminal_open(&look, &term, NULL), 0);
	struct supervise_options o = {
		.loop = &loop,
		.job = &t.first.job,
		.machines = &t.first.cluster,
		.first = &t.first,
		.ops = &launch_local,
		.agent = agent,
		.run = t.run,
		.term = term,
		.address = address,
		.limits = SUPERVISE_LIMITS,
		.now = clock_s,
	};
	assert_int_equal(net_local_address(NULL, NULL, host, NULL), 0);
	assert_int_equal(net_listen(host, &o.listener, address, NULL), 0);
	int status = supervise_run(&o);
	assert_int_equal(uv_loop_close(&loop), 0);
	supervise_terminal_close(term);
	close(look.fd);
	json_decref(doc);
	return status;
}

static int count_events(const char *a, const char *b)
{
	return count_events_in(rundir_path(t.run), a, b);
}

/* No child is left, and PMIx's folder was removed with its server. */
static void assert_nothing_left(void)
{
	char path[512];
	struct stat st;
	errno = 0;
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	assert_int_equal(errno, ECHILD);
	snprintf(path, sizeof path, "%s/run/.pmix", t.dir);
	assert_int_equal(stat(path, &st), -1);
}

static void agents_wire_up_and_finish(void **state)
{
	(void)state;
	assert_int_equal(run_agents(t.self, "steps=30,step_ms=1"), STATUS_DONE);
	for (int r = 0; r < WORLD; r++) {
		char text[32];
		snprintf(text, sizeof text, "{\"rank\":%d,\"pid\":", r);
		assert_int_equal(count_events("\"hello\"", text), 1);
	}
	assert_int_equal(count_events("first-step", "\"step\":1"), 1);
	assert_nothing_left();
}

static void a_killed_agent_is_replaced_with_all_the_others(void **state)
{
	(void)state;
	assert_int_equal(run_agents(t.self, "steps=30,step_ms=3,die=3@13"), STATUS_DONE);
	assert_int_equal(count_events("rank-lost", "\"rank\":3"), 1);
	assert_int_equal(count_events("\"ready\"", "\"step\":10}"), 1);
	assert_nothing_left();
}

static void an_agent_that_always_dies_at_the_same_step_ends_it(void **state)
{
	(void)state;
	assert_int_equal(run_agents(t.self, "steps=30,step_ms=3,crash=3@13"), STATUS_GAVE_UP);
	assert_int_equal(count_events("generation-start", ""), 3);
	assert_nothing_left();
}

static void the_cause_that_an_agent_reports_is_used(void **state)
{
	(void)state;
	assert_int_equal(run_agents(t.self, "steps=30,step_ms=3,fail=1"), STATUS_FAILED);
	assert_int_equal(count_events("rank-lost", "tokens.bin: damaged; pack it again"), 1);
	assert_nothing_left();
}

static void a_file_that_is_not_a_program_is_tried_once(void **state)
{
	(void)state;
	char path[512];
	snprintf(path, sizeof path, "%s/junk", t.dir);
	assert_int_equal(file_replace(path, "junk\n", 5, NULL), 0);
	assert_int_equal(chmod(path, 0700), 0);
	assert_int_equal(run_agents(path, ""), STATUS_FAILED);
	assert_int_equal(count_events("generation-start", ""), 1);
	assert_nothing_left();
}

static void a_run_continues_in_its_folder(void **state)
{
	(void)state;
	assert_int_equal(run_agents(t.self, "steps=10,step_ms=1"), STATUS_STOPPED);
	assert_int_equal(run_agents(t.self, "steps=30,step_ms=1"), STATUS_DONE);
	assert_int_equal(count_events("\"ready\"", "\"generation\":2,\"step\":10}"), 1);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	if (getenv(AGENT_ENV_SECRET))
		return fake_agent();
	const struct CMUnitTest tests[] = {
		T(agents_wire_up_and_finish),
		T(a_killed_agent_is_replaced_with_all_the_others),
		T(an_agent_that_always_dies_at_the_same_step_ends_it),
		T(the_cause_that_an_agent_reports_is_used),
		T(a_file_that_is_not_a_program_is_tried_once),
		T(a_run_continues_in_its_folder),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
