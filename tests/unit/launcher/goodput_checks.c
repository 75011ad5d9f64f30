#include "tests/unit/launcher/goodput_checks.h"

#include "launcher/goodput/timeline.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

static double sum_of(const struct goodput_result *r)
{
	double sum = 0;
	for (int i = 0; i < GOODPUT_PART_COUNT; i++)
		sum += r->parts[i];
	return sum;
}

void check_sums(const struct goodput_setup *s, const struct goodput_result *r)
{
	for (int i = 0; i < GOODPUT_PART_COUNT; i++)
		assert_true(r->parts[i] >= -1e-6);
	assert_float_equal(sum_of(r), r->seconds, 1e-6 * r->seconds);
	assert_float_equal(r->parts[GOODPUT_TRAINED], (double)r->steps * s->costs.step,
			   1e-6 * r->seconds);
	if (s->seconds > 0)
		assert_float_equal(r->seconds, s->seconds, 1e-6);
}

void check_timeline(const struct goodput_setup *s, uint64_t seed, const struct goodput_result *r)
{
	enum { COLUMNS = 50 };
	struct goodput_history h = { 0 };
	struct goodput_timeline t;
	struct goodput_result again;
	double sums[GOODPUT_PART_COUNT] = { 0 };
	goodput_run_record(s, seed, &h, &again);
	assert_memory_equal(&again, r, sizeof again);
	assert_int_equal(goodput_timeline_open(&t, &h, r->seconds / COLUMNS, COLUMNS, NULL), 0);
	for (int i = 0; i < COLUMNS; i++) {
		double all = 0;
		for (int p = 0; p < GOODPUT_PART_COUNT; p++) {
			assert_true(t.columns[i][p] > -1e-6 * t.each);
			all += t.columns[i][p];
			sums[p] += t.columns[i][p];
		}
		assert_float_equal(all / t.each, 1, 1e-6);
	}
	for (int p = 0; p < GOODPUT_PART_COUNT; p++)
		assert_float_equal(sums[p], r->parts[p], 1e-6 * r->seconds);
	assert_int_equal(h.n_marks, r->all_faults);
	for (int i = 1; i < h.n_marks; i++)
		assert_true(h.marks[i].at >= h.marks[i - 1].at);
	goodput_timeline_close(&t);
	goodput_history_fini(&h);
}

void sum_runs(const struct goodput_setup *s, int runs, struct goodput_sum *out)
{
	const struct goodput_plan plan = { .runs = runs, .seed = 1 };
	assert_int_equal(goodput_sum(s, &plan, out, NULL), 0);
}
