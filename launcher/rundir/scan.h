/*
 * scan — reads numbers out of many lines of JSON quickly, without building objects.
 *
 * The caller names the keys that it wants; for each line it gets their values. A line must be a
 * whole object; the values of other keys are stepped over and not checked. So the scan accepts every
 * line that a JSON parser accepts, and may accept one whose other values are damaged. Numbers have
 * the bits that strtod(3) gives.
 */
#ifndef MUSTER_LAUNCHER_RUNDIR_SCAN_H
#define MUSTER_LAUNCHER_RUNDIR_SCAN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { RUNDIR_SCAN_KEYS = 64, RUNDIR_SCAN_SLOTS = 64 };

struct rundir_scan_key {
	const char *name; /* borrowed */
	size_t len;
	uint64_t begin; /* its first 8 bytes */
};

/* Lines of a file have the same keys in the same order, so each place in a line remembers which key
 * was there. */
struct rundir_scan {
	struct rundir_scan_key keys[RUNDIR_SCAN_KEYS];
	int n;
	struct {
		uint64_t begin;
		size_t len;
		int column; /* -1: not wanted */
		bool known;
	} slots[RUNDIR_SCAN_SLOTS];
};

/* n: at most RUNDIR_SCAN_KEYS. The names must stay where they are. */
void rundir_scan_init(struct rundir_scan *s, const char *const *keys, int n);
/* values[n]: NAN if the key is missing or its value is no number. Of a key that comes twice, the last
 * value counts. False: the line is no whole object. */
bool rundir_scan_line(struct rundir_scan *s, const char *line, size_t len, double *values);

/* Reads all lines of the run's metrics.jsonl and its segments in their order; without the file there
 * are none. After a restart a step may come again: its last line counts. *damaged: lines that are no
 * whole object. ERR_UNSUPPORTED: a newer muster wrote the file. */
int rundir_metrics_scan(const char *run, const char *const *keys, int n,
			void (*each)(void *arg, const double *values), void *arg, int64_t *damaged,
			struct err *e);

#endif
