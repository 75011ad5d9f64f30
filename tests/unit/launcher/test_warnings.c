/* The rules of the warnings, with series of numbers: each begins once, says why, ends, and is silent
 * about noise. */
#include "launcher/supervise/warnings.h"

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { WARMUP = 10, SETTLED = 200 };

static struct {
	struct warnings w;
	int64_t step;
	int begun[WARNING_COUNT], ended[WARNING_COUNT];
	uint64_t random;
} t;

static int set_up(void **state)
{
	(void)state;
	memset(&t, 0, sizeof t);
	supervise_warnings_init(
		&t.w,
		&(struct warning_limits){ .z = 6, .data = 0.2, .predicted = 2, .warmup = WARMUP });
	return 0;
}

static void take_news(struct warning_news n)
{
	for (int i = 0; i < WARNING_COUNT; i++) {
		t.begun[i] += n.begun >> i & 1;
		t.ended[i] += n.ended >> i & 1;
	}
}

/* A healthy step; a test changes what it is about. */
static struct warning_sample healthy(void)
{
	return (struct warning_sample){ .loss = 3 + 0.01 * (double)(t.step % 7),
					.norm = 0.5 + 0.05 * (double)(t.step % 5),
					.data = 0.01,
					.data_rank = 6,
					.step_s = 1.1,
					.predicted_s = 1 };
}

static void add(struct warning_sample x)
{
	x.step = ++t.step;
	take_news(supervise_warnings_step(&t.w, &x, 1000 + (double)t.step));
}

static void add_healthy(int n)
{
	for (int i = 0; i < n; i++)
		add(healthy());
}

/* Steps of one kind. */
enum kind { LOSS, NORM, DATA, PREDICTION };

static void add_bad(enum kind kind, int n)
{
	for (int i = 0; i < n; i++) {
		struct warning_sample x = healthy();
		x.loss = kind == LOSS ? 4.5 : x.loss;
		x.norm = kind == NORM ? 9 : x.norm;
		x.data = kind == DATA ? 0.31 : x.data;
		x.step_s = kind == PREDICTION ? 2.5 : x.step_s;
		add(x);
	}
}

static int all_begun(void)
{
	int n = 0;
	for (int i = 0; i < WARNING_COUNT; i++)
		n += t.begun[i];
	return n;
}

/* For each rule of steps: how many bad steps begin it, how many healthy ones end it, its text. */
static const struct {
	enum warning_id id;
	enum kind kind;
	int begins, ends;
	const char *text;
} cases[] = {
	{ WARNING_LOSS, LOSS, 2, 20, "the loss is 4.5, and 3.03 was usual" },
	{ WARNING_NORM, NORM, 3, 20, "the gradient norm is 9, and 0.6 was usual" },
	{ WARNING_DATA, DATA, 18, 15, "rank 6 waits for samples for 31 % of a step" },
	{ WARNING_PREDICTION, PREDICTION, 45, 35, "takes 2.50 s, 2.5 times the predicted 1.00 s" },
};

/* The data changed: what was a spike at first is usual now. */
static void a_new_level_ends_the_warning(void **state)
{
	static const enum kind kinds[] = { LOSS, NORM };
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
		enum warning_id id = kinds[i] == LOSS ? WARNING_LOSS : WARNING_NORM;
		set_up(state);
		add_healthy(SETTLED);
		add_bad(kinds[i], WARNING_WINDOW);
		assert_int_equal(t.begun[id], 1);
		assert_int_equal(t.ended[id], 0);
		add_bad(kinds[i], WARNING_WINDOW);
		assert_int_equal(t.ended[id], 1);
		add_bad(kinds[i], 4 * WARNING_WINDOW);
		assert_int_equal(t.begun[id], 1);
	}
}

static void each_rule_begins_once_and_ends(void **state)
{
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		enum warning_id id = cases[i].id;
		set_up(state);
		add_healthy(SETTLED);
		add_bad(cases[i].kind, cases[i].begins - 1);
		assert_int_equal(all_begun(), 0);
		add_bad(cases[i].kind, 1);
		assert_int_equal(t.begun[id], 1);
		assert_true(t.w.list[id].holds);
		assert_true(t.w.list[id].since == 1000 + (double)t.step);
		if (!strstr(t.w.list[id].text, cases[i].text))
			fail_msg("%s: %s", cases[i].text, t.w.list[id].text);
		add_bad(cases[i].kind, 100);
		assert_int_equal(all_begun(), 1);
		add_healthy(cases[i].ends - 1);
		assert_int_equal(t.ended[id], 0);
		add_healthy(1);
		assert_int_equal(t.ended[id], 1);
		assert_false(t.w.list[id].holds);
		assert_string_equal(t.w.list[id].text, supervise_warning_rule(id)->over);
		add_healthy(300);
		assert_int_equal(all_begun(), 1);
		add_bad(cases[i].kind, cases[i].begins);
		assert_int_equal(t.begun[id], 2); /* it may come again */
	}
}

static void a_value_around_the_limit_is_reported_once(void **state)
{
	(void)state;
	add_healthy(SETTLED);
	for (int i = 0; i < 500; i++) {
		add_bad(DATA, 9 + i % 3);
		add_healthy(1);
	}
	assert_int_equal(all_begun(), t.begun[WARNING_DATA]);
	assert_int_equal(t.begun[WARNING_DATA], 1);
	assert_int_equal(t.ended[WARNING_DATA], 0);
}

static void a_single_bad_step_is_no_warning(void **state)
{
	(void)state;
	add_healthy(SETTLED);
	for (int i = 0; i < 30; i++) {
		add_bad(LOSS, 1);
		add_healthy(25);
		add_bad(NORM, 2);
		add_healthy(25);
		add_bad(DATA, 10);
		add_healthy(25);
	}
	assert_int_equal(all_begun(), 0);
}

/* In the warm-up the norm jumps, and the loss may rise. */
static void the_warmup_and_the_first_steps_are_not_judged(void **state)
{
	struct warning_sample x;
	(void)state;
	for (int i = 0; i < WARMUP; i++) {
		x = healthy();
		x.loss = 11 - 0.5 * i;
		x.norm = 30;
		add(x);
	}
	assert_int_equal(t.w.loss.recent.n, 0);
	add_healthy(20);
	add_bad(LOSS, 20); /* too few steps are known */
	assert_int_equal(all_begun(), 0);
}

/* The loss of a step long ago is another one. */
static void a_run_that_goes_back_is_judged_anew(void **state)
{
	struct warning_sample x = healthy();
	(void)state;
	add_healthy(SETTLED);
	t.step -= WARNING_BACK - 1;
	add_healthy(1);
	assert_int_equal(t.w.loss.recent.n, WARNING_WINDOW);
	t.step -= 150;
	for (int i = 0; i < 60; i++) {
		x.loss = 5;
		add(x);
	}
	assert_int_equal(all_begun(), 0);
}

static void steps_without_a_value_do_not_count(void **state)
{
	struct warning_sample x = {
		.loss = NAN, .norm = INFINITY, .data = NAN, .step_s = NAN, .predicted_s = 1
	};
	(void)state;
	add_healthy(SETTLED);
	add_bad(DATA, 18);
	for (int i = 0; i < 200; i++)
		add(x);
	assert_true(t.w.list[WARNING_DATA].holds);
	assert_int_equal(t.ended[WARNING_DATA], 0);
	assert_int_equal(all_begun(), 1);
	x = healthy();
	x.predicted_s = 0;
	x.step_s = 100;
	for (int i = 0; i < 100; i++)
		add(x);
	assert_int_equal(all_begun(), 1);
}

static void a_rule_without_a_limit_is_off(void **state)
{
	(void)state;
	supervise_warnings_init(&t.w, &(struct warning_limits){ .z = 0 });
	add_healthy(SETTLED);
	for (int kind = LOSS; kind <= PREDICTION; kind++)
		add_bad((enum kind)kind, 100);
	assert_int_equal(all_begun(), 0);
}

static void rules_of_others_begin_and_end_once(void **state)
{
	(void)state;
	for (int i = 0; i < 3; i++)
		take_news(supervise_warnings_hold(&t.w, WARNING_MEMORY, true, "rank 3 is full", 7));
	assert_int_equal(t.begun[WARNING_MEMORY], 1);
	take_news(supervise_warnings_hold(&t.w, WARNING_LAGGING, true, "rank 1 is slow", 8));
	json_t *list = supervise_warnings_json(&t.w);
	assert_int_equal(json_array_size(list), 2);
	json_t *first = json_array_get(list, 0);
	assert_string_equal(json_string_value(json_object_get(first, "id")), "memory");
	assert_string_equal(json_string_value(json_object_get(first, "text")), "rank 3 is full");
	assert_true(json_real_value(json_object_get(first, "since")) == 7);
	assert_true(strlen(json_string_value(json_object_get(first, "remedy"))) > 20);
	json_decref(list);
	for (int i = 0; i < 3; i++)
		take_news(supervise_warnings_hold(&t.w, WARNING_MEMORY, false, NULL, 9));
	assert_int_equal(t.ended[WARNING_MEMORY], 1);
	list = supervise_warnings_json(&t.w);
	assert_int_equal(json_array_size(list), 1);
	json_decref(list);
}

/* --- noise ---------------------------------------------------------------------------- */

static double uniform(void)
{
	t.random ^= t.random << 13;
	t.random ^= t.random >> 7;
	t.random ^= t.random << 17;
	return ((double)(t.random >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void)
{
	return sqrt(-2 * log(uniform())) * cos(6.283185307179586 * uniform());
}

static void seed(void)
{
	const char *set = getenv("SEED");
	t.random = set ? strtoull(set, NULL, 10) : (uint64_t)time(NULL) * 2654435761u + 1;
	t.random |= t.random == 0;
	print_message("SEED=%" PRIu64 "\n", t.random);
}

/* A run of a small model: the loss falls and is noisy, norms differ by factors, one step in 50 is three
 * times as long, and some wait for samples. */
static void an_ordinary_run_gives_no_warning(void **state)
{
	enum { STEPS = 200000 };
	(void)state;
	seed();
	for (int i = 0; i < STEPS; i++) {
		double slow = uniform() < 0.02 ? 3 : 1;
		add((struct warning_sample){
			.loss = (2 + 8 * exp(-i / 3000.0)) * (1 + 0.03 * normal()),
			.norm = (0.3 + 3 * exp(-i / 1000.0)) * exp(0.4 * normal()),
			.data = uniform() < 0.1 ? uniform() : 0.02,
			.step_s = slow * (1 + 0.3 * fabs(normal())),
			.predicted_s = 1 });
	}
	assert_int_equal(all_begun(), 0);
}

/* The same run, until the loss rises by a half within 40 steps. */
static void a_run_that_diverges_is_seen_in_the_noise(void **state)
{
	enum { GOOD = 4000, MORE = 60 };
	(void)state;
	seed();
	for (int i = 0; i < GOOD + MORE; i++) {
		double worse = i < GOOD ? 1 : 1 + 0.5 * fmin((i - GOOD) / 40.0, 1);
		struct warning_sample x = healthy();
		x.loss = (2 + 8 * exp(-i / 3000.0)) * (1 + 0.03 * normal()) * worse;
		add(x);
	}
	assert_int_equal(t.begun[WARNING_LOSS], 1);
	assert_int_equal(all_begun(), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(each_rule_begins_once_and_ends, set_up),
		cmocka_unit_test_setup(a_new_level_ends_the_warning, set_up),
		cmocka_unit_test_setup(a_value_around_the_limit_is_reported_once, set_up),
		cmocka_unit_test_setup(a_single_bad_step_is_no_warning, set_up),
		cmocka_unit_test_setup(the_warmup_and_the_first_steps_are_not_judged, set_up),
		cmocka_unit_test_setup(a_run_that_goes_back_is_judged_anew, set_up),
		cmocka_unit_test_setup(steps_without_a_value_do_not_count, set_up),
		cmocka_unit_test_setup(a_rule_without_a_limit_is_off, set_up),
		cmocka_unit_test_setup(rules_of_others_begin_and_end_once, set_up),
		cmocka_unit_test_setup(an_ordinary_run_gives_no_warning, set_up),
		cmocka_unit_test_setup(a_run_that_diverges_is_seen_in_the_noise, set_up),
	};
	return cmocka_run_group_tests(tests, NULL, NULL);
}
