/*
 * The planner against published steps, group by group. Every row is printed. The bounds below are
 * what the planner reaches today: a change that makes a group worse fails, and a change that makes
 * it better lowers its bounds. The aim is a mean of 8 % and a worst of 15 % for each group.
 */
#include "plan/cost/sureness.h"
#include "tests/unit/plan/rows.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Percentages: the mean and the largest absolute error, and the mean of the rows to which nothing
 * was fitted. refused: rows without a plan. unfit: rows that ran, and of which the planner says
 * that the GPUs' memory does not hold them. */
struct bound {
	const char *group, *title;
	int rows; /* at least */
	double mean, worst, held;
	int refused, unfit;
};

/* By the order of cost_sureness_at, which has the bounds of all rows. */
static const struct unfitted {
	double held; /* mean of the rows to which nothing was fitted */
	int refused, unfit;
} unfitted[] = { { 6.5, 0, 0 }, { 4.1, 0, 0 }, { 4.9, 0, 0 }, { 4.6, 0, 0 }, { 3.7, 0, 1 } };
enum { GROUPS = sizeof unfitted / sizeof *unfitted };
static struct bound times[GROUPS];
static const struct bound memory = { NULL, "peaks of memory", 45, 3.9, 14.5, 4, 0, 0 };

struct errors {
	double sum, worst, held_sum;
	int n, held, fitted, refused, unfit;
};

static struct row_files *files;

static int open_rows(void **state)
{
	(void)state;
	files = rows_open("tests/unit/plan/rows");
	return 0;
}

static int close_rows(void **state)
{
	(void)state;
	rows_close(files);
	return 0;
}

static void add(struct errors *e, const struct row *r, double off)
{
	e->sum += fabs(off);
	e->worst = fmax(e->worst, fabs(off));
	e->n++;
	if (!r->fitted) {
		e->held_sum += fabs(off);
		e->held++;
	}
}

static void within(const struct errors *e, const struct bound *b)
{
	double mean = e->n ? e->sum / e->n : 0, held = e->held ? e->held_sum / e->held : 0;
	print_message("    %s: %d rows, mean %.1f %%, worst %.1f %%, mean of the %d that are only "
		      "held %.1f %%; %d refused, %d do not fit\n",
		      b->title, e->n + e->refused, mean, e->worst, e->held, held, e->refused,
		      e->unfit);
	assert_true(e->n + e->refused >= b->rows);
	assert_true(2 * e->fitted <= e->n + e->refused);
	assert_true(mean <= b->mean);
	assert_true(e->worst <= b->worst);
	assert_true(held <= b->held);
	assert_true(e->refused <= b->refused);
	assert_true(e->unfit <= b->unfit);
}

static void hold_time(const struct row *r, const struct row_prediction *p, struct errors *e)
{
	double off = 100 * (p->seconds / p->published - 1);
	print_message("    %-18s %-18s %-13s %4d GPUs, %6lld tokens: predicted %8.3f s, published "
		      "%8.3f, %+6.1f %%  %s%s\n",
		      r->source, r->model, r->engine, p->devices, (long long)p->seq, p->seconds,
		      p->published, off, r->fitted ? "fitted" : "held",
		      p->fits ? "" : ", does not fit");
	if (!p->fits)
		print_message("      %s\n", p->lack);
	e->unfit += !p->fits;
	add(e, r, off);
}

static void times_of_steps(void **state)
{
	const struct bound *b = *state;
	struct errors e = { 0 };
	for (int i = 0; i < rows_count(files); i++) {
		const struct row *r = rows_at(files, i);
		struct row_prediction p;
		if (!rows_is_in(r, b->group))
			continue;
		e.fitted += r->fitted;
		rows_predict(files, r, &p);
		if (*p.refusal) {
			e.refused++;
			print_message("    %-18s %-18s refused: %s\n", r->source, r->model,
				      p.refusal);
		} else {
			hold_time(r, &p, &e);
		}
	}
	within(&e, b);
}

static void peaks_of_memory(void **state)
{
	struct errors e = { 0 };
	(void)state;
	for (int i = 0; i < rows_count(files); i++) {
		const struct row *r = rows_at(files, i);
		struct row_prediction p;
		if (!(r->peak > 0))
			continue;
		e.fitted += r->fitted;
		rows_predict(files, r, &p);
		e.refused += *p.refusal != '\0';
		e.unfit += !p.fits;
		if (*p.refusal)
			continue;
		double off = 100 * (p.memory / r->peak - 1);
		print_message("    %-18s %-18s %-13s %4d GPUs, %6lld tokens: predicted %6.1f GB, "
			      "published %6.1f, %+6.1f %%  %s%s\n",
			      r->source, r->model, r->engine, p.devices, (long long)p.seq,
			      p.memory / 1e9, r->peak / 1e9, off, r->fitted ? "fitted" : "held",
			      p.fits ? "" : ", does not fit");
		add(&e, r, off);
	}
	within(&e, &memory);
}

int main(void)
{
	struct CMUnitTest tests[GROUPS + 1];
	size_t n = 0;
	for (int i = 0; i < GROUPS; i++) {
		const struct cost_sureness *s = cost_sureness_at(i);
		times[i] = (struct bound){ .group = s->group,
					   .title = s->regime,
					   .rows = s->rows,
					   .mean = 100 * s->mean,
					   .worst = 100 * s->worst,
					   .held = unfitted[i].held,
					   .refused = unfitted[i].refused,
					   .unfit = unfitted[i].unfit };
	}
	for (; n < GROUPS; n++)
		tests[n] = (struct CMUnitTest){ .name = times[n].title,
						.test_func = times_of_steps,
						.initial_state = (void *)(uintptr_t)&times[n] };
	tests[n++] = (struct CMUnitTest)cmocka_unit_test(peaks_of_memory);
	return _cmocka_run_group_tests("rows", tests, n, open_rows, close_rows);
}
