/* Compares the hash of names with published values. */
#include "base/hash.h"
#include "base/numbers.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

/* The values are from the FNV authors' test vectors for FNV-1a, 64 bits. */
static void hashes_equal_the_published_values(void **state)
{
	(void)state;
	assert_true(hash_text("") == 0xcbf29ce484222325u);
	assert_true(hash_text("a") == 0xaf63dc4c8601ec8cu);
	assert_true(hash_text("foobar") == 0x85944171f73967e8u);
	assert_true(hash_bytes("foobar", 1) == hash_text("f"));
}

static void numbers_are_rounded_up_to_a_multiple(void **state)
{
	(void)state;
	assert_int_equal(round_up_int64(0, 8), 0);
	assert_int_equal(round_up_int64(1, 8), 8);
	assert_int_equal(round_up_int64(16, 8), 16);
	assert_int_equal(min_int64(-3, 2), -3);
	assert_int_equal(max_int64(-3, 2), 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes_equal_the_published_values),
		cmocka_unit_test(numbers_are_rounded_up_to_a_multiple),
	};
	return cmocka_run_group_tests_name("hash and numbers", tests, NULL, NULL);
}
