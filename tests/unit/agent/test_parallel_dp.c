/* Gradient buckets: whatever their size and the order of completion, the sum is the group's. */
#include "agent/parallel/dp.h"
#include "tests/unit/agent/world.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 3, ELEMENTS = 1040 };

static float value(int rank, int64_t i)
{
	return (float)(rank + 1) / (float)(i + 3);
}

/* The order that libcomm promises for three ranks. */
static float sum_of_three(int64_t i)
{
	return (value(0, i) + value(1, i)) + value(2, i);
}

static void fill(float *x, int rank, int64_t from, int64_t to)
{
	for (int64_t i = from; i < to; i++)
		x[i] = value(rank, i);
}

static int check(const float *x, struct err *e)
{
	for (int64_t i = 0; i < ELEMENTS; i++)
		if (x[i] != sum_of_three(i))
			return err_set(e, ERR_NUMERIC, "element %d is %.9g, expected %.9g", (int)i, (double)x[i], (double)sum_of_three(i));
	return 0;
}

/* Completes the buffer piece by piece from its end; a piece that is written after its bucket left would be lost. */
static int reduce_in_pieces(struct comm *world, int64_t bucket, int64_t piece, struct err *e)
{
	float x[ELEMENTS];
	struct dp *d;
	int rank = comm_rank(world), rc = -1;

	if (dp_open(world, x, ELEMENTS, bucket, &d, e))
		return -1;
	for (int round = 0; round < 2; round++) {
		memset(x, 0, sizeof x);
		for (int64_t to = ELEMENTS; to > 0; to -= piece) {
			int64_t from = to > piece ? to - piece : 0;
			fill(x, rank, from, to);
			if (dp_ready(d, from, e))
				goto out;
		}
		if (dp_finish(d, e) || check(x, e))
			goto out;
	}
	/* Nothing announced: finish alone does it all. */
	fill(x, rank, 0, ELEMENTS);
	rc = dp_finish(d, e) || check(x, e) ? -1 : 0;
out:
	dp_close(d);
	return rc;
}

static int all_sizes(struct comm *world, void *arg, struct err *e)
{
	static const int64_t buckets[] = { 1, 7, 100, 1039, 1040, 5000 }, pieces[] = { 1, 64, 333, 2000 };
	(void)arg;
	for (size_t b = 0; b < sizeof buckets / sizeof *buckets; b++)
		for (size_t p = 0; p < sizeof pieces / sizeof *pieces; p++)
			if (buckets[b] * pieces[p] > 6 && reduce_in_pieces(world, buckets[b], pieces[p], e))
				return err_prefix(e, "buckets of %d, pieces of %d", (int)buckets[b], (int)pieces[p]);
	return 0;
}

static void buckets_sum_in_the_group_s_order(void **state)
{
	(void)state;
	assert_int_equal(world_run(RANKS, all_sizes, NULL), 0);
}

static void one_rank_alone_keeps_its_gradients(void **state)
{
	(void)state;
	struct err e = ERR_INIT;
	struct dp *d;
	float x[ELEMENTS];
	fill(x, 0, 0, ELEMENTS);
	assert_int_equal(dp_open(NULL, x, ELEMENTS, 100, &d, &e), 0);
	assert_int_equal(dp_ready(d, 500, &e), 0);
	assert_int_equal(dp_finish(d, &e), 0);
	for (int64_t i = 0; i < ELEMENTS; i++)
		assert_true(x[i] == value(0, i));
	dp_close(d);
	dp_close(NULL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(buckets_sum_in_the_group_s_order),
		cmocka_unit_test(one_rank_alone_keeps_its_gradients),
	};
	return cmocka_run_group_tests_name("gradient buckets", tests, NULL, NULL);
}
