#include "launcher/report/sample.h"

#include <math.h>
#include <stdlib.h>

static void take(struct sample *s, double x, double y)
{
	if (!s->n)
		*s = (struct sample){ .first = x, .least = y, .most = y };
	s->last = x;
	s->least = fmin(s->least, y);
	s->most = fmax(s->most, y);
	s->n++;
	s->mean += (y - s->mean) / (double)s->n;
}

size_t report_sample(const double *x, const double *y, size_t n, size_t parts, struct sample *out)
{
	size_t used = 0, part = 0;
	double begin = n ? x[0] : 0, wide = n ? x[n - 1] - begin : 0;
	if (!parts)
		return 0;
	for (size_t i = 0; i < n; i++) {
		/* As many points as values, if they are few. */
		size_t in = n <= parts ? i : (size_t)((x[i] - begin) / wide * (double)parts);
		if (n > parts && !(wide > 0))
			in = 0;
		in = in < parts ? in : parts - 1;
		if (!isfinite(y[i]))
			continue;
		if (!used || in != part)
			out[used++] = (struct sample){ 0 };
		part = in;
		take(&out[used - 1], x[i], y[i]);
	}
	return used;
}

void report_range(const double *y, size_t n, double *least, double *most)
{
	*least = *most = NAN;
	for (size_t i = 0; i < n; i++) {
		if (!isfinite(y[i]))
			continue;
		*least = fmin(*least, y[i]); /* fmin(NAN, y) is y */
		*most = fmax(*most, y[i]);
	}
}

static int ascending(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double report_recent(const double *y, size_t len, size_t n)
{
	enum { MOST = 1000 };
	double last[MOST];
	size_t used = 0;
	for (size_t i = len; i-- > 0 && used < n && used < MOST;)
		if (isfinite(y[i]))
			last[used++] = y[i];
	qsort(last, used, sizeof *last, ascending);
	return used ? used % 2 ? last[used / 2] : (last[used / 2 - 1] + last[used / 2]) / 2 : NAN;
}
