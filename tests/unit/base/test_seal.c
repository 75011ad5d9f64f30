/* Tests sealed texts in places where others can read and write. test_auth.c tests frames of a
 * channel. */
#include "base/seal.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const unsigned char key[SEAL_KEY_BYTES] = { 1, 2, 3 }, other[SEAL_KEY_BYTES] = { 1, 2, 4 };
static const char text[] = "10.0.0.7:4711 and a secret";

static char *sealed(const char *words)
{
	char *out = NULL;
	assert_int_equal(seal_text(key, "rank 3", words, &out, NULL), 0);
	return out;
}

static void refused(const unsigned char k[SEAL_KEY_BYTES], const char *about, const char *words)
{
	struct err e = ERR_INIT;
	char *out = (char *)text;
	assert_int_equal(seal_open_text(k, about, words, &out, &e), -1);
	assert_int_equal(e.code, ERR_AUTH);
	assert_ptr_equal(out, text);
}

static void a_sealed_text_opens_with_its_key_and_subject(void **state)
{
	(void)state;
	const char *const all[] = { "", "a", text };
	for (size_t i = 0; i < 3; i++) {
		char *s = sealed(all[i]), *back;
		assert_int_equal(seal_open_text(key, "rank 3", s, &back, NULL), 0);
		assert_string_equal(back, all[i]);
		free(back);
		free(s);
	}
}

static void the_same_text_is_never_sealed_alike(void **state)
{
	(void)state;
	char *a = sealed(text), *b = sealed(text);
	assert_string_not_equal(a, b);
	assert_null(strstr(a, "4711"));
	free(a);
	free(b);
}

static void another_key_or_subject_does_not_open_it(void **state)
{
	(void)state;
	char *s = sealed(text);
	refused(other, "rank 3", s);
	refused(key, "rank 2", s);
	refused(key, "", s);
	free(s);
}

static void a_changed_cut_or_invented_text_does_not_open(void **state)
{
	(void)state;
	char *s = sealed(text);
	for (size_t i = 0; s[i]; i++) {
		char was = s[i];
		s[i] = was == 'A' ? 'B' : 'A';
		refused(key, "rank 3", s);
		s[i] = '\0';
		refused(key, "rank 3", s);
		s[i] = was;
	}
	refused(key, "rank 3", "{\"muster.comm.1\":\"plain\"}");
	refused(key, "rank 3", "AAAA");
	free(s);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_sealed_text_opens_with_its_key_and_subject),
		cmocka_unit_test(the_same_text_is_never_sealed_alike),
		cmocka_unit_test(another_key_or_subject_does_not_open_it),
		cmocka_unit_test(a_changed_cut_or_invented_text_does_not_open),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
