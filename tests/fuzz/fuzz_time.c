/* Any bytes as a line of time.jsonl: it is refused, or its parts add up without an overflow, and are the
 * same when they are written again. Any lines continue the account of a run, which still adds up. */
#include "launcher/rundir/time.h"
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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct account a;
	struct rundir_time_line l;
	int64_t step = size ? data[0] : 0;
	const char *text = (const char *)data;
	if (supervise_account_open(&a, 2, 2, 3, 0, NULL))
		return 0;
	for (size_t at = 0; at < size;) {
		const char *end = memchr(text + at, '\n', size - at);
		size_t len = end ? (size_t)(end - text) - at : size - at;
		if (rundir_time_parse(text + at, len, &l))
			check_line(&a, &l);
		at += len + 1;
	}
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
