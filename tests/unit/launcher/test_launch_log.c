/* Tests what Slurm's words in the launch log say about a loss. The lines are Slurm 22.05's. */
#include "launcher/supervise/launch_log.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static void the_end_of_each_task_is_found(void **state)
{
	(void)state;
	static const char text[] = "0: muster-agent: hello\n"
				   "srun: error: n2: task 3: Exited with exit code 7\n"
				   "srun: error: n1: tasks 0-1,12: Killed\n"
				   "srun: error: n1: task 2: Segmentation fault (core dumped)\n"
				   "srun: error: n3: task 4: Out Of Memory\n"
				   "srun: Force Terminated StepId=1.0\n";
	static const struct {
		int rank, signal, status;
		bool oom;
	} want[] = {
		{ 3, 0, 7, false },        { 0, SIGKILL, 0, false }, { 1, SIGKILL, 0, false },
		{ 12, SIGKILL, 0, false }, { 2, SIGSEGV, 0, false }, { 4, SIGKILL, 0, true },
		{ 5, 0, 0, false },        { -1, 0, 7, false },
	};
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		struct launch_log log;
		supervise_launch_log_read(text, want[i].rank, &log);
		assert_int_equal(log.signal, want[i].signal);
		assert_int_equal(log.status, want[i].status);
		assert_int_equal(log.out_of_memory, want[i].oom);
		assert_int_equal(log.said, SLURM_SAID_NOTHING);
	}
}

/* clang-format off */

static const struct {
	enum slurm_word said;
	const char *text;
} sayings[] = {
	{ SLURM_SAID_NO_PMIX, "srun: error: Couldn't find the specified plugin name for mpi/pmix looking at all files\nsrun: error: Invalid MPI type 'pmix', --mpi=list for acceptable types\n" },
	{ SLURM_SAID_NO_MUNGE, "srun: error: If munged is up, restart with --num-threads=10\nsrun: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\": No such file or directory (Did you start munged?)\n" },
	{ SLURM_SAID_NO_MUNGE, "srun: error: Unable to confirm allocation for job 3: Protocol authentication error\n" },
	{ SLURM_SAID_NO_CONTROLLER, "srun: error: Unable to confirm allocation for job 3: Unable to contact slurm controller (connect failure)\n" },
	{ SLURM_SAID_NO_MEMORY, "srun: error: Unable to create step for job 5: Memory required by task is not available\n" },
	{ SLURM_SAID_NO_PROGRAM, "slurmstepd-n1: error: execve(): /no/such/agent: No such file or directory\n" },
	{ SLURM_SAID_EXPIRED, "srun: error: Slurm job 2 has expired\nsrun: Check SLURM_JOB_ID environment variable. Expired or invalid job 2\n" },
	{ SLURM_SAID_EXPIRED, "srun: error: Unable to confirm allocation for job 1: Invalid job id specified\nsrun: Check SLURM_JOB_ID environment variable. Expired or invalid job 1\n" },
	{ SLURM_SAID_NODE_FAILED, "srun: error: Node failure on n3\n" },
	{ SLURM_SAID_CANCELLED, "slurmstepd-n1: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-22T15:00:00 DUE TO TIME LIMIT ***\n" },
	{ SLURM_SAID_CANCELLED, "12: slurmstepd: error: *** STEP 5.0 ON n1 CANCELLED AT 2026-11-22T15:00:00 ***" },
	/* an agent's own line does not count */
	{ SLURM_SAID_NOTHING, "3: cannot find mpi plugin for mpi/pmix\nexecve(): no\n" },
	{ SLURM_SAID_NOTHING, "" },
};

/* clang-format on */

static void slurms_words_are_found(void **state)
{
	(void)state;
	struct launch_log log;
	for (size_t i = 0; i < sizeof sayings / sizeof *sayings; i++) {
		supervise_launch_log_read(sayings[i].text, 0, &log);
		assert_int_equal(log.said, sayings[i].said);
		assert_false(log.out_of_memory);
	}
	supervise_launch_log_read("slurmstepd-n1: error: Detected 1 oom_kill event in StepId=1.0. "
				  "Some of the step tasks have been OOM Killed.\n",
				  0, &log);
	assert_true(log.out_of_memory);
}

static void damaged_lines_change_nothing(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"srun: error: n1: task",
		"srun: error: n1: tasks 0-",
		"srun: : task : Killed",
		"srun: error: n1: task 99999999999999999999999: Killed",
		"srun: ",
		"srun: error: n1: task 0: Exited with exit code",
		"srun: error: n1: task 0: Killedx",
	};
	struct launch_log log;
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		supervise_launch_log_read(texts[i], 0, &log);
		assert_int_equal(log.signal, 0);
		assert_int_equal(log.status, 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_end_of_each_task_is_found),
		cmocka_unit_test(slurms_words_are_found),
		cmocka_unit_test(damaged_lines_change_nothing),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
