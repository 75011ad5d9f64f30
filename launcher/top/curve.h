/*
 * curve — bars and small curves out of block characters; ASCII where the page is not for Unicode.
 */
#ifndef MUSTER_LAUNCHER_TOP_CURVE_H
#define MUSTER_LAUNCHER_TOP_CURVE_H

#include "launcher/top/page.h"

/* A bar of `width` columns, filled to the share 0 to 1 of it. */
void top_curve_bar(struct top_page *p, int row, int col, int width, double share);

/* Draws the values in a box, oldest at the left, scaled between their least and their greatest. If
 * there are more values than columns, a column shows the mean of some; if there are fewer, the curve
 * takes as many columns. A value that is no finite number is an exclamation mark. Several rows give a
 * finer scale. Returns the columns that it took. */
int top_curve_draw(struct top_page *p, int row, int col, int height, int width,
		   const double *values, int n);

#endif
