/* Compares the hash of names with published values. */
#include "base/hash.h"

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

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(hashes_equal_the_published_values),
	};
	return cmocka_run_group_tests_name("hash", tests, NULL, NULL);
}
