/* Tests what a new thread does with signals, and its name. */
#include "base/thread.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

struct seen {
	sigset_t blocked;
	pthread_barrier_t named; /* its starter has named it */
	char name[THREAD_NAME];
};

static void *look(void *arg)
{
	struct seen *s = arg;
	pthread_sigmask(SIG_BLOCK, NULL, &s->blocked);
	pthread_barrier_wait(&s->named);
	pthread_getname_np(pthread_self(), s->name, sizeof s->name);
	return NULL;
}

static void start_and_join(const char *name, struct seen *s)
{
	pthread_t thread;
	pthread_barrier_init(&s->named, NULL, 2);
	assert_int_equal(thread_start(&thread, name, look, s), 0);
	pthread_barrier_wait(&s->named);
	assert_int_equal(pthread_join(thread, NULL), 0);
	pthread_barrier_destroy(&s->named);
}

static bool blocks(int signal)
{
	sigset_t now;
	pthread_sigmask(SIG_BLOCK, NULL, &now);
	return sigismember(&now, signal);
}

static void a_thread_blocks_signals_and_its_starter_does_not(void **state)
{
	(void)state;
	struct seen s;
	start_and_join("worker", &s);
	static const int signals[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD, SIGALRM };
	for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
		assert_true(sigismember(&s.blocked, signals[i]));
		assert_false(blocks(signals[i]));
	}
}

static void what_was_blocked_stays_blocked(void **state)
{
	(void)state;
	sigset_t set, before;
	sigemptyset(&set);
	sigaddset(&set, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &set, NULL);
	thread_block_signals(&before);
	assert_true(blocks(SIGTERM));
	thread_restore_signals(&before);
	assert_true(blocks(SIGUSR2));
	assert_false(blocks(SIGTERM));
	pthread_sigmask(SIG_UNBLOCK, &set, NULL);
}

static void a_thread_has_its_name_cut_to_what_the_kernel_keeps(void **state)
{
	(void)state;
	struct seen s;
	start_and_join("worker", &s);
	assert_string_equal(s.name, "worker");
	start_and_join("a-name-that-is-too-long", &s);
	assert_string_equal(s.name, "a-name-that-is-");
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_thread_blocks_signals_and_its_starter_does_not),
		cmocka_unit_test(what_was_blocked_stays_blocked),
		cmocka_unit_test(a_thread_has_its_name_cut_to_what_the_kernel_keeps),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
