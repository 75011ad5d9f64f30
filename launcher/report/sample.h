/*
 * sample — reduces a long series to the points of a drawing.
 *
 * The range of x is cut into equal parts, one point each. A point keeps the least and the greatest
 * value of its part, so that no spike is lost however narrow it is, and the mean. A series that is
 * short enough is kept as it is.
 */
#ifndef MUSTER_LAUNCHER_REPORT_SAMPLE_H
#define MUSTER_LAUNCHER_REPORT_SAMPLE_H

#include <stddef.h>

struct sample {
	double first, last; /* x of its first and last value */
	double least, most, mean;
	size_t n; /* values */
};

/* x ascends. Values that are not finite are left out. out has room for `parts`. Returns the number
 * of points, which ascend in x. */
size_t report_sample(const double *x, const double *y, size_t n, size_t parts, struct sample *out);

/* The least and greatest finite value; both NAN: there is none. */
void report_range(const double *y, size_t n, double *least, double *most);

/* The median of the last `n` finite values of y[0..len); NAN: there is none. n is at most 1000. */
double report_recent(const double *y, size_t len, size_t n);

#endif
