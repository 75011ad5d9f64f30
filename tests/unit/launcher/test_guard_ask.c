/* What a guard asks Slurm, with shell scripts in place of scontrol and scancel. */
#include "base/net.h"
#include "launcher/slurm/guard_ask.h"
#include "tests/unit/tmpdir.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static struct {
	char folder[64];
} t;

static int setup(void **state)
{
	char path[512];
	(void)state;
	if (!tmpdir_make(t.folder, sizeof t.folder))
		return -1;
	snprintf(path, sizeof path, "%s:/usr/bin:/bin", t.folder);
	return setenv("PATH", path, 1);
}

static int teardown(void **state)
{
	char command[128];
	(void)state;
	snprintf(command, sizeof command, "rm -r %s", t.folder);
	return system(command);
}

static void write_script(const char *name, const char *text)
{
	char path[128];
	snprintf(path, sizeof path, "%s/%s", t.folder, name);
	FILE *f = fopen(path, "we");
	assert_non_null(f);
	fprintf(f, "#!/bin/sh\n%s\n", text);
	fclose(f);
	assert_int_equal(chmod(path, 0700), 0);
}

/* scontrol that knows a job in this state, whose batch host has slurmd at `address`. */
static void write_scontrol(const char *job_state, const char *address)
{
	char text[1024];
	const char *port = strrchr(address, ':');
	snprintf(text, sizeof text,
		 "case \"$*\" in\n"
		 "*'show job 7') echo 'JobId=7 JobName=a JobState=%s Requeue=1 BatchFlag=1 "
		 "BatchHost=n1 ';;\n"
		 "*'show node n1') echo 'NodeName=n1 NodeAddr=%.*s Port=%s State=MIXED';;\n"
		 "*) exit 3;;\n"
		 "esac",
		 job_state, (int)(port - address), address, port + 1);
	write_script("scontrol", text);
}

static struct guard_answer ask(char detail[GUARD_DETAIL])
{
	struct guard_answer a;
	slurm_guard_ask("7", &a, detail);
	return a;
}

static void a_job_line_is_read(void **state)
{
	(void)state;
	struct guard_job j;
	assert_true(slurm_guard_job_parse("JobId=7 JobState=RUNNING Requeue=1 BatchFlag=1 "
					  "NodeList=n[1-3] BatchHost=n1 NumNodes=3\n",
					  &j));
	assert_true(j.running && j.batch && j.may_requeue && !j.gpus);
	assert_string_equal(j.host, "n1");
	assert_true(slurm_guard_job_parse("JobState=COMPLETING Requeue=0 BatchFlag=0\n", &j));
	assert_false(j.running || j.batch || j.may_requeue);
	assert_string_equal(j.host, "");
	assert_false(slurm_guard_job_parse("slurm_load_jobs error: no\n", &j));
}

static void requested_gpus_are_found(void **state)
{
	(void)state;
	static const struct {
		const char *line;
		bool gpus;
	} rows[] = { { "JobState=RUNNING TresPerNode=gres:gpu:2", true },
		     { "JobState=RUNNING TresPerNode=gres/gpu:h100:8", true },
		     { "JobState=RUNNING TresPerNode=gpu:2", true },
		     { "JobState=RUNNING TresPerJob=gres:gpu:16", true },
		     { "JobState=RUNNING TresPerTask=cpu=4", false },
		     { "JobState=RUNNING TRES=cpu=3,mem=3M,node=3", false } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct guard_job j;
		assert_true(slurm_guard_job_parse(rows[i].line, &j));
		assert_int_equal(j.gpus, rows[i].gpus);
	}
}

static void a_node_that_slurm_counts_as_down_is_known(void **state)
{
	(void)state;
	assert_true(slurm_guard_node_down("NodeName=n1 Port=1 State=DOWN+NOT_RESPONDING X=1"));
	assert_true(slurm_guard_node_down("NodeName=n1 State=DOWN* X=1"));
	assert_false(slurm_guard_node_down("NodeName=n1 State=MIXED+NOT_RESPONDING X=1"));
	assert_false(slurm_guard_node_down("NodeName=n1"));
}

static void a_suspended_job_counts_as_running(void **state)
{
	(void)state;
	static const struct {
		const char *line;
		bool running;
	} rows[] = { { "JobState=SUSPENDED", true },
		     { "JobState=RESIZING", true },
		     { "JobState=PENDING", false },
		     { "JobState=CANCELLED", false },
		     { "JobState=NODE_FAIL", false } };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct guard_job j;
		assert_true(slurm_guard_job_parse(rows[i].line, &j));
		assert_int_equal(j.running, rows[i].running);
	}
}

static void the_address_of_slurmd_is_read(void **state)
{
	(void)state;
	char out[64];
	assert_true(slurm_guard_node_parse("NodeName=n1 NodeAddr=192.0.2.1 Port=7001 X=1", 6818,
					   out, sizeof out));
	assert_string_equal(out, "192.0.2.1:7001");
	assert_true(
		slurm_guard_node_parse("NodeName=n1 NodeAddr=fd77::1 X=1", 6818, out, sizeof out));
	assert_string_equal(out, "[fd77::1]:6818");
	assert_false(slurm_guard_node_parse("NodeName=n1", 6818, out, sizeof out));
	assert_false(slurm_guard_node_parse("NodeAddr=a Port=70001", 6818, out, sizeof out));
	assert_false(slurm_guard_node_parse("NodeAddr=a Port=-1", 6818, out, sizeof out));
}

static void a_batch_host_that_accepts_connections_answers(void **state)
{
	(void)state;
	int listener;
	char address[NET_ADDR_MAX], detail[GUARD_DETAIL];
	assert_int_equal(net_listen("127.0.0.1", &listener, address, NULL), 0);
	write_scontrol("RUNNING", address);
	struct guard_answer a = ask(detail);
	assert_true(a.answered && a.running && a.batch && a.may_requeue && a.host_answers);
	assert_string_equal(detail, "the job is RUNNING; its batch host n1 answers");
	close(listener);
	a = ask(detail);
	assert_true(a.answered && a.running && !a.host_answers);
	assert_non_null(strstr(detail, "its batch host n1 does not answer: "));
}

static void the_host_of_a_job_that_ends_is_not_asked(void **state)
{
	(void)state;
	char detail[GUARD_DETAIL];
	write_scontrol("COMPLETING", "127.0.0.1:1");
	struct guard_answer a = ask(detail);
	assert_true(a.answered && !a.running);
}

static void a_controller_that_is_away_has_not_answered(void **state)
{
	(void)state;
	char detail[GUARD_DETAIL];
	write_script("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1");
	assert_false(ask(detail).answered);
	assert_non_null(strstr(detail, "Unable to contact slurm controller"));
}

static void a_job_that_the_controller_has_forgotten_has_ended(void **state)
{
	(void)state;
	char detail[GUARD_DETAIL];
	write_script("scontrol",
		     "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1");
	struct guard_answer a = ask(detail);
	assert_true(a.answered && !a.running);
}

static void the_refusal_to_requeue_is_reported(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	write_script("scontrol", "echo \"no: $*\" >&2; exit 1");
	assert_int_equal(slurm_guard_requeue("7", &e), -1);
	assert_non_null(strstr(e.text, "no: requeue 7"));
	write_script("scancel", "test \"$*\" = 7");
	assert_int_equal(slurm_guard_cancel("7", &e), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_job_line_is_read),
		cmocka_unit_test(requested_gpus_are_found),
		cmocka_unit_test(a_node_that_slurm_counts_as_down_is_known),
		cmocka_unit_test(a_suspended_job_counts_as_running),
		cmocka_unit_test(the_address_of_slurmd_is_read),
		T(a_batch_host_that_accepts_connections_answers),
		T(the_host_of_a_job_that_ends_is_not_asked),
		T(a_controller_that_is_away_has_not_answered),
		T(a_job_that_the_controller_has_forgotten_has_ended),
		T(the_refusal_to_requeue_is_reported),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
