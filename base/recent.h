/*
 * recent — judges a value by those before it: how far it is above the range of the last ones.
 *
 * The distance is z = (x - median) / deviation. The deviation is 1.4826 times the median of the
 * absolute deviations (MAD) from the median, which for a normal distribution is its standard
 * deviation, and which a few outliers do not change. The caller sets the least deviation, so that
 * a series that hardly varies gives no alarm. It is pure arithmetic.
 */
#ifndef MUSTER_BASE_RECENT_H
#define MUSTER_BASE_RECENT_H

enum { RECENT_MAX = 256 };

/* The last values, in a ring. {0}: none is known. */
struct recent {
	double last[RECENT_MAX];
	int n, next;
};

/* Keeps x, and of the values before it the last window - 1; window is from 1 to RECENT_MAX and always
 * the same. x is finite. */
void recent_add(struct recent *r, int window, double x);
/* What a series calls usual, and the largest value that is not above `z`. The deviation is at least
 * `least`, and this share of the median's absolute value. Without values the limit is INFINITY. */
struct recent_bound {
	double usual, deviation, limit;
};
struct recent_bound recent_bound(const struct recent *r, double z, double least, double share);
/* The z of x if it is above `z`; otherwise 0. It is 0, too, for a value that one of the last ones has
 * reached, and without values. *usual, if the z is not 0, is the median. */
double recent_above(const struct recent *r, double x, double z, double least_deviation,
		    double *usual);
/* The same; the least deviation is this share of the median's absolute value. */
double recent_above_share(const struct recent *r, double x, double z, double share, double *usual);

#endif
