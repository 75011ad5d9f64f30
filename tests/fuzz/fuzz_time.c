/* Any bytes as a line of time.jsonl: it is refused, or its parts add up without an overflow, and are the
 * same when they are written again. The generations of any lines add up. Any lines continue the account of a run, which still adds up. */
#include "launcher/rundir/goodput.h"
#include "launcher/supervise/account.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_line(struct account *a, const struct rundir_time_line *l)
{
	int64_t parts[TIME_PART_COUNT];
	struct rundir_time again = { 0 };
	rundir_time_parts(l, parts);
	rundir_time_set_parts(&again, parts);
	if (time_parts_sum(parts) < 0 || !(again.goodput >= 0 && again.goodput <= 1) ||
	    fabs(again.lost_s - l->lost_s) > 1e-6 + 1e-9 * l->lost_s)
		abort();
	supervise_account_continue(a, llround(1e6 * l->wall_s), l->step, parts);
}

/* The generations of any lines add up. */
static void check_generations(struct rundir_goodput_reader *r)
{
	struct rundir_goodput g;
	int64_t wall = 0, us[TIME_PART_COUNT] = { 0 };
	if (rundir_goodput_close(r, NULL, &g, NULL))
		return;
	for (size_t i = 0; i < g.n; i++) {
		double share = rundir_goodput_share(&g.rows[i]);
		wall += g.rows[i].wall;
		for (int k = 0; k < TIME_PART_COUNT; k++)
			us[k] += g.rows[i].us[k];
		if (!(share >= 0 && share <= 1) || g.rows[i].effective > g.rows[i].wall)
			abort();
	}
	if (wall != g.all.wall || memcmp(us, g.all.us, sizeof us))
		abort();
	for (int k = 0; k < TIME_PART_COUNT; k++)
		if (us[k] < 0)
			abort();
	rundir_goodput_fini(&g);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct account a;
	struct rundir_goodput_reader *r = rundir_goodput_open(NULL);
	struct rundir_time_line l;
	int64_t step = size ? data[0] : 0;
	const char *text = (const char *)data;
	if (!r || supervise_account_open(&a, 2, 2, 3, 0, NULL))
		abort();
	for (size_t at = 0; at < size;) {
		const char *end = memchr(text + at, '\n', size - at);
		size_t len = end ? (size_t)(end - text) - at : size - at;
		rundir_goodput_feed(r, text + at, len);
		if (rundir_time_parse(text + at, len, &l))
			check_line(&a, &l);
		at += len + 1;
	}
	check_generations(r);
	int64_t sum = time_parts_sum(a.parts);
	supervise_account_generation(&a, 1, 2);
	supervise_account_ready(&a, 2, 0, step);
	supervise_account_ready(&a, 3, 1, step);
	if (time_parts_sum(a.parts) != sum + 9)
		abort();
	for (int i = 0; i < TIME_PART_COUNT; i++)
		if (a.parts[i] < 0)
			abort();
	supervise_account_close(&a);
	return 0;
}
