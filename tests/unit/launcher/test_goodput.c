/* The time of a run is split among its generations: to the microsecond, and so that lost time belongs to
 * the generation that lost it, whatever time.jsonl has become. */
#include "base/file.h"
#include "base/run_paths.h"
#include "launcher/rundir/goodput.h"
#include "tests/unit/tmpdir.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { RANKS = 4 };
#define S INT64_C(1000000)

static char dir[256];
static struct rundir *run;
static int64_t wall, us[TIME_PART_COUNT]; /* the sums so far */
static struct rundir_goodput got;

static int setup(void **state)
{
	(void)state;
	wall = 0;
	memset(us, 0, sizeof us);
	got = (struct rundir_goodput){ 0 };
	return !tmpdir_make(dir, sizeof dir) || rundir_open(dir, "run", &run, NULL) ? -1 : 0;
}

static int teardown(void **state)
{
	(void)state;
	rundir_goodput_fini(&got);
	rundir_close(run);
	file_remove_tree(dir);
	return 0;
}

/* All ranks spend so many seconds on a part. */
static void spend(enum time_part part, int64_t seconds)
{
	wall += seconds * S;
	us[part] += RANKS * seconds * S;
}

static void lose(enum time_part part, int64_t seconds)
{
	us[part] -= RANKS * seconds * S;
	us[TIME_LOST] += RANKS * seconds * S;
}

static struct rundir_time sums(void)
{
	struct rundir_time t = { .ranks = RANKS, .devices = RANKS, .wall_s = 1e-6 * (double)wall };
	rundir_time_set_parts(&t, us);
	return t;
}

static void line(uint32_t generation)
{
	struct rundir_time t = sums();
	rundir_time(run, generation, &t);
}

static void put_text(const char *text)
{
	char path[400];
	snprintf(path, sizeof path, "%s/" RUN_TIME, rundir_path(run));
	FILE *f = fopen(path, "ae");
	assert_non_null(f);
	fputs(text, f);
	assert_int_equal(fclose(f), 0);
}

static void expect_sums(const struct rundir_goodput *g)
{
	int64_t parts[TIME_PART_COUNT] = { 0 }, walls = 0, effective = 0;
	for (size_t i = 0; i < g->n; i++) {
		walls += g->rows[i].wall;
		effective += g->rows[i].effective;
		for (int k = 0; k < TIME_PART_COUNT; k++)
			parts[k] += g->rows[i].us[k];
	}
	assert_int_equal(walls, g->all.wall);
	assert_int_equal(effective, g->all.effective);
	assert_memory_equal(parts, g->all.us, sizeof parts);
}

static void read_rows(size_t n)
{
	struct err e = ERR_INIT;
	rundir_goodput_fini(&got);
	if (rundir_goodput_read(rundir_path(run), NULL, &got, &e))
		fail_msg("%s", e.text);
	assert_int_equal(got.n, n);
	expect_sums(&got);
}

/* The sums are those of the last line. */
static void expect_all(void)
{
	assert_int_equal(got.all.wall, wall);
	assert_memory_equal(got.all.us, us, sizeof us);
}

static void expect(size_t row, int64_t generation, int64_t seconds, enum time_part part,
		   int64_t spent)
{
	assert_int_equal(got.rows[row].generation, generation);
	assert_int_equal(got.rows[row].wall, seconds * S);
	assert_int_equal(got.rows[row].us[part], RANKS * spent * S);
}

static void a_run_without_lines_has_no_rows(void **state)
{
	(void)state;
	read_rows(0);
	assert_int_equal(got.all.wall, 0);
	put_text("nothing\n{\"time\":1,\"generation\":1}\n{\"time\":2,\"gen");
	read_rows(0);
}

static void a_run_that_only_started_has_its_start(void **state)
{
	(void)state;
	spend(TIME_START, 3);
	line(1);
	read_rows(1);
	expect(0, 1, 3, TIME_START, 3);
	assert_int_equal(got.rows[0].effective, 0);
	assert_int_equal(got.rows[0].ranks, RANKS);
	assert_true(got.rows[0].since > 1e9);
	expect_all();
}

/* A loss after 50 s, of which the last 20 are repeated; the wait for the next generation is 7 s. */
static void lose_once(void)
{
	spend(TIME_START, 3);
	line(1);
	for (int i = 0; i < 5; i++) {
		spend(TIME_COMPUTE, 10);
		line(1);
	}
	spend(TIME_RESTART, 7);
	line(2);
	spend(TIME_RESTART, 2);
	lose(TIME_COMPUTE, 20);
	line(2);
	for (int i = 0; i < 4; i++) {
		spend(TIME_COMPUTE, 10);
		line(2);
	}
	spend(TIME_STOP, 1);
	line(2);
}

static void lost_steps_and_the_wait_belong_to_the_generation_that_was_lost(void **state)
{
	(void)state;
	lose_once();
	read_rows(2);
	expect(0, 1, 60, TIME_COMPUTE, 30);
	expect(0, 1, 60, TIME_LOST, 20);
	expect(0, 1, 60, TIME_RESTART, 7);
	expect(1, 2, 43, TIME_COMPUTE, 40);
	expect(1, 2, 43, TIME_LOST, 0);
	expect(1, 2, 43, TIME_RESTART, 2);
	assert_int_equal(got.rows[0].effective, 30 * S);
	assert_int_equal(got.rows[1].effective, 40 * S);
	assert_int_equal(got.all.us[TIME_LOST], RANKS * 20 * S);
	expect_all();
}

/* A checkpoint of the first generation: all that the second one did is lost, and some of the first. */
static void a_restart_may_lose_steps_of_several_generations(void **state)
{
	(void)state;
	lose_once();
	spend(TIME_RESTART, 5);
	line(3);
	lose(TIME_COMPUTE, 55);
	line(3);
	spend(TIME_COMPUTE, 8);
	line(3);
	read_rows(3);
	expect(0, 1, 60, TIME_LOST, 20 + 15);
	expect(0, 1, 60, TIME_COMPUTE, 15);
	expect(1, 2, 48, TIME_LOST, 40);
	expect(1, 2, 48, TIME_COMPUTE, 0);
	expect(2, 3, 8, TIME_LOST, 0);
	expect(2, 3, 8, TIME_COMPUTE, 8);
	expect_all();
}

/* Without the line that was written when the steps were lost, nobody knows whose they were. */
static void lost_steps_stay_with_their_line_if_that_is_gone(void **state)
{
	(void)state;
	spend(TIME_COMPUTE, 50);
	line(1);
	line(2);
	lose(TIME_COMPUTE, 20);
	spend(TIME_COMPUTE, 30);
	line(2);
	read_rows(2);
	expect(0, 1, 50, TIME_COMPUTE, 50);
	expect(1, 2, 30, TIME_LOST, 20);
	expect_all();
}

static void the_start_of_another_muster_run_is_its_own(void **state)
{
	(void)state;
	lose_once();
	spend(TIME_START, 6);
	us[TIME_IDLE] += 6 * S;
	line(3);
	spend(TIME_DP, 4);
	line(3);
	read_rows(3);
	expect(1, 2, 43, TIME_START, 0);
	expect(2, 3, 10, TIME_START, 6);
	expect(2, 3, 10, TIME_DP, 4);
	assert_int_equal(got.rows[2].us[TIME_IDLE], 6 * S);
	expect_all();
}

static void a_generation_without_a_line_is_part_of_the_one_before(void **state)
{
	(void)state;
	spend(TIME_COMPUTE, 10);
	line(1);
	spend(TIME_RESTART, 4);
	put_text("{\"time\":1,\"mono\":1,\"generation\":2,\"step\":damaged}\n");
	spend(TIME_COMPUTE, 20);
	line(3);
	spend(TIME_COMPUTE, 1);
	line(3);
	read_rows(2);
	expect(0, 1, 34, TIME_COMPUTE, 30);
	expect(1, 3, 1, TIME_COMPUTE, 1);
	expect_all();
}

static void a_cut_line_costs_only_itself(void **state)
{
	(void)state;
	lose_once();
	put_text("{\"time\":1795457475.1,\"mono\":28426.8,\"generation\":2,\"step\":40,\"ran");
	read_rows(2);
	expect_all();
	put_text("\n");
	spend(TIME_COMPUTE, 5);
	line(2);
	read_rows(2);
	expect(1, 2, 48, TIME_COMPUTE, 45);
	expect_all();
}

static void sums_that_fall_begin_anew(void **state)
{
	(void)state;
	lose_once();
	wall = 0;
	memset(us, 0, sizeof us);
	spend(TIME_COMPUTE, 9);
	line(5);
	read_rows(1);
	expect(0, 5, 9, TIME_COMPUTE, 9);
	expect_all();
}

/* A line as state.json has it. */
static struct rundir_time_line line_now(uint32_t generation)
{
	struct rundir_time_line l;
	struct rundir_time t = sums();
	json_t *o = rundir_time_json(&t, 2e9, 5, generation);
	assert_true(rundir_time_read(o, &l));
	json_decref(o);
	return l;
}

static void a_line_of_this_moment_counts_if_it_is_later(void **state)
{
	(void)state;
	struct rundir_goodput g;
	lose_once();
	struct rundir_time_line early = line_now(2);
	spend(TIME_COMPUTE, 5);
	struct rundir_time_line now = line_now(2);
	assert_int_equal(rundir_goodput_read(rundir_path(run), &now, &g, NULL), 0);
	assert_int_equal(g.n, 2);
	assert_int_equal(g.rows[1].us[TIME_COMPUTE], RANKS * 45 * S);
	assert_memory_equal(g.all.us, us, sizeof us);
	rundir_goodput_fini(&g);
	line(2);
	assert_int_equal(rundir_goodput_read(rundir_path(run), &early, &g, NULL), 0);
	assert_memory_equal(g.all.us, us, sizeof us);
	rundir_goodput_fini(&g);
}

static int64_t next_random(uint64_t *seed)
{
	*seed = *seed * UINT64_C(6364136223846793005) + 1442695040888963407;
	return (int64_t)(*seed >> 33);
}

/* Any history adds up: starts, steps, losses and stops of random length. */
static void any_history_adds_up(void **state)
{
	(void)state;
	uint64_t seed = 19;
	for (int generation = 1, n = 0; n < 3000; n++) {
		int64_t dice = next_random(&seed) % 100;
		enum time_part part = (enum time_part)(next_random(&seed) % TIME_PART_COUNT);
		int64_t some = next_random(&seed) % 100000000;
		wall += some;
		us[part] += some * RANKS + next_random(&seed) % 7;
		part = (enum time_part)(TIME_STEP + (int)(next_random(&seed) % TIME_TRAINED));
		if (dice < 10) {
			int64_t back = next_random(&seed) % (us[part] + 1);
			us[part] -= back;
			us[TIME_LOST] += back;
		}
		generation += dice < 5;
		if (dice < 95)
			line((uint32_t)generation);
		else
			put_text("{\"time\":5,\"generation\":7}\n");
	}
	line(1000000);
	struct err e = ERR_INIT;
	assert_int_equal(rundir_goodput_read(rundir_path(run), NULL, &got, &e), 0);
	assert_true(got.n > 50);
	expect_sums(&got);
	expect_all();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
#define T(f) cmocka_unit_test_setup_teardown(f, setup, teardown)
		T(a_run_without_lines_has_no_rows),
		T(a_run_that_only_started_has_its_start),
		T(lost_steps_and_the_wait_belong_to_the_generation_that_was_lost),
		T(a_restart_may_lose_steps_of_several_generations),
		T(lost_steps_stay_with_their_line_if_that_is_gone),
		T(the_start_of_another_muster_run_is_its_own),
		T(a_generation_without_a_line_is_part_of_the_one_before),
		T(a_cut_line_costs_only_itself),
		T(sums_that_fall_begin_anew),
		T(a_line_of_this_moment_counts_if_it_is_later),
		T(any_history_adds_up),
	};
	return cmocka_run_group_tests_name("goodput", tests, NULL, NULL);
}
