/* The gate that a new agent passes: agents of earlier generations end, whatever they do about
 * signals, and no other process is touched. The decoys are children that take a name. */
#include "agent/predecessors.h"

#include "base/log.h"
#include "base/messages.h"
#include "base/process_id.h"
#include "base/process_stat.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#define NAME "muster-agent"

static const struct predecessors_gate gate = { .node = "n7" };
static char warnings[4096];

static void keep(enum log_level level, const char *text, void *arg)
{
	(void)level, (void)arg;
	size_t len = strlen(warnings);
	snprintf(warnings + len, sizeof warnings - len, "%s\n", text);
}

static int setup(void **state)
{
	(void)state;
	log_setup(open("/dev/null", O_WRONLY | O_CLOEXEC), LOG_DEBUG, "test");
	log_hook(LOG_WARN, keep, NULL);
	*warnings = '\0';
	return prctl(PR_SET_NAME, NAME);
}

enum habit { IGNORES_SIGTERM, STOPPED, WAITS_FOR_VFORK };

static void live(enum habit habit, int ready)
{
	signal(SIGTERM, SIG_IGN);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (habit == WAITS_FOR_VFORK) {
		/* The parent of vfork is in state D until its child ends. */
		pid_t child = vfork();
		if (!child) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (write(ready, "", 1) == 1)
				for (;;)
					pause();
			_exit(1);
		}
	}
	if (write(ready, "", 1) != 1)
		_exit(1);
	if (habit == STOPPED)
		raise(SIGSTOP);
	for (;;)
		pause();
}

static pid_t decoy(const char *name, enum habit habit)
{
	int ready[2];
	char byte;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (!pid) {
		prctl(PR_SET_NAME, name);
		close(ready[0]);
		live(habit, ready[1]);
	}
	assert_true(pid > 0);
	close(ready[1]);
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	siginfo_t info;
	if (habit == STOPPED)
		assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED | WNOWAIT), 0);
	return pid;
}

/* Waits until the decoy is where its habit keeps it. */
static void await_state(pid_t pid, char wanted)
{
	struct process_stat s = { .state = '?' };
	for (; s.state != wanted; usleep(1000))
		assert_int_equal(process_stat_read(pid, &s), 0);
}

/* What a supervisor knows of a decoy. */
static struct msg_predecessor known(pid_t pid)
{
	static struct process_id self;
	struct process_stat s;
	process_id_self(&self);
	assert_int_equal(process_stat_read(pid, &s), 0);
	return (struct msg_predecessor){ .generation = 3,
					 .pid = pid,
					 .start = s.start,
					 .pid_space = self.pid_space,
					 .boot = self.boot };
}

static int end_agents(const struct predecessors_gate *g, const struct msg_predecessor *all,
		      size_t n, struct err *e)
{
	*e = (struct err)ERR_INIT;
	json_t *list = json_array();
	for (size_t i = 0; i < n; i++)
		json_array_append_new(list, msg_predecessor_json(&all[i]));
	int rc = agent_predecessors_end(g, list, e);
	json_decref(list);
	return rc;
}

/* Succeeds if the child still runs; ends it. */
static bool still_ran(pid_t pid)
{
	siginfo_t info = { 0 };
	assert_int_equal(waitid(P_PID, (id_t)pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
	bool runs = info.si_pid == 0;
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	return runs;
}

static void agents_that_ignore_signals_or_are_stopped_are_gone_when_it_returns(void **state)
{
	(void)state;
	struct err e;
	pid_t pids[2] = { decoy(NAME, IGNORES_SIGTERM), decoy(NAME, STOPPED) };
	const struct msg_predecessor all[] = { known(pids[0]), known(pids[1]) };
	char says[64];
	assert_int_equal(end_agents(&gate, all, 2, &e), 0);
	for (int i = 0; i < 2; i++) {
		snprintf(says, sizeof says, "%d (generation 3)", (int)pids[i]);
		assert_non_null(strstr(warnings, says));
		assert_false(still_ran(pids[i]));
	}
	assert_int_equal(end_agents(&gate, all, 2, &e), 0); /* their pids are free now */
}

static void several_new_agents_may_end_the_same_one(void **state)
{
	(void)state;
	struct err e;
	pid_t pid = decoy(NAME, STOPPED), others[4];
	const struct msg_predecessor p = known(pid);
	for (int i = 0; i < 4; i++)
		if (!(others[i] = fork()))
			_exit(end_agents(&gate, &p, 1, &e) ? 1 : 0);
	for (int i = 0; i < 4; i++) {
		int status;
		assert_int_equal(waitpid(others[i], &status, 0), others[i]);
		assert_int_equal(status, 0);
	}
	assert_false(still_ran(pid));
}

static void another_process_is_never_touched(void **state)
{
	(void)state;
	struct err e;
	pid_t pid = decoy(NAME, IGNORES_SIGTERM), stranger = decoy("sleep", IGNORES_SIGTERM);
	struct msg_predecessor rows[] = { known(pid), known(pid), known(pid),     known(pid),
					  known(pid), known(pid), known(stranger) };
	rows[0].start++; /* the pid was used again */
	rows[1].start = 0;
	rows[2].boot = "00000000-0000-0000-0000-000000000000";
	rows[3].pid_space++;
	rows[4] = known(getpid());
	rows[5].pid = 0;
	assert_int_equal(end_agents(&gate, rows, sizeof rows / sizeof *rows, &e), 0);
	assert_true(still_ran(pid));
	assert_true(still_ran(stranger));
	assert_non_null(strstr(warnings, "n7: the agent of generation 3 (pid "));
	assert_non_null(strstr(warnings, "another PID namespace"));
	assert_null(strstr(warnings, "killed"));
}

static void an_agent_of_another_user_is_not_touched(void **state)
{
	(void)state;
	struct err e;
	if (geteuid())
		skip(); /* only root can start one */
	int ready[2];
	char byte;
	assert_int_equal(pipe(ready), 0);
	pid_t pid = fork();
	if (!pid) {
		if (setuid(65534))
			_exit(1);
		prctl(PR_SET_NAME, NAME);
		live(IGNORES_SIGTERM, ready[1]);
	}
	assert_int_equal(read(ready[0], &byte, 1), 1);
	close(ready[0]);
	close(ready[1]);
	const struct msg_predecessor p = known(pid);
	assert_int_equal(end_agents(&gate, &p, 1, &e), 0);
	assert_true(still_ran(pid));
}

static int kill_nothing(int fd, int pid)
{
	(void)fd, (void)pid;
	return 0;
}

static int kill_forbidden(int fd, int pid)
{
	(void)fd, (void)pid;
	errno = EPERM;
	return -1;
}

static void an_agent_that_does_not_end_is_reported_with_its_state(void **state)
{
	(void)state;
	static const struct {
		enum habit habit;
		char state;
		const char *says[2];
	} rows[] = {
		{ IGNORES_SIGTERM, 'S', { "(state S) 0.05 s after SIGKILL; end it there", "" } },
		{ STOPPED, 'T', { "(state T) 0.05 s after SIGKILL; end it there", "" } },
		{ WAITS_FOR_VFORK,
		  'D',
		  { "(state D) 0.05 s after SIGKILL", "stuck in the kernel: the node needs" } },
	};
	const struct predecessors_gate stuck = { .node = "n7",
						 .patience = 0.05,
						 .kill = kill_nothing };
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct err e;
		char who[64];
		pid_t pid = decoy(NAME, rows[i].habit);
		await_state(pid, rows[i].state);
		const struct msg_predecessor p = known(pid);
		assert_int_equal(end_agents(&stuck, &p, 1, &e), -1);
		assert_int_equal(e.code, ERR_STUCK);
		snprintf(who, sizeof who, "n7: process %d, an agent of generation 3,", (int)pid);
		assert_non_null(strstr(e.text, who));
		assert_non_null(strstr(e.text, rows[i].says[0]));
		assert_non_null(strstr(e.text, rows[i].says[1]));
		assert_true(still_ran(pid));
	}
}

static void an_agent_that_may_not_be_killed_is_an_error(void **state)
{
	(void)state;
	struct err e;
	const struct predecessors_gate forbidden = { .node = "n7", .kill = kill_forbidden };
	pid_t pid = decoy(NAME, IGNORES_SIGTERM);
	const struct msg_predecessor p = known(pid);
	assert_int_equal(end_agents(&forbidden, &p, 1, &e), -1);
	assert_non_null(strstr(e.text, "cannot be killed: Operation not permitted"));
	assert_true(still_ran(pid));
}

static void a_list_with_an_invalid_element_ends_nothing(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	pid_t pid = decoy(NAME, IGNORES_SIGTERM);
	const struct msg_predecessor p = known(pid);
	json_t *list = json_array(), *object = json_object();
	json_array_append_new(list, msg_predecessor_json(&p));
	json_array_append_new(list, json_pack("{s:s}", "pid", "7"));
	assert_int_equal(agent_predecessors_end(&gate, list, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	assert_int_equal(agent_predecessors_end(&gate, object, &e), -1);
	assert_int_equal(e.code, ERR_PROTO);
	assert_int_equal(agent_predecessors_end(&gate, NULL, &e), 0);
	json_decref(list);
	json_decref(object);
	assert_true(still_ran(pid));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(
			agents_that_ignore_signals_or_are_stopped_are_gone_when_it_returns, setup),
		cmocka_unit_test_setup(several_new_agents_may_end_the_same_one, setup),
		cmocka_unit_test_setup(another_process_is_never_touched, setup),
		cmocka_unit_test_setup(an_agent_of_another_user_is_not_touched, setup),
		cmocka_unit_test_setup(an_agent_that_does_not_end_is_reported_with_its_state,
				       setup),
		cmocka_unit_test_setup(an_agent_that_may_not_be_killed_is_an_error, setup),
		cmocka_unit_test_setup(a_list_with_an_invalid_element_ends_nothing, setup),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
