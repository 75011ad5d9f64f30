/* parts — how the report orders, names and colours the parts of time: those of a step and of a
 * run. */
#ifndef MUSTER_LAUNCHER_REPORT_PARTS_H
#define MUSTER_LAUNCHER_REPORT_PARTS_H

#include "base/buf.h"

/* A part of time, as time.jsonl and metrics.jsonl name it without "_s". The style sheet has a class
 * p-<key> for it. */
struct report_part {
	const char *key;  /* "compute" */
	const char *name; /* for people */
};

enum { REPORT_PARTS = 19 };

/* In the order of a stack: training first, then waits, then what is lost. */
extern const struct report_part report_parts[REPORT_PARTS];

/* The index of a part, from its key with or without "_s"; -1: there is none. */
int report_part_index(const char *key);

/* The coloured square of a part. */
void report_part_key(struct buf *out, int part);

/* A bar to 100 %: the shares of `values`, of which NULL are left out; a text describes it for those
 * who cannot see it. */
void report_part_bar(struct buf *out, const char *label, const double values[REPORT_PARTS]);

#endif
