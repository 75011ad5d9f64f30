/* scale — where a value is drawn, and the round values that an axis names. */
#ifndef MUSTER_LAUNCHER_REPORT_SCALE_H
#define MUSTER_LAUNCHER_REPORT_SCALE_H

#include <stdbool.h>

enum { SCALE_TICKS = 12 };

struct scale {
	double lo, hi; /* lo < hi, finite */
};

/* The scale of an axis for values in [lo, hi]. It widens to round values if `round`; a single value
 * gets room around it. Values that are not finite give [0, 1]. */
struct scale report_scale(double lo, double hi, bool round);

/* 0 at lo, 1 at hi; clamped to [0, 1]. */
double report_scale_at(const struct scale *s, double v);

/* At most `most` (and SCALE_TICKS) round values inside the scale, ascending. Returns how many. */
int report_scale_ticks(const struct scale *s, int most, double ticks[SCALE_TICKS]);

#endif
