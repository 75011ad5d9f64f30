/* The parser of scontrol's descriptions of jobs and nodes. */
#include "launcher/slurm/job_record.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

/* As Slurm 22.05 prints it, after the job has lost n3. */
static const char job[] =
	"JobId=8 JobName=wrap UserId=root(0) GroupId=root(0) JobState=RUNNING Reason=None "
	"Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 Partition=main "
	"ReqNodeList=(null) ExcNodeList=n[8-9] NodeList=n[1-2,4] BatchHost=n1 NumNodes=3 NumCPUs=6 "
	"NumTasks=8 CPUs/Task=2 NtasksPerN:B:S:C=2:0:*:* CoreSpec=* Comment=NodeList=n7 "
	"Requeue=0\n";

static void a_jobs_line_tells_its_nodes_and_whether_it_can_be_requeued(void **state)
{
	struct job_record r;
	(void)state;
	assert_int_equal(slurm_job_record_parse(job, "8", &r, NULL), 0);
	assert_string_equal(r.state, "RUNNING");
	assert_string_equal(r.partition, "main");
	assert_true(r.can_requeue);
	assert_int_equal(r.tasks_per_node, 2);
	assert_int_equal(r.cpus_per_task, 2);
	assert_int_equal(r.nodes.n, 3);
	assert_string_equal(r.nodes.names[2], "n4");
	assert_int_equal(r.excluded.n, 2);
	assert_string_equal(r.excluded.names[0], "n8");
	slurm_job_record_free(&r);
}

static void only_a_batch_job_that_allows_it_can_be_requeued(void **state)
{
	static const char *const texts[] = {
		"JobId=8 JobState=RUNNING Requeue=0 BatchFlag=1 NodeList=n1\n",
		"JobId=8 JobState=RUNNING Requeue=1 BatchFlag=0 NodeList=n1\n",
		"JobId=8 JobState=RUNNING BatchFlag=1 NodeList=n1\n",
	};
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct job_record r;
		assert_int_equal(slurm_job_record_parse(texts[i], "8", &r, NULL), 0);
		assert_false(r.can_requeue);
		slurm_job_record_free(&r);
	}
}

static void a_heterogeneous_job_has_several_lines(void **state)
{
	struct job_record r;
	(void)state;
	assert_int_equal(slurm_job_record_parse("JobId=80 JobState=FAILED NodeList=n8\n"
						"JobId=8 JobState=PENDING NodeList=(null)\n",
						"8", &r, NULL),
			 0);
	assert_string_equal(r.state, "PENDING");
	assert_int_equal(r.nodes.n, 0);
	assert_int_equal(r.cpus_per_task, 1);
	slurm_job_record_free(&r);
}

static void an_answer_without_the_job_is_an_error(void **state)
{
	static const char *const texts[] = { "", "slurm_load_jobs error: Invalid job id specified",
					     "JobId=81 JobState=RUNNING\n", "JobId=8 Reason=x\n",
					     "JobId=8 JobState=RUNNING NodeList=n[1-\n" };
	(void)state;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct job_record r;
		struct err e = ERR_INIT;
		assert_int_equal(slurm_job_record_parse(texts[i], "8", &r, &e), -1);
		assert_non_null(strstr(e.text, "scontrol show job"));
	}
}

static void every_state_of_a_node_has_a_meaning_for_a_launch(void **state)
{
	/* clang-format off */
	static const struct {
		const char *word;
		enum node_state state;
	} rows[] = {
		{ "IDLE",                          NODE_UP },
		{ "ALLOCATED",                     NODE_UP },
		{ "MIXED+PLANNED",                 NODE_UP },
		{ "ALLOCATED+COMPLETING",          NODE_UP },
		{ "ALLOCATED+DRAIN",               NODE_DRAIN },
		{ "MIXED+DRAIN+NOT_RESPONDING",    NODE_DRAIN },
		{ "DRAINING",                      NODE_DRAIN },
		{ "DOWN",                          NODE_DOWN },
		{ "DOWN*",                         NODE_DOWN },
		{ "DOWN+DRAIN+NOT_RESPONDING",     NODE_DOWN },
		{ "IDLE+POWERED_DOWN",             NODE_DOWN },
		{ "MIXED+FAIL",                    NODE_FAIL },
		{ "FAILING",                       NODE_FAIL },
		{ "FAIL+DRAIN",                    NODE_FAIL },
		{ "ALLOCATED*",                    NODE_UNREACHABLE },
		{ "MIXED+NOT_RESPONDING",          NODE_UNREACHABLE },
		{ "IDLE+REBOOT_REQUESTED",         NODE_UP },
		{ "ALLOCATED+REBOOT_ISSUED",       NODE_DOWN },
		{ "SOMETHING_NEW",                 NODE_UP },
	};
	/* clang-format on */
	(void)state;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		if (slurm_node_state(rows[i].word) != rows[i].state)
			fail_msg("%s: %s", rows[i].word,
				 launcher_node_state_text(slurm_node_state(rows[i].word)));
}

static void nodes_lines_tell_state_and_address(void **state)
{
	const char *text = "Node n9 not found\n"
			   "NodeName=n1 Arch=x86_64 NodeAddr=192.0.2.1 NodeHostName=h1 Port=6819 "
			   "OS=Linux 6.1 State=IDLE Reason=State=DOWN\n"
			   "\n"
			   "NodeName=n2 Port=99999999 State=DOWN*\n"
			   "NodeName=n3 NodeAddr=x\n";
	struct node_record r;
	(void)state;
	assert_true(slurm_node_record_next(&text, &r));
	assert_string_equal(r.name, "n1");
	assert_string_equal(r.host, "192.0.2.1");
	assert_int_equal(r.port, 6819);
	assert_int_equal(r.state, NODE_UP);
	assert_true(slurm_node_record_next(&text, &r));
	assert_string_equal(r.host, "n2");
	assert_int_equal(r.port, SLURMD_PORT);
	assert_int_equal(r.state, NODE_DOWN);
	assert_false(slurm_node_record_next(&text, &r)); /* n3 has no state */
	assert_string_equal(text, "");
}

static void a_partitions_line_tells_its_number_of_nodes(void **state)
{
	(void)state;
	assert_int_equal(slurm_partition_nodes("PartitionName=main Nodes=n[1-4] TotalCPUs=16 "
					       "TotalNodes=4 X=1\n"),
			 4);
	assert_int_equal(slurm_partition_nodes("Partition main not found\n"), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_jobs_line_tells_its_nodes_and_whether_it_can_be_requeued),
		cmocka_unit_test(only_a_batch_job_that_allows_it_can_be_requeued),
		cmocka_unit_test(a_heterogeneous_job_has_several_lines),
		cmocka_unit_test(an_answer_without_the_job_is_an_error),
		cmocka_unit_test(every_state_of_a_node_has_a_meaning_for_a_launch),
		cmocka_unit_test(nodes_lines_tell_state_and_address),
		cmocka_unit_test(a_partitions_line_tells_its_number_of_nodes),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
