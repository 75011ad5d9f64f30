/* The parts of a drill that are pure: the phases of a recovery from a list of events, the comparison
 * of two runs, what a run's lines say, and the table. */
#include "launcher/drill/injections.h"
#include "launcher/drill/judge.h"
#include "launcher/rundir/follow.h"
#include "launcher/supervise/faults.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

static void assert_seconds(double have, double want)
{
	assert_true(fabs(have - want) < 1e-9);
}

static void the_phases_of_a_restart_follow_each_other(void **state)
{
	(void)state;
	static const struct drill_event events[] = {
		{ DRILL_START, 1, 1 },      { DRILL_CONNECTED, 2, 1 },   { DRILL_READY, 3, 1 },
		{ DRILL_FIRST_STEP, 4, 1 }, { DRILL_LOST, 10.5, 1 },     { DRILL_GONE, 12, 1 },
		{ DRILL_PLAN, 12.5, 2 },    { DRILL_START, 13, 2 },      { DRILL_CONNECTED, 17, 2 },
		{ DRILL_READY, 25, 2 },     { DRILL_FIRST_STEP, 41, 2 },
	};
	struct drill_phases p = drill_phases_of(events, 11, 10);
	assert_seconds(p.detect, 0.5);
	assert_seconds(p.fence, 1.5);
	assert_seconds(p.plan, 1);
	assert_seconds(p.start, 4);
	assert_seconds(p.load, 8);
	assert_seconds(p.step, 16);
}

static void no_phase_is_negative(void **state)
{
	(void)state;
	/* The first step is that of one rank, and another rank was ready later. */
	static const struct drill_event events[] = {
		{ DRILL_LOST, 11, 1 },      { DRILL_GONE, 12, 1 },       { DRILL_START, 13, 2 },
		{ DRILL_CONNECTED, 14, 2 }, { DRILL_FIRST_STEP, 15, 2 }, { DRILL_READY, 15.5, 2 },
	};
	struct drill_phases p = drill_phases_of(events, 6, 10);
	assert_seconds(p.load, 1.5);
	assert_seconds(p.step, 0);
}

static void a_failed_restart_counts_as_planning(void **state)
{
	(void)state;
	static const struct drill_event events[] = {
		{ DRILL_LOST, 11, 1 },      { DRILL_GONE, 12, 1 },  { DRILL_START, 13, 2 },
		{ DRILL_LOST, 14, 2 },      { DRILL_GONE, 15, 2 },  { DRILL_START, 17, 3 },
		{ DRILL_CONNECTED, 18, 3 }, { DRILL_READY, 19, 3 }, { DRILL_FIRST_STEP, 20, 3 },
	};
	struct drill_phases p = drill_phases_of(events, 9, 10);
	assert_seconds(p.detect, 1);
	assert_seconds(p.fence, 1);
	assert_seconds(p.plan, 5);
	assert_seconds(p.start, 1);
	assert_seconds(p.step, 1);
}

static void a_new_muster_has_no_phases_before_its_start(void **state)
{
	(void)state;
	static const struct drill_event events[] = {
		{ DRILL_FIRST_STEP, 4, 1 }, { DRILL_START, 13, 2 },      { DRILL_CONNECTED, 14, 2 },
		{ DRILL_READY, 16, 2 },     { DRILL_FIRST_STEP, 20, 2 },
	};
	struct drill_phases p = drill_phases_of(events, 5, 10);
	assert_true(isnan(p.detect) && isnan(p.fence) && isnan(p.plan));
	assert_seconds(p.start, 1);
	assert_seconds(p.load, 2);
	assert_seconds(p.step, 4);
}

static void a_run_that_goes_on_has_no_phases(void **state)
{
	(void)state;
	static const struct drill_event events[] = { { DRILL_START, 1, 1 },
						     { DRILL_FIRST_STEP, 4, 1 },
						     { DRILL_WARNING, 11, 1 } };
	struct drill_phases p = drill_phases_of(events, 2, 10);
	assert_true(isnan(p.detect) && isnan(p.start) && isnan(p.step));
	p = drill_phases_of(events, 3, 10);
	assert_seconds(p.detect, 1);
	p = drill_phases_of(NULL, 0, 10);
	assert_true(isnan(p.detect) && isnan(p.plan));
}

static void tell(void *story, const struct rundir_line *l)
{
	if (l->has_event)
		drill_story_event(story, l);
	else
		drill_story_metrics(story, l);
}

static void read_lines(struct drill_story *s, const char *text)
{
	struct rundir_lines lines = { 0 };
	rundir_lines_feed(&lines, text, strlen(text), tell, s);
	assert_int_equal(lines.damaged, 0);
	rundir_lines_fini(&lines);
}

/* A line of metrics with all its fields. */
static void add_step(struct drill_story *s, int generation, int step, double loss, double norm)
{
	char text[1024];
	snprintf(text, sizeof text,
		 "{\"time\":1,\"mono\":%d,\"generation\":%d,\"step\":%d,\"samples\":8,\"tokens\":"
		 "256,"
		 "\"peak_bytes\":1,\"loss\":%.17g,\"grad_norm\":%.17g,\"lr\":1,\"step_s\":1,"
		 "\"data_s\":0,\"compute_s\":0,\"recompute_s\":0,\"tp_s\":0,\"cp_s\":0,\"ep_s\":0,"
		 "\"pp_s\":0,\"dp_s\":0,\"optimizer_s\":0,\"checkpoint_s\":0,\"other_s\":0}\n",
		 step, generation, step, loss, norm);
	read_lines(s, text);
}

static void equal_losses_compare_as_equal_and_the_last_line_of_a_step_counts(void **state)
{
	(void)state;
	struct drill_story a = { 0 }, b = { 0 };
	struct err e = ERR_INIT;
	for (int i = 1; i <= 3; i++)
		add_step(&a, 1, i, 5.0 / i, 1.0 / i);
	add_step(&b, 1, 1, 5, 1);
	add_step(&b, 1, 2, 77, 1);
	add_step(&b, 2, 2, 5.0 / 2, 1.0 / 2);
	assert_int_equal(drill_story_compare(&a, &b, 0, &e), -1);
	assert_non_null(strstr(e.text, "step 3 is missing"));
	add_step(&b, 2, 3, 5.0 / 3, 1.0 / 3);
	assert_int_equal(drill_story_compare(&a, &b, 0, &e), 0);
	assert_int_equal(drill_story_redone(&b), 1);
	drill_story_fini(&a);
	drill_story_fini(&b);
}

static void one_bit_differs_only_where_bits_count(void **state)
{
	(void)state;
	struct drill_story a = { 0 }, b = { 0 };
	struct err e = ERR_INIT;
	add_step(&a, 1, 1, 5, 1);
	add_step(&b, 1, 1, nextafter(5, 6), 1);
	assert_int_equal(drill_story_compare(&a, &b, 0, &e), -1);
	assert_non_null(strstr(e.text, "step 1"));
	assert_int_equal(drill_story_compare(&a, &b, 1e-5, &e), 0);
	add_step(&b, 1, 2, 5, 1);
	assert_int_equal(drill_story_compare(&a, &b, 1e-5, &e), -1);
	assert_non_null(strstr(e.text, "last step"));
	drill_story_fini(&a);
	drill_story_fini(&b);
}

static void an_empty_reference_proves_nothing(void **state)
{
	(void)state;
	struct drill_story a = { 0 }, b = { 0 };
	struct err e = ERR_INIT;
	assert_int_equal(drill_story_compare(&a, &b, 0, &e), -1);
}

static void a_story_keeps_the_first_loss_and_how_its_process_ended(void **state)
{
	(void)state;
	struct drill_story s = { .ready_step = -1 };
#define HEAD "\"time\":1,\"mono\":2,\"generation\":"
	read_lines(&s, "{\"event\":\"generation-start\"," HEAD "1,\"resume\":\"auto\","
		       "\"restarts\":0,\"auth\":\"secret\"}\n"
		       "{\"event\":\"hello\"," HEAD "1,\"rank\":3,\"node\":\"n1\",\"pid\":77,"
		       "\"start\":5,\"pid_space\":6,\"boot\":\"\"}\n"
		       "{\"event\":\"ckpt\"," HEAD "1,\"step\":20,\"path\":\"/run/step-20\","
		       "\"bytes\":1,\"seconds\":1,\"stall_s\":0}\n");
	assert_int_equal(s.launches, 1);
	assert_int_equal(s.checkpoints, 1);
	assert_int_equal(s.ckpt_step, 20);
	assert_string_equal(s.ckpt_path, "/run/step-20");
	assert_int_equal(drill_story_agent(&s, 3), 77);
	assert_int_equal(drill_story_agent(&s, 2), 0);
	read_lines(
		&s,
		"{\"event\":\"rank-lost\"," HEAD "1,\"rank\":3,\"how\":\"closed\","
		"\"code\":\"net\",\"text\":\"first\",\"fault\":\"connection-lost\",\"owner\":"
		"\"network\"}\n"
		"{\"event\":\"exit\"," HEAD "1,\"rank\":2,\"status\":1}\n"
		"{\"event\":\"exit\"," HEAD "1,\"rank\":3,\"signal\":9}\n"
		"{\"event\":\"fault\"," HEAD "1,\"rank\":3,\"fault\":\"agent-killed\","
		"\"owner\":\"unknown\",\"retry\":\"now\",\"text\":\"\",\"remedy\":\"\"}\n"
		"{\"event\":\"rank-lost\"," HEAD "1,\"rank\":1,\"how\":\"hung\","
		"\"code\":\"net\",\"text\":\"second\",\"fault\":\"hang\",\"owner\":\"unknown\"}\n"
		"{\"event\":\"generation-start\"," HEAD "2,\"resume\":\"auto\","
		"\"restarts\":1,\"auth\":\"secret\"}\n");
	assert_string_equal(s.fault, "agent-killed");
	assert_string_equal(s.how, "closed, signal 9");
	assert_string_equal(s.said, "first");
	assert_int_equal(drill_story_agent(&s, 3), 0);
	drill_story_fini(&s);
}

static void a_list_holds_whole_names_only(void **state)
{
	(void)state;
	assert_true(drill_list_has("a,bc", "bc"));
	assert_true(drill_list_has("a,bc", "a"));
	assert_false(drill_list_has("a,bc", "b"));
	assert_false(drill_list_has("a,bc", ""));
	assert_false(drill_list_has("", "a"));
}

static int count_lines_longer_than(const char *text, int columns)
{
	int n = 0;
	for (const char *at = text; *at; at += strcspn(at, "\n") + 1)
		n += (int)strcspn(at, "\n") > columns;
	return n;
}

static void the_table_fits_100_columns_and_counts(void **state)
{
	(void)state;
	struct drill_result rows[3];
	struct drill_results r = { .rows = rows, .n = 3 };
	struct buf text = BUF_INIT;
	const struct injection *longest = drill_injections;
	for (const struct injection *in = drill_injections; in->name; in++)
		if (strlen(in->name) > strlen(longest->name))
			longest = in;
	for (int i = 0; i < 3; i++) {
		rows[i] = (struct drill_result){ .injection = longest,
						 .outcome = (enum drill_outcome)i,
						 .redone = 1234,
						 .phases = { 1, 99.9994, NAN, 0.0004, 2, 3 } };
		memset(rows[i].said, 'x', sizeof rows[i].said - 1);
		memset(rows[i].how, 'y', sizeof rows[i].how - 1);
		memset(rows[i].why, 'z', 200);
	}
	snprintf(rows[0].how, sizeof rows[0].how, "a checkpoint of step 40 failed");
	drill_print(&r, &text);
	/* Only the reason why it is wrong may be longer. */
	assert_int_equal(count_lines_longer_than(buf_str(&text), 100), 1);
	assert_non_null(strstr(buf_str(&text), " 99.999      -  0.000"));
	assert_non_null(strstr(buf_str(&text), " a checkpoint of...  "));
	assert_non_null(strstr(buf_str(&text), " yyyyyyyyyyyyyyyy... "));
	assert_non_null(strstr(buf_str(&text), "\n2 drilled, 1 right, 1 skipped\n"));
	assert_false(drill_results_right(&r));
	r.n = 1;
	assert_true(drill_results_right(&r));
	r.n = 0;
	assert_false(drill_results_right(&r));
	buf_fini(&text);
}

static void every_row_of_the_table_is_complete_and_names_known_faults(void **state)
{
	(void)state;
	for (const struct injection *in = drill_injections; in->name; in++) {
		assert_true(in->inject || in->agent_fault || in->prepare);
		assert_true(!in->later || supervise_fault_named(in->later));
		assert_non_null(in->faults);
		assert_true(strlen(in->name) <= 20 && *in->how);
		for (const char *at = in->faults; *at; at += strcspn(at, ","), at += *at == ',') {
			char name[64];
			snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
			assert_non_null(supervise_fault_named(name));
		}
		for (const struct injection *other = drill_injections; other < in; other++)
			assert_string_not_equal(in->name, other->name);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_phases_of_a_restart_follow_each_other),
		cmocka_unit_test(no_phase_is_negative),
		cmocka_unit_test(a_failed_restart_counts_as_planning),
		cmocka_unit_test(a_new_muster_has_no_phases_before_its_start),
		cmocka_unit_test(a_run_that_goes_on_has_no_phases),
		cmocka_unit_test(equal_losses_compare_as_equal_and_the_last_line_of_a_step_counts),
		cmocka_unit_test(one_bit_differs_only_where_bits_count),
		cmocka_unit_test(an_empty_reference_proves_nothing),
		cmocka_unit_test(a_story_keeps_the_first_loss_and_how_its_process_ended),
		cmocka_unit_test(a_list_holds_whole_names_only),
		cmocka_unit_test(the_table_fits_100_columns_and_counts),
		cmocka_unit_test(every_row_of_the_table_is_complete_and_names_known_faults),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
