/* The files of recorded steps: what is read, what is refused, how hosts' clocks are aligned, and the
 * events that are made of them. */
#include "agent/tools/step_clocks.h"
#include "agent/tools/step_file.h"
#include "agent/tools/trace_events.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { ORIGIN = 1000000 };

/* A world of two ranks: two steps of 1 ms from `start` on, each with a pass and a barrier of the world
 * that both ranks leave at the same moment, and a message from rank 0 to rank 1. ahead: of the rank's
 * clock. */
static char *text_of(int rank, const char *host, int64_t ahead)
{
	int64_t t = ORIGIN + ahead;
	char *out = NULL;
	const char *peer = rank ? "{\"from\": 0, \"nth\": 1, \"bytes\": 64}"
				: "{\"to\": 1, \"nth\": 1, \"bytes\": 64}";
	int n = asprintf(
		&out,
		"{\"muster_steps\": 1, \"rank\": %d, \"place\": \"tp 0, pp %d\", \"first\": 40, "
		"\"last\": 41,"
		" \"lost\": 0, \"phases\": ["
		"[\"data\", 40, %lld.0, %lld.0, -1, -1], [\"forward\", 40, %lld.0, %lld.0, 0, 1],"
		"[\"forward\", 41, %lld.0, %lld.0, 0, 0]],"
		"\"comm\": {\"muster_comm_dump\": 1, \"rank\": %d, \"size\": 2, \"host\": \"%s\","
		" \"time_us\": %lld, \"groups\": ["
		"{\"name\": \"world\", \"id\": \"0000000000000001\", \"backend\": \"shm\", "
		"\"rank\": %d,"
		" \"members\": [0, 1], \"seq\": 2, \"messages\": 1, \"ops\": ["
		"{\"number\": 1, \"op\": \"barrier\", \"state\": \"done\", \"seq\": 1, \"bytes\": "
		"0,"
		" \"start_us\": %lld, \"end_us\": %lld},"
		"{\"number\": 2, \"op\": \"send/recv\", \"state\": \"done\", \"seq\": 1, "
		"\"bytes\": 64,"
		" \"start_us\": %lld, \"end_us\": %lld, \"messages\": 1, \"peers\": [%s]},"
		"{\"number\": 3, \"op\": \"barrier\", \"state\": \"done\", \"seq\": 2, \"bytes\": "
		"0,"
		" \"start_us\": %lld, \"end_us\": %lld}]}]}}",
		rank, rank, (long long)t, (long long)t + 100, (long long)t + 100,
		(long long)t + 900, (long long)t + 1000, (long long)t + 1900, rank, host,
		(long long)t + 3000, rank, (long long)t + 800 + rank, (long long)t + 950,
		(long long)t + 1100, (long long)t + 1200, peer, (long long)t + 1700,
		(long long)t + 1950);
	assert_true(n > 0);
	return out;
}

static void read_rank(int rank, const char *host, int64_t ahead, struct step_file *f)
{
	struct err e = ERR_INIT;
	char *text = text_of(rank, host, ahead);
	if (tool_step_file_parse(text, strlen(text), "it", f, &e))
		fail_msg("%s", e.text);
	free(text);
}

static void a_file_is_read(void **state)
{
	struct step_file f;
	(void)state;
	read_rank(1, "h", 0, &f);
	assert_int_equal(f.rank, 1);
	assert_string_equal(f.place, "tp 0, pp 1");
	assert_true(f.first == 40 && f.last == 41 && f.n == 3);
	assert_string_equal(f.phases[1].name, "forward");
	assert_true(f.phases[1].micro == 1 && f.phases[1].end - f.phases[1].begin == 800);
	assert_int_equal(f.comm.ranks[1].parts[0].n, 3);
	tool_step_file_free(&f);
}

/* Each case replaces a text of a good file by another. */
static void a_wrong_file_is_refused(void **state)
{
	static const struct {
		const char *good, *bad, *says;
	} cases[] = {
		{ "\"muster_steps\": 1", "\"muster_steps\": 2", "muster_steps" },
		{ "\"rank\": 1, \"place\"", "\"rank\": 0, \"place\"", "not those of rank 0" },
		{ "\"first\": 40", "\"first\": 42", "last" },
		{ "40, 1000000.0, 1000100.0", "40, 1000100.0, 1000000.0", "phase 0" },
		{ "\"forward\", 40", "7, 40", "phase 1" },
		{ ", 0, 1]", ", 0, -2]", "phase 1" },
		{ ", 0, 1]", ", 0]", "phase 1" },
		{ "\"phases\": [", "\"phases\": [3, ", "phase 0" },
		{ "\"state\": \"done\"", "\"state\": \"over\"", "comm" },
		{ "}]}]}}", "}]}]}", "line" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct err e = ERR_INIT;
		struct step_file f;
		char *good = text_of(1, "h", 0), *at = strstr(good, cases[i].good), *bad = NULL;
		assert_non_null(at);
		assert_true(asprintf(&bad, "%.*s%s%s", (int)(at - good), good, cases[i].bad,
				     at + strlen(cases[i].good)) > 0);
		assert_int_equal(tool_step_file_parse(bad, strlen(bad), "it", &f, &e), -1);
		assert_int_equal(e.code, ERR_CORRUPT);
		if (!strstr(e.text, cases[i].says))
			fail_msg("case %zu: %s", i, e.text);
		free(good);
		free(bad);
	}
}

static void a_name_cannot_leave_its_string(void **state)
{
	char name[8];
	(void)state;
	tool_step_name(name, sizeof name, "a\"b\\c\n\x1b[31m");
	assert_string_equal(name, "a?b?c??");
}

/* The clock of host b is 5 s ahead; that of host a is the reference. */
static void clocks_of_hosts_are_aligned(void **state)
{
	struct step_clocks *clocks = NULL;
	struct step_file a, b;
	(void)state;
	read_rank(0, "a", 0, &a);
	read_rank(1, "b", 5000000, &b);
	assert_int_equal(tool_step_clocks_add(&clocks, &a, NULL), 0);
	assert_int_equal(tool_step_clocks_add(&clocks, &b, NULL), 0);
	assert_true(tool_step_clocks_offset(clocks, &a) == 0);
	assert_true(tool_step_clocks_offset(clocks, &b) == 5000000);
	assert_true(tool_step_clocks_origin(clocks) == ORIGIN);
	tool_step_clocks_free(clocks);
	tool_step_file_free(&a);
	tool_step_file_free(&b);
}

static void ranks_of_one_host_share_its_clock(void **state)
{
	struct step_clocks *clocks = NULL;
	struct step_file a, b;
	(void)state;
	read_rank(0, "a", 0, &a);
	read_rank(1, "a", 40, &b); /* it was late */
	assert_int_equal(tool_step_clocks_add(&clocks, &a, NULL), 0);
	assert_int_equal(tool_step_clocks_add(&clocks, &b, NULL), 0);
	assert_true(tool_step_clocks_offset(clocks, &b) == 0);
	tool_step_clocks_free(clocks);
	tool_step_file_free(&a);
	tool_step_file_free(&b);
}

static json_t *events_of(const struct step_file *f, int64_t first, int64_t last)
{
	struct buf b = BUF_INIT;
	int64_t n = 0;
	buf_puts(&b, "[");
	tool_trace_events(&b, f, &(struct trace_steps){ first, last }, 0, ORIGIN, &n);
	buf_puts(&b, "]");
	json_t *list = json_loads(buf_str(&b), JSON_REJECT_DUPLICATES, NULL);
	assert_non_null(list);
	assert_int_equal(json_array_size(list), n);
	buf_fini(&b);
	return list;
}

/* The first event with this kind and name; NULL: there is none. */
static json_t *event_of(json_t *list, const char *kind, const char *name)
{
	size_t i;
	json_t *o;
	json_array_foreach(list, i, o)
	{
		if (!strcmp(json_string_value(json_object_get(o, "ph")), kind) &&
		    !strcmp(json_string_value(json_object_get(o, "name")), name))
			return o;
	}
	return NULL;
}

static double number_of(const json_t *o, const char *key)
{
	return json_number_value(json_object_get(o, key));
}

static void steps_contain_their_phases(void **state)
{
	struct step_file f;
	(void)state;
	read_rank(0, "h", 0, &f);
	json_t *list = events_of(&f, 40, 40);
	const json_t *step = event_of(list, "X", "step 40"), *pass = event_of(list, "X", "forward");
	assert_true(number_of(step, "ts") == 0 && number_of(step, "dur") == 900);
	assert_true(number_of(pass, "ts") == 100 && number_of(pass, "dur") == 800);
	assert_int_equal(number_of(json_object_get(pass, "args"), "micro"), 1);
	assert_null(event_of(list, "X", "step 41"));
	/* The message belongs to step 41. */
	assert_non_null(event_of(list, "X", "barrier"));
	assert_null(event_of(list, "s", "message"));
	json_decref(list);
	tool_step_file_free(&f);
}

static void an_arrow_has_the_same_number_at_both_ends(void **state)
{
	struct step_file a, b;
	(void)state;
	read_rank(0, "h", 0, &a);
	read_rank(1, "h", 0, &b);
	json_t *sender = events_of(&a, 1, INT64_MAX), *receiver = events_of(&b, 1, INT64_MAX);
	const json_t *from = event_of(sender, "s", "message"),
		     *to = event_of(receiver, "f", "message");
	assert_non_null(from);
	assert_non_null(to);
	assert_string_equal(json_string_value(json_object_get(from, "id")),
			    json_string_value(json_object_get(to, "id")));
	assert_true(number_of(from, "ts") < number_of(to, "ts"));
	json_decref(sender);
	json_decref(receiver);
	tool_step_file_free(&a);
	tool_step_file_free(&b);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_file_is_read),
		cmocka_unit_test(a_wrong_file_is_refused),
		cmocka_unit_test(a_name_cannot_leave_its_string),
		cmocka_unit_test(clocks_of_hosts_are_aligned),
		cmocka_unit_test(ranks_of_one_host_share_its_clock),
		cmocka_unit_test(steps_contain_their_phases),
		cmocka_unit_test(an_arrow_has_the_same_number_at_both_ends),
	};
	return cmocka_run_group_tests_name("traces of steps", tests, NULL, NULL);
}
