/* parts — how the report orders and colours the parts of time (base/time_parts.h). */
#ifndef MUSTER_LAUNCHER_REPORT_PARTS_H
#define MUSTER_LAUNCHER_REPORT_PARTS_H

#include "base/buf.h"
#include "base/time_parts.h"

/* The order of a stack: training first, then waits, then what is lost. */
extern const enum time_part report_parts[TIME_PART_COUNT];

/* "compute". The style sheet has a class p-<word> for each part. */
const char *report_part_word(enum time_part part);

/* The coloured square of a part. */
void report_part_key(struct buf *out, enum time_part part);

/* A bar to 100 %: the shares of the values, [enum time_part]. A text describes it for those who
 * cannot see it. */
void report_part_bar(struct buf *out, const char *label, const double values[TIME_PART_COUNT]);

#endif
