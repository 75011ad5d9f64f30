#include "launcher/rundir/windows.h"

#include "base/run_paths.h"
#include "base/segments.h"
#include "launcher/rundir/scan.h"
#include "launcher/rundir/split.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { READ_BYTES = 1 << 18 };
enum column { TIME, GENERATION, COLUMNS };

struct reading {
	struct rundir_scan scan;
	struct rundir_split split;
	struct segments_reader reader;
	struct rundir_windows windows;
	int room;
	bool failed; /* no memory */
	char data[READ_BYTES];
};

static void add_window(struct reading *r, int64_t generation, double time)
{
	struct rundir_windows *w = &r->windows;
	if (w->n == r->room) {
		int room = r->room ? 2 * r->room : 16;
		struct rundir_window *of = reallocarray(w->of, (size_t)room, sizeof *of);
		r->failed |= !of;
		if (!of)
			return;
		w->of = of;
		r->room = room;
	}
	if (w->n)
		w->of[w->n - 1].until = time;
	w->of[w->n++] = (struct rundir_window){ generation, time, INFINITY };
}

static void read_line(void *reading, const char *line, size_t n)
{
	static const char begin[] = "{\"event\":\"generation-start\"";
	struct reading *r = reading;
	double v[COLUMNS];
	if (n < sizeof begin || memcmp(line, begin, sizeof begin - 1) ||
	    !rundir_scan_line(&r->scan, line, n, v) || !isfinite(v[TIME]) ||
	    !(v[GENERATION] >= 0 && v[GENERATION] <= UINT32_MAX))
		return;
	int64_t generation = (int64_t)v[GENERATION];
	if (!rundir_windows_find(&r->windows, generation))
		add_window(r, generation, v[TIME]);
}

int rundir_windows_read(const char *run, struct rundir_windows *out, struct err *e)
{
	static const char *const keys[COLUMNS] = { [TIME] = "time", [GENERATION] = "generation" };
	struct reading *r = calloc(1, sizeof *r);
	ssize_t n = 0;
	if (!r)
		return err_set(e, ERR_NOMEM, "%s: no memory to read its events", run);
	rundir_scan_init(&r->scan, keys, COLUMNS);
	segments_reader_init(&r->reader, run, RUN_EVENTS);
	while (!r->failed && (n = segments_read(&r->reader, r->data, sizeof r->data, e)) > 0)
		rundir_split_feed(&r->split, r->data, (size_t)n, read_line, r);
	int rc = n < 0 ? -1 : 0;
	if (r->failed)
		rc = err_set(e, ERR_NOMEM, "%s: no memory to read its events", run);
	if (rc)
		rundir_windows_free(&r->windows);
	else
		*out = r->windows;
	rundir_split_fini(&r->split);
	segments_reader_fini(&r->reader);
	free(r);
	return rc;
}

void rundir_windows_free(struct rundir_windows *w)
{
	free(w->of);
	*w = (struct rundir_windows){ .n = 0 };
}

const struct rundir_window *rundir_windows_find(const struct rundir_windows *w, int64_t generation)
{
	/* The last ones are asked for most. */
	for (int i = w->n - 1; i >= 0; i--)
		if (w->of[i].generation == generation)
			return &w->of[i];
	return NULL;
}
