/* slurm_survey and slurm_requeue against a substitute for scontrol: a shell script that answers
 * with the files job, nodes and partition of a folder and records its words in the file `calls`. */
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "launcher/slurm/job_record.h"
#include "launcher/slurm/slurm.h"
#include "tests/unit/tmpdir.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { NODES_MAX = 2000 };

struct world {
	char folder[64];
	uv_loop_t loop;
	int done;
	struct survey s;
	enum node_state nodes[NODES_MAX];
};

static void write_text(struct world *w, const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", w->folder, name);
	assert_int_equal(file_replace(path, text, strlen(text), NULL), 0);
}

static void write_scontrol(struct world *w, const char *text)
{
	char script[2048], path[128];
	snprintf(script, sizeof script, "#!/bin/sh\ncd %s\necho \"$@\" >> calls\n%s", w->folder,
		 text);
	write_text(w, "bin/scontrol", script);
	snprintf(path, sizeof path, "%s/bin/scontrol", w->folder);
	assert_int_equal(chmod(path, 0700), 0);
}

#define ANSWER "case \"$3\" in job) cat job;; node) cat nodes;; partition) cat partition;; esac\n"

static int setup(void **state)
{
	struct world *w = calloc(1, sizeof *w);
	char path[512];
	assert_non_null(tmpdir_make(w->folder, sizeof w->folder));
	snprintf(path, sizeof path, "%s/bin", w->folder);
	assert_int_equal(mkdir(path, 0700), 0);
	snprintf(path, sizeof path, "%s/bin:/usr/bin:/bin", w->folder);
	setenv("PATH", path, 1);
	setenv("SLURM_JOB_ID", "9", 1);
	unsetenv("SLURM_TASKS_PER_NODE");
	write_scontrol(w, ANSWER);
	uv_loop_init(&w->loop);
	*state = w;
	return 0;
}

static void on_tick(uv_timer_t *t)
{
	uv_close((uv_handle_t *)t, NULL);
}

static int teardown(void **state)
{
	struct world *w = *state;
	char command[128];
	/* A scontrol that was killed is still taken, although the loop does not wait for it. */
	for (double until = clock_s() + 20; uv_loop_close(&w->loop);) {
		uv_timer_t t;
		assert_true(clock_s() < until);
		uv_timer_init(&w->loop, &t);
		uv_timer_start(&t, on_tick, 1, 0);
		uv_run(&w->loop, UV_RUN_DEFAULT);
	}
	assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
	snprintf(command, sizeof command, "rm -r %s", w->folder);
	assert_int_equal(system(command), 0);
	free(w);
	return 0;
}

static void on_survey(void *arg, const struct survey *s)
{
	struct world *w = arg;
	w->done++;
	w->s = *s;
	w->s.nodes = w->nodes;
	assert_in_range(s->n_nodes, 1, NODES_MAX);
	memcpy(w->nodes, s->nodes, (size_t)s->n_nodes * sizeof *s->nodes);
}

/* Surveys the nodes of a comma-separated list; those of `suspects` are suspects. */
static struct surveying *start_survey(struct world *w, const char *list, const char *suspects)
{
	static struct cluster_node nodes[NODES_MAX];
	static bool suspect[NODES_MAX];
	struct cluster c = { .nodes = nodes };
	struct hostlist h, more = { .n = 0 };
	struct surveying *v = NULL;
	struct err e = ERR_INIT;
	assert_int_equal(topo_hostlist_expand(list, &h, NULL), 0);
	if (*suspects)
		assert_int_equal(topo_hostlist_expand(suspects, &more, NULL), 0);
	for (c.n_nodes = 0; c.n_nodes < h.n; c.n_nodes++) {
		strcpy(nodes[c.n_nodes].name, h.names[c.n_nodes]);
		suspect[c.n_nodes] = false;
		for (int k = 0; k < more.n; k++)
			suspect[c.n_nodes] |= !strcmp(more.names[k], h.names[c.n_nodes]);
	}
	const struct survey_request r = { .cluster = &c, .suspects = suspect };
	if (slurm_survey(&w->loop, &r, on_survey, w, &v, &e))
		fail_msg("%s", e.text);
	assert_int_equal(w->done, 0);
	topo_hostlist_free(&h);
	topo_hostlist_free(&more);
	return v;
}

static void survey(struct world *w, const char *list, const char *suspects)
{
	w->done = 0;
	start_survey(w, list, suspects);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->done, 1);
}

static void calls_are(struct world *w, const char *text)
{
	char path[128];
	struct buf b = BUF_INIT;
	snprintf(path, sizeof path, "%s/calls", w->folder);
	assert_int_equal(file_slurp(path, 1 << 20, &b, NULL), 0);
	assert_string_equal(buf_str(&b), text);
	buf_fini(&b);
}

/* A port of the loopback address. listening < 0: nobody listens; otherwise the backlog. */
static int open_port(int backlog, int *port)
{
	struct sockaddr_in a = { .sin_family = AF_INET };
	socklen_t len = sizeof a;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof a), 0);
	assert_int_equal(getsockname(fd, (struct sockaddr *)&a, &len), 0);
	if (backlog >= 0)
		assert_int_equal(listen(fd, backlog), 0);
	*port = ntohs(a.sin_port);
	return fd;
}

/* Fills the queue of a listener, so that it answers nobody else. */
static void fill_queue(int port, int fds[2])
{
	struct sockaddr_in a = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
	a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	for (int i = 0; i < 2; i++) {
		fds[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
		if (connect(fds[i], (struct sockaddr *)&a, sizeof a))
			assert_int_equal(errno, EINPROGRESS);
	}
}

static void the_controller_says_which_nodes_are_left_and_usable(void **state)
{
	struct world *w = *state;
	write_text(w, "job", "JobId=9 JobState=RUNNING Requeue=1 BatchFlag=1 NodeList=n[1-3]\n");
	write_text(w, "nodes",
		   "NodeName=n5 State=DOWN+DRAIN\nNodeName=n1 State=ALLOCATED\n"
		   "NodeName=n2 State=ALLOCATED+DRAIN\nNodeName=n3 State=MIXED+FAIL\n"
		   "NodeName=n4 State=IDLE\nNodeName=other State=DOWN\n");
	survey(w, "n[1-6]", "");
	assert_true(w->s.answered);
	assert_true(w->s.can_requeue);
	assert_string_equal(w->s.why, "");
	assert_int_equal(w->s.n_nodes, 6);
	assert_int_equal(w->nodes[0], NODE_UP);
	assert_int_equal(w->nodes[1], NODE_DRAIN);
	assert_int_equal(w->nodes[2], NODE_FAIL);
	assert_int_equal(w->nodes[3], NODE_LEFT);
	assert_int_equal(w->nodes[4], NODE_DOWN); /* says more than that it has left the job */
	assert_int_equal(w->nodes[5], NODE_LEFT); /* removed from Slurm's configuration */
}

static void stall(uv_prepare_t *p)
{
	int *left = p->data;
	usleep(1100000);
	if (--*left == 0)
		uv_prepare_stop(p);
}

/* A machine under load gives the supervisor no time for longer than a connection may take. */
static void stalls_of_the_supervisor_are_not_those_of_nodes(void **state)
{
	struct world *w = *state;
	char nodes[128];
	int port, fd = open_port(8, &port), left = 5;
	uv_prepare_t p = { .data = &left };
	write_text(w, "job", "JobId=9 JobState=RUNNING Requeue=0 BatchFlag=1 NodeList=n1\n");
	snprintf(nodes, sizeof nodes, "NodeName=n1 NodeAddr=127.0.0.1 Port=%d State=IDLE\n", port);
	write_text(w, "nodes", nodes);
	uv_prepare_init(&w->loop, &p);
	uv_prepare_start(&p, stall);
	uv_unref((uv_handle_t *)&p);
	survey(w, "n1", "n1");
	assert_string_equal(w->s.why, "");
	assert_true(w->s.answered);
	assert_int_equal(w->nodes[0], NODE_UP);
	uv_close((uv_handle_t *)&p, NULL);
	uv_run(&w->loop, UV_RUN_DEFAULT);
	close(fd);
}

static void suspects_are_connected_to(void **state)
{
	struct world *w = *state;
	char nodes[512];
	int up, refused, silent, waiting[2];
	int a = open_port(8, &up), b = open_port(-1, &refused), c = open_port(0, &silent);
	fill_queue(silent, waiting);
	write_text(w, "job", "JobId=9 JobState=RUNNING Requeue=0 BatchFlag=1 NodeList=n[1-4]\n");
	snprintf(nodes, sizeof nodes,
		 "NodeName=n1 NodeAddr=127.0.0.1 Port=%d State=IDLE\n"
		 "NodeName=n2 NodeAddr=127.0.0.1 Port=%d State=IDLE\n"
		 "NodeName=n3 NodeAddr=127.0.0.1 Port=%d State=IDLE\n"
		 "NodeName=n4 NodeAddr=127.0.0.1 Port=%d State=IDLE\n",
		 up, refused, silent, refused);
	write_text(w, "nodes", nodes);
	survey(w, "n[1-4]", "n[1-3]");
	assert_true(w->s.answered);
	assert_false(w->s.can_requeue);
	assert_int_equal(w->nodes[0], NODE_UP);
	assert_int_equal(w->nodes[1], NODE_UNREACHABLE);
	assert_int_equal(w->nodes[2], NODE_UNREACHABLE);
	assert_int_equal(w->nodes[3], NODE_UP); /* nobody suspects it */
	/* The controller falls silent: the addresses are known. */
	write_scontrol(w, "echo 'slurm_load_jobs error: Unable to contact slurm controller'\n"
			  "exit 1\n");
	survey(w, "n[1-4]", "n[1-2]");
	assert_false(w->s.answered);
	assert_false(w->s.can_requeue);
	assert_non_null(strstr(w->s.why, "Unable to contact slurm controller"));
	assert_false(w->s.partly);
	assert_int_equal(w->nodes[0], NODE_UNKNOWN);
	assert_int_equal(w->nodes[1], NODE_UNREACHABLE);
	assert_int_equal(w->nodes[2], NODE_UNKNOWN);
	close(a);
	close(b);
	close(c);
	close(waiting[0]);
	close(waiting[1]);
}

/* Slurm's port is unknown as well. A host that refuses the default port is alive. A node's name need
 * not be that of a host, so a name without an address does not mean that the node is dead. */
static void without_any_answer_a_refusal_or_a_name_proves_nothing(void **state)
{
	struct world *w = *state;
	write_scontrol(w, "exit 1\n");
	survey(w, "localhost,no-such-host.invalid,x", "localhost,no-such-host.invalid");
	assert_false(w->s.answered);
	for (int i = 0; i < 3; i++)
		assert_int_equal(w->nodes[i], NODE_UNKNOWN);
}

static void what_is_known_of_the_nodes_counts_without_the_job(void **state)
{
	struct world *w = *state;
	char nodes[512];
	int refused, b = open_port(-1, &refused);
	snprintf(nodes, sizeof nodes,
		 "NodeName=n1 State=DOWN\nNodeName=n2 State=ALLOCATED+DRAIN\n"
		 "NodeName=n3 NodeAddr=127.0.0.1 Port=%d State=IDLE\nNodeName=n4 State=IDLE\n",
		 refused);
	write_text(w, "nodes", nodes);
	write_scontrol(w, "[ \"$3\" = job ] && exit 1\n" ANSWER);
	survey(w, "n[1-5]", "n3");
	assert_false(w->s.answered || w->s.job_known);
	assert_true(w->s.partly);
	assert_non_null(strstr(w->s.why, "show job"));
	assert_int_equal(w->nodes[0], NODE_DOWN);
	assert_int_equal(w->nodes[1], NODE_DRAIN);
	assert_int_equal(w->nodes[2], NODE_UNREACHABLE);
	assert_int_equal(w->nodes[3], NODE_UNKNOWN); /* the job may have lost it */
	assert_int_equal(w->nodes[4], NODE_UNKNOWN);
	assert_int_equal(w->s.free, 0);
	close(b);
}

static void what_is_known_of_the_job_counts_without_the_nodes(void **state)
{
	struct world *w = *state;
	write_text(w, "job", "JobId=9 JobState=RUNNING Requeue=1 BatchFlag=1 NodeList=n1\n");
	write_scontrol(w, "[ \"$3\" = node ] && exit 1\n" ANSWER);
	survey(w, "n[1-2]", "");
	assert_false(w->s.answered);
	assert_true(w->s.partly && w->s.job_known && w->s.can_requeue);
	assert_int_equal(w->nodes[0], NODE_UNKNOWN);
	assert_int_equal(w->nodes[1], NODE_LEFT);
}

static void a_controller_that_hangs_is_not_waited_for(void **state)
{
	struct world *w = *state;
	write_text(w, "job", "JobId=9 JobState=RUNNING NodeList=n1\n");
	write_scontrol(w, "[ \"$3\" = node ] && exec sleep 1000\n" ANSWER);
	double from = clock_s();
	survey(w, "n[1-2]", "");
	assert_true(clock_s() - from < 20);
	assert_false(w->s.answered);
	assert_non_null(strstr(w->s.why, "no answer from slurmctld within 3 s"));
	assert_int_equal(w->nodes[0], NODE_UNKNOWN);
	assert_int_equal(w->nodes[1], NODE_LEFT); /* the job's record was there */
}

static void a_survey_can_be_stopped(void **state)
{
	struct world *w = *state;
	write_scontrol(w, "exec sleep 1000\n");
	slurm_survey_stop(start_survey(w, "n[1-2]", "n1"));
	uv_run(&w->loop, UV_RUN_DEFAULT);
	assert_int_equal(w->done, 0);
}

/* Of 1200 nodes, which no command line should hold, n1100 is down. */
static void many_nodes_are_asked_for_in_several_commands(void **state)
{
	struct world *w = *state;
	write_text(w, "job", "JobId=9 JobState=RUNNING NodeList=n[1-1200]\n");
	write_scontrol(w, "[ \"$3\" = job ] && exec cat job\n"
			  "echo x >> queries\n"
			  "echo \"$4\" | tr , '\\n' | sed 's/.*/NodeName=& State=IDLE/; "
			  "s/n1100 State=IDLE/n1100 State=DOWN/'\n");
	survey(w, "n[1-1200]", "");
	assert_true(w->s.answered);
	for (int i = 0; i < 1200; i++)
		assert_int_equal(w->nodes[i], i == 1099 ? NODE_DOWN : NODE_UP);
	char path[128];
	struct stat st;
	snprintf(path, sizeof path, "%s/queries", w->folder);
	assert_int_equal(stat(path, &st), 0);
	assert_int_equal(st.st_size, 2 * 3);
}

static void outside_a_job_there_is_nothing_to_ask(void **state)
{
	struct world *w = *state;
	struct cluster c = { .n_nodes = 0 };
	struct surveying *v;
	struct err e = ERR_INIT;
	unsetenv("SLURM_JOB_ID");
	assert_int_equal(slurm_survey(&w->loop, &(struct survey_request){ .cluster = &c },
				      on_survey, w, &v, &e),
			 -1);
	assert_non_null(strstr(e.text, "SLURM_JOB_ID"));
	assert_int_equal(slurm_requeue("", 1, 1, &e), -1);
}

/* --- Requeue --- */

#define JOB \
	"JobId=9 JobState=RUNNING Requeue=1 BatchFlag=1 Partition=main,more NodeList=n[1-4] " \
	"CPUs/Task=3 NtasksPerN:B:S:C=2:0:*:*"
#define PARTITION "PartitionName=main TotalNodes=4\n"

static void a_requeue_excludes_nodes_and_never_holds_the_job(void **state)
{
	struct world *w = *state;
	struct err e = ERR_INIT;
	write_text(w, "job", JOB " ExcNodeList=n9\n");
	write_text(w, "partition", "PartitionName=main TotalNodes=5\n");
	/* Slurm's SIGTERM, which follows the requeue, ends the first update. */
	write_scontrol(w, ANSWER "[ $1 = update ] && [ ! -e ended ] && touch ended && kill $$\n"
				 "exit 0\n");
	assert_int_equal(slurm_requeue("n3,n4", 2, 4, &e), 0);
	assert_string_equal(e.text, "");
	calls_are(w, "--oneliner show job 9\n"
		     "--oneliner show partition main\n"
		     "requeue 9\n"
		     "update JobId=9 StartTime=now+15 ExcNodeList=n9,n3,n4 NumNodes=2-4 "
		     "NumTasks=4 NumCPUs=12\n"
		     "update JobId=9 StartTime=now+15 ExcNodeList=n9,n3,n4 NumNodes=2-4 "
		     "NumTasks=4 NumCPUs=12\n");
}

static void nodes_are_not_excluded_if_too_few_would_be_left(void **state)
{
	struct world *w = *state;
	struct err e = ERR_INIT;
	write_text(w, "job", JOB "\n");
	write_text(w, "partition", PARTITION);
	assert_int_equal(slurm_requeue("n3", 4, 4, &e), 0);
	assert_non_null(strstr(e.text, "n3 is not excluded: partition main has 4 nodes"));
	calls_are(w, "--oneliner show job 9\n"
		     "--oneliner show partition main\n"
		     "requeue 9\n"
		     "update JobId=9 StartTime=now+15 NumNodes=4-4 NumTasks=8 NumCPUs=24\n");
}

static void a_job_that_cannot_be_requeued_is_left_alone(void **state)
{
	struct world *w = *state;
	struct err e = ERR_INIT;
	write_text(w, "job", "JobId=9 JobState=RUNNING Requeue=0 BatchFlag=1 NodeList=n1\n");
	assert_int_equal(slurm_requeue("", 1, 1, &e), -1);
	assert_int_equal(e.code, ERR_UNSUPPORTED);
	assert_non_null(strstr(e.text, "sbatch --requeue"));
	calls_are(w, "--oneliner show job 9\n");
}

static void a_refused_requeue_changes_nothing(void **state)
{
	struct world *w = *state;
	struct err e = ERR_INIT;
	write_text(w, "job", JOB "\n");
	write_scontrol(w, ANSWER "[ $1 = requeue ] && echo 'Access denied' && exit 1\nexit 0\n");
	assert_int_equal(slurm_requeue("", 0, 0, &e), -1);
	assert_string_equal(e.text, "scontrol failed (1): Access denied");
	calls_are(w, "--oneliner show job 9\nrequeue 9\n--oneliner show job 9\n");
}

/* Slurm's SIGTERM ends the scontrol whose request it has accepted. */
static void a_requeue_whose_command_was_killed_is_found_out(void **state)
{
	struct world *w = *state;
	struct err e = ERR_INIT;
	write_text(w, "job", JOB "\n");
	write_scontrol(w, ANSWER "[ $1 = requeue ] && sed -i s/RUNNING/COMPLETING/ job && kill $$\n"
				 "exit 0\n");
	assert_int_equal(slurm_requeue("", 0, 0, &e), 0);
	assert_string_equal(e.text, "");
	calls_are(w, "--oneliner show job 9\nrequeue 9\n--oneliner show job 9\n"
		     "update JobId=9 StartTime=now+15\n");
}

int main(void)
{
#define SURVEY_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
	const struct CMUnitTest tests[] = {
		/* First: no address is known from an earlier survey. */
		SURVEY_TEST(without_any_answer_a_refusal_or_a_name_proves_nothing),
		SURVEY_TEST(the_controller_says_which_nodes_are_left_and_usable),
		SURVEY_TEST(stalls_of_the_supervisor_are_not_those_of_nodes),
		SURVEY_TEST(suspects_are_connected_to),
		SURVEY_TEST(what_is_known_of_the_nodes_counts_without_the_job),
		SURVEY_TEST(what_is_known_of_the_job_counts_without_the_nodes),
		SURVEY_TEST(a_controller_that_hangs_is_not_waited_for),
		SURVEY_TEST(a_survey_can_be_stopped),
		SURVEY_TEST(many_nodes_are_asked_for_in_several_commands),
		SURVEY_TEST(outside_a_job_there_is_nothing_to_ask),
		SURVEY_TEST(a_requeue_excludes_nodes_and_never_holds_the_job),
		SURVEY_TEST(nodes_are_not_excluded_if_too_few_would_be_left),
		SURVEY_TEST(a_job_that_cannot_be_requeued_is_left_alone),
		SURVEY_TEST(a_refused_requeue_changes_nothing),
		SURVEY_TEST(a_requeue_whose_command_was_killed_is_found_out),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
