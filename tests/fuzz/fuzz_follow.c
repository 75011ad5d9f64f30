/* Any bytes as events.jsonl or metrics.jsonl that grow: the lines do not depend on where the reader
 * was interrupted, and no line is lost or reported twice. */
#include "launcher/rundir/follow.h"

#include <math.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct count {
	int64_t lines, generations;
};

static void count_line(void *arg, const struct rundir_line *l)
{
	struct count *c = arg;
	c->lines++;
	c->generations += l->generation % 1000;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct rundir_lines whole = { 0 }, cut = { 0 };
	struct count a = { 0 }, b = { 0 };
	const char *text = (const char *)data;
	size_t step = size ? 1 + data[0] % 16 : 1;
	rundir_lines_feed(&whole, text, size, count_line, &a);
	for (size_t at = 0; at < size; at += step)
		rundir_lines_feed(&cut, text + at, size - at < step ? size - at : step, count_line,
				  &b);
	if (a.lines != b.lines || a.generations != b.generations || whole.damaged != cut.damaged)
		abort();
	rundir_lines_fini(&whole);
	rundir_lines_fini(&cut);
	return 0;
}
