#include "topo/hostlist.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void expands_to(const char *text, const char *names)
{
	struct hostlist h;
	struct err e = ERR_INIT;
	if (topo_hostlist_expand(text, &h, &e))
		fail_msg("%s: %s", text, e.text);
	char got[1000] = "";
	for (int i = 0; i < h.n; i++) {
		strcat(got, i ? " " : "");
		strcat(got, h.names[i]);
	}
	assert_string_equal(got, names);
	topo_hostlist_free(&h);
}

static void refuses(const char *text, const char *why)
{
	struct hostlist h;
	struct err e = ERR_INIT;
	assert_int_equal(topo_hostlist_expand(text, &h, &e), -1);
	assert_int_equal(e.code, ERR_USAGE);
	if (!strstr(e.text, why))
		fail_msg("%s: \"%s\" does not say \"%s\"", text, e.text, why);
}

static void names_without_ranges_are_kept(void **state)
{
	(void)state;
	expands_to("n1", "n1");
	expands_to("login,gpu-7.cluster", "login gpu-7.cluster");
}

static void ranges_expand_in_order_and_keep_their_width(void **state)
{
	(void)state;
	expands_to("n[1-4]", "n1 n2 n3 n4");
	expands_to("n[1-3,07]", "n1 n2 n3 n07");
	expands_to("n[08-11]", "n08 n09 n10 n11");
	expands_to("n[8-11]", "n8 n9 n10 n11");
	expands_to("a[2,1],b", "a2 a1 b");
	expands_to("n[5]-ib,x[1-2]", "n5-ib x1 x2");
}

static void brackets_multiply(void **state)
{
	(void)state;
	expands_to("r[0-1]n[1-2]", "r0n1 r0n2 r1n1 r1n2");
	expands_to("r[0-1]c[3]s[08,9]", "r0c3s08 r0c3s9 r1c3s08 r1c3s9");
}

static void broken_lists_are_refused_with_the_reason(void **state)
{
	(void)state;
	refuses("", "empty");
	refuses("n1,", "empty");
	refuses("n1,,n2", "empty");
	refuses("n[1-4", "not closed");
	refuses("n[]", "1-4,7");
	refuses("n[1-]", "1-4,7");
	refuses("n[a-b]", "1-4,7");
	refuses("n[1;2]", "1-4,7");
	refuses("n[1-2,]", "1-4,7");
	refuses("n[4-1]", "backwards");
	refuses("n[1-99999999]", "65536");
	refuses("n[0-999][0-999][0-999]", "65536");
	refuses("n[1][1][1][1][1][1][1][1][1]", "8 brackets");
	refuses("n[1234567890123]", "1-4,7");
	refuses("nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn", "63");
}

static void ten_thousand_nodes_expand(void **state)
{
	(void)state;
	struct hostlist h;
	assert_int_equal(topo_hostlist_expand("gpu[00000-09999]", &h, NULL), 0);
	assert_int_equal(h.n, 10000);
	assert_string_equal(h.names[9999], "gpu09999");
	topo_hostlist_free(&h);
}

static void counts_repeat_as_slurm_writes_them(void **state)
{
	(void)state;
	int c[4];
	assert_int_equal(topo_hostlist_counts("4(x2),3", c, 3, NULL), 0);
	assert_true(c[0] == 4 && c[1] == 4 && c[2] == 3);
	assert_int_equal(topo_hostlist_counts("2", c, 1, NULL), 0);
	assert_int_equal(topo_hostlist_counts("1,2(x3)", c, 4, NULL), 0);
	assert_true(c[0] == 1 && c[1] == 2 && c[3] == 2);
}

static void counts_that_do_not_match_are_refused(void **state)
{
	(void)state;
	static const char *const texts[] = {
		"",      "x",      "4(x2)", "4(x4)",   "4(x2),",       "4(x0),1,1,1", "4(x3",
		"4(y3)", "-1(x3)", "1 2 3", "4,4,4,4", "99999999(x3)", "2000000(x3)", "4(x3)5"
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		int c[3] = { 0 };
		struct err e = ERR_INIT;
		if (!topo_hostlist_counts(texts[i], c, 3, &e))
			fail_msg("\"%s\" was taken", texts[i]);
		assert_int_equal(e.code, ERR_USAGE);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(names_without_ranges_are_kept),
		cmocka_unit_test(ranges_expand_in_order_and_keep_their_width),
		cmocka_unit_test(brackets_multiply),
		cmocka_unit_test(broken_lists_are_refused_with_the_reason),
		cmocka_unit_test(ten_thousand_nodes_expand),
		cmocka_unit_test(counts_repeat_as_slurm_writes_them),
		cmocka_unit_test(counts_that_do_not_match_are_refused),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
