/* Which report of a rank waits, and under which number. */
#include "agent/reports.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static struct reports r;

static int setup(void **state)
{
	(void)state;
	agent_reports_init(&r);
	return 0;
}

static int teardown(void **state)
{
	(void)state;
	agent_reports_fini(&r);
	return 0;
}

/* The number of the one that waits, as its body has it; 0: none. */
static int64_t waiting(int report)
{
	int64_t number;
	json_t *body = agent_reports_waiting(&r, report, &number);
	int64_t in_body = json_integer_value(json_object_get(body, "number"));
	assert_true(!body || in_body == number);
	json_decref(body);
	return in_body;
}

static void keep(int report)
{
	agent_reports_keep(&r, report, json_object());
}

static void the_newest_of_each_type_waits(void **state)
{
	(void)state;
	assert_int_equal(waiting(REPORT_MSG_HEALTH), 0);
	keep(REPORT_MSG_HEALTH);
	keep(REPORT_MSG_HEALTH);
	keep(REPORT_MSG_LINKS);
	assert_int_equal(waiting(REPORT_MSG_HEALTH), 2);
	assert_int_equal(waiting(REPORT_MSG_LINKS), 1);
}

/* The next one may have come while the last one was handed on. */
static void only_the_one_that_is_on_its_way_is_settled(void **state)
{
	(void)state;
	keep(REPORT_MSG_HEALTH);
	keep(REPORT_MSG_HEALTH);
	agent_reports_settle(&r, REPORT_MSG_HEALTH, 1);
	assert_int_equal(waiting(REPORT_MSG_HEALTH), 2);
	agent_reports_settle(&r, REPORT_MSG_HEALTH, 2);
	assert_int_equal(waiting(REPORT_MSG_HEALTH), 0);
	keep(REPORT_MSG_HEALTH);
	agent_reports_settle(&r, REPORT_MSG_HEALTH, 2);
	assert_int_equal(waiting(REPORT_MSG_HEALTH), 3);
}

static void one_that_is_sent_now_replaces_the_one_that_waits(void **state)
{
	(void)state;
	json_t *body = json_object();
	keep(REPORT_MSG_HEALTH);
	keep(REPORT_MSG_LINKS);
	agent_reports_overtake(&r, REPORT_MSG_HEALTH, body);
	assert_int_equal(json_integer_value(json_object_get(body, "number")), 2);
	assert_int_equal(waiting(REPORT_MSG_HEALTH), 0);
	assert_int_equal(waiting(REPORT_MSG_LINKS), 1);
	keep(REPORT_MSG_HEALTH);
	assert_int_equal(waiting(REPORT_MSG_HEALTH), 3);
	json_decref(body);
}

static void each_message_that_can_be_a_row_has_its_number(void **state)
{
	(void)state;
	for (int i = 0; i < REPORTS_COUNT; i++)
		assert_int_equal(msg_report_index(msg_report_type(i)), i);
	assert_int_equal(msg_report_index(MSG_HEALTH), REPORT_MSG_HEALTH);
	assert_int_equal(msg_report_index(MSG_FAILED), -1);
	assert_int_equal(msg_report_index(MSG_NONE), -1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define REPORTS_TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		REPORTS_TEST(the_newest_of_each_type_waits),
		REPORTS_TEST(only_the_one_that_is_on_its_way_is_settled),
		REPORTS_TEST(one_that_is_sent_now_replaces_the_one_that_waits),
		cmocka_unit_test(each_message_that_can_be_a_row_has_its_number),
	};
	return cmocka_run_group_tests_name("reports", tests, NULL, NULL);
}
