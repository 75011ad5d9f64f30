/* Tests what is counted of the processes below one: live ones, and those that have ended. */
#include "agent/task/activity.h"
#include "agent/task/tree.h"
#include "tests/unit/patience.h"

#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static double own_cpu_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* A process computes for this much CPU time, however long it takes. */
static void compute(double seconds)
{
	for (double until = own_cpu_s() + seconds; own_cpu_s() < until;)
		;
}

/* Forks a process that computes, writes a byte and waits until it is killed. */
static pid_t fork_worker(int ready, double seconds)
{
	pid_t pid = fork();
	if (pid)
		return pid;
	compute(seconds);
	if (write(ready, "", 1) < 0)
		_exit(1);
	for (;;)
		pause();
}

static void *fork_in_thread(void *arg)
{
	fork_worker(*(int *)arg, 0);
	pause();
	return NULL;
}

/* Two workers, one of which a thread starts, and a child that has computed and is waited for. */
static void play_root(int ready, double seconds)
{
	pthread_t thread;
	pid_t ended = fork();
	if (!ended) {
		compute(seconds);
		_exit(0);
	}
	waitpid(ended, NULL, 0);
	pthread_create(&thread, NULL, fork_in_thread, &ready);
	pause();
}

static void await_bytes(int fd, int n)
{
	char c;
	while (n--) {
		struct pollfd p = { .fd = fd, .events = POLLIN };
		assert_int_equal(poll(&p, 1, PATIENCE_S * 1000), 1);
		assert_int_equal(read(fd, &c, 1), 1);
	}
}

static void kill_tree(pid_t root)
{
	struct task_tree t = { 0 };
	task_tree_read(root, &t);
	for (int i = t.n - 1; i >= 0; i--)
		task_tree_kill(&t.nodes[i], NULL);
	task_tree_free(&t);
	kill(root, SIGKILL);
	waitpid(root, NULL, 0);
}

static void processes_of_all_threads_and_ended_ones_count(void **state)
{
	(void)state;
	int ready[2];
	struct task_activity a;
	assert_int_equal(pipe(ready), 0);
	pid_t root = fork();
	if (!root) {
		play_root(ready[1], 0.2);
		_exit(0);
	}
	await_bytes(ready[0], 1);
	struct task_watch *w = task_activity_open(root);
	task_activity_look(w, &a);
	assert_true(a.cpu_s >= 0.18); /* of the child that has ended; the kernel counts ticks */
	assert_true(a.used_s == 0);
	task_activity_close(w);
	w = task_activity_open(getpid()); /* it has not waited for anything yet */
	task_activity_look(w, &a);
	assert_true(a.cpu_s >= 0.18);
	task_activity_close(w);
	kill_tree(root);
	close(ready[0]);
	close(ready[1]);
}

static void the_time_since_the_last_look_is_that_of_new_work(void **state)
{
	(void)state;
	int ready[2], go[2];
	struct task_activity a;
	assert_int_equal(pipe(ready), 0);
	assert_int_equal(pipe(go), 0);
	pid_t root = fork();
	if (!root) {
		char c;
		pid_t pid = fork();
		if (!pid && read(go[0], &c, 1) == 1)
			compute(0.3);
		if (!pid && write(ready[1], "", 1) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	struct task_watch *w = task_activity_open(root);
	task_activity_look(w, &a);
	double before = a.cpu_s;
	assert_int_equal(write(go[1], "", 1), 1);
	await_bytes(ready[0], 1);
	task_activity_look(w, &a);
	assert_true(a.used_s >= 0.27);
	assert_float_equal(a.cpu_s, before + a.used_s, 1e-9);
	task_activity_close(w);
	kill_tree(root);
	for (int i = 0; i < 2; i++) {
		close(ready[i]);
		close(go[i]);
	}
}

/* It counts in the process itself, and later in its parent. */
static void the_time_of_a_process_stays_when_it_ends(void **state)
{
	(void)state;
	int ready[2];
	struct task_activity a;
	assert_int_equal(pipe(ready), 0);
	struct task_watch *w = task_activity_open(getpid());
	pid_t pid = fork_worker(ready[1], 0.2);
	await_bytes(ready[0], 1);
	task_activity_look(w, &a);
	double before = a.cpu_s;
	assert_true(before >= 0.18);
	kill(pid, SIGKILL);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	task_activity_look(w, &a);
	assert_true(a.cpu_s >= before);
	task_activity_close(w);
	close(ready[0]);
	close(ready[1]);
}

static void the_tree_lists_parents_before_children(void **state)
{
	(void)state;
	int ready[2];
	struct task_tree t = { 0 };
	assert_int_equal(pipe(ready), 0);
	pid_t child = fork();
	if (!child) {
		fork_worker(ready[1], 0);
		for (;;)
			pause();
	}
	await_bytes(ready[0], 1);
	task_tree_read(getpid(), &t);
	assert_int_equal(t.n, 2);
	assert_int_equal(t.nodes[0].pid, child);
	assert_int_equal(t.nodes[0].parent, getpid());
	assert_int_equal(t.nodes[1].parent, child);
	/* A process that has another parent is another process. */
	struct task_tree_node other = { t.nodes[1].pid, getpid() };
	assert_false(task_tree_kill(&other, NULL));
	task_tree_free(&t);
	kill_tree(child);
	close(ready[0]);
	close(ready[1]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(processes_of_all_threads_and_ended_ones_count),
		cmocka_unit_test(the_time_since_the_last_look_is_that_of_new_work),
		cmocka_unit_test(the_time_of_a_process_stays_when_it_ends),
		cmocka_unit_test(the_tree_lists_parents_before_children),
	};
	return cmocka_run_group_tests_name("task_activity", tests, NULL, NULL);
}
