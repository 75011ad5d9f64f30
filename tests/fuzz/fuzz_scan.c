/* Any bytes as lines of metrics.jsonl: the quick reader accepts every object that a JSON parser
 * accepts, and its numbers have the same bits; and the splitter gives the same lines however the
 * bytes arrive. */
#include "launcher/rundir/scan.h"
#include "launcher/rundir/split.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *const keys[] = { "step", "loss", "generation", "predicted_s" };
enum { KEYS = sizeof keys / sizeof *keys };

/* Longer than 8 bytes, shorter, and of one letter are all compared. */
static void compare(const json_t *o, const double *values)
{
	for (int i = 0; i < KEYS; i++) {
		const json_t *v = json_object_get(o, keys[i]);
		double right = json_is_number(v) ? json_number_value(v) : NAN;
		if (values[i] != right && !(isnan(values[i]) && isnan(right)))
			abort();
	}
}

/* A key that is written with escapes is another one for the quick reader; and jansson skips a NUL
 * after a number. */
static void scan_line(void *scan, const char *line, size_t n)
{
	double values[KEYS];
	bool whole = rundir_scan_line(scan, line, n, values);
	json_t *o = json_loadb(line, n, 0, NULL);
	if (json_is_object(o) && !memchr(line, '\\', n) && !memchr(line, '\0', n)) {
		if (!whole)
			abort();
		compare(o, values);
	}
	json_decref(o);
}

static void count_line(void *sum, const char *line, size_t n)
{
	uint64_t *s = sum;
	*s = *s * 31 + n + (n ? (unsigned char)line[n - 1] : 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	const char *text = (const char *)data;
	struct rundir_split whole = { 0 }, cut = { 0 };
	uint64_t a = 0, b = 0;
	size_t step = size ? 1 + data[0] % 16 : 1;
	struct rundir_scan *scan = malloc(sizeof *scan);
	if (!scan)
		return 0;
	rundir_scan_init(scan, keys, KEYS);
	rundir_split_feed(&whole, text, size, scan_line, scan);
	rundir_split_fini(&whole);
	whole = (struct rundir_split){ 0 };
	rundir_split_feed(&whole, text, size, count_line, &a);
	for (size_t at = 0; at < size; at += step)
		rundir_split_feed(&cut, text + at, size - at < step ? size - at : step, count_line,
				  &b);
	if (a != b)
		abort();
	rundir_split_fini(&whole);
	rundir_split_fini(&cut);
	free(scan);
	return 0;
}
