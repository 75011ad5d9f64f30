/* Where threads are, and which rank is elsewhere. */
#include "base/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

/* clang-format off */
#define REDUCE "its main thread waits in the system call futex, in all_reduce (torch/distributed/distributed_c10d.py:4181)"
#define BY_STEP REDUCE ", called by train_step (train.py:42)"
#define BY_CHECK REDUCE ", called by validate (train.py:90)"
#define LOAD "its main thread is in the system call read of /data/a.bin, in load (data.py:12)"
#define LOAD_LATER "its main thread computes (99 % of a core), in load (data.py:14)"
#define PARSE "its main thread computes (99 % of a core), in parse (data.py:80)"
#define NATIVE "its main thread waits in the system call futex, in ncclProxy() of libnccl.so.2"

static const struct {
	const char *what, *clauses[5];
	int n, odd;
} cases[] = {
	{ "one does not come", { REDUCE, REDUCE, LOAD, REDUCE }, 4, 2 },
	{ "of two", { BY_STEP, LOAD }, 2, 1 },
	{ "several do not come", { BY_STEP, LOAD, LOAD }, 3, 1 },
	{ "a library's wait counts, too", { NATIVE, NATIVE, PARSE }, 3, 2 },
	{ "each in another wait", { NATIVE, REDUCE }, 2, -1 },
	{ "all wait, one called from elsewhere", { BY_STEP, BY_CHECK, BY_STEP }, 3, 1 },
	{ "all wait in the same place", { BY_STEP, BY_STEP, BY_STEP }, 3, -1 },
	{ "nobody waits, one is elsewhere", { PARSE, LOAD, LOAD_LATER, LOAD }, 4, 0 },
	{ "another line of the same function", { LOAD, LOAD, LOAD_LATER }, 3, 2 },
	{ "half and half", { LOAD, LOAD, PARSE, PARSE }, 4, -1 },
	{ "some are unknown", { NULL, REDUCE, "its process has ended", LOAD, REDUCE }, 5, 3 },
	{ "one is known", { NULL, LOAD, NULL }, 3, -1 },
	{ "the caller does not wait", { "it waits, in load (data.py:1), called by f (torch/distributed/distributed_c10d.py:1)", REDUCE },
	  2, 0 },
};
/* clang-format on */

static void the_rank_that_is_elsewhere_is_found(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		int odd = frame_odd(cases[i].clauses, cases[i].n);
		if (odd != cases[i].odd)
			fail_msg("%s: %d in place of %d", cases[i].what, odd, cases[i].odd);
	}
	assert_int_equal(frame_odd(NULL, 0), -1);
}

static void the_last_part_of_a_clause_is_its_frame(void **state)
{
	(void)state;
	assert_string_equal(frame_of(LOAD), "load (data.py:12)");
	assert_string_equal(frame_of("it is in read of /a, in b, in f (x.py:1)"), "f (x.py:1)");
	assert_null(frame_of("its process is stopped by a signal"));
	assert_null(frame_of("it waits, in "));
	assert_null(frame_of(NULL));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_rank_that_is_elsewhere_is_found),
		cmocka_unit_test(the_last_part_of_a_clause_is_its_frame),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
