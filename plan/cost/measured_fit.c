#include "plan/cost/measured.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The times of products with fewer FLOPs depend on their edges, not on packing. */
#define PACKING_FROM 3e7
/* The smallest ratio of two neighbouring points of a product's curve. */
#define BIN 3.0

/* Returns the seconds per byte for packing the weights. It minimizes the squares of the relative
 * error of FLOPs / rate + bytes × packing = seconds; neither term may be negative. */
static double packing_of(const struct measured_point *points, int n, enum rate_class form)
{
	double ff = 0, fw = 0, ww = 0, f1 = 0, w1 = 0;
	for (int i = 0; i < n; i++) {
		const struct measured_point *p = &points[i];
		if (p->class != form || p->work < PACKING_FROM)
			continue;
		double f = p->work / p->seconds, w = p->weights / p->seconds;
		ff += f * f;
		fw += f * w;
		ww += w * w;
		f1 += f;
		w1 += w;
	}
	double det = ff * ww - fw * fw, packing = (w1 * ff - f1 * fw) / det,
	       flop = (f1 * ww - w1 * fw) / det;
	return det > 1e-9 * ff * ww && packing > 0 && flop > 0 ? packing : 0;
}

static int by_x(const void *a, const void *b)
{
	const struct measured_point *p = a, *q = b;
	return (p->x > q->x) - (p->x < q->x);
}

/* points: of one class, sorted. apart: the smallest ratio of two points of the curve. */
static void curve_through(const struct measured_point *points, int n, double packing, double apart,
			  struct rate_curve *c)
{
	*c = (struct rate_curve){ 0 };
	for (int i = 0, in; i < n && c->n < RATE_POINTS; i += in) {
		double x = 0, rate = 0;
		for (in = 0; i + in < n && points[i + in].x <= apart * points[i].x; in++) {
			const struct measured_point *p = &points[i + in];
			x += log(p->x);
			/* Packing takes some of the time, but never most of it. */
			rate += p->work / fmax(p->seconds - packing * p->weights, 0.2 * p->seconds);
		}
		c->x[c->n] = exp(x / in);
		c->rate[c->n++] = rate / in;
	}
}

bool cost_measured_fit(const struct measured_point *points, int n, struct machine_rates *out)
{
	struct measured_point *mine = malloc((size_t)(n > 0 ? n : 1) * sizeof *mine);
	memset(out, 0, sizeof *out);
	for (int class = 0; mine && class < RATE_CLASSES; class ++) {
		bool product = class <= RATE_PRODUCT_WEIGHT;
		double packing = product ? packing_of(points, n, (enum rate_class) class) : 0;
		int found = 0;
		for (int i = 0; i < n; i++)
			if ((int)points[i].class == class && points[i].seconds > 0 &&
			    points[i].x >= 1)
				mine[found++] = points[i];
		qsort(mine, (size_t)found, sizeof *mine, by_x);
		curve_through(mine, found, packing, product ? BIN : 1, &out->rates[class]);
		if (packing > 0)
			out->packing[class] = 1 / packing;
	}
	free(mine);
	return out->rates[RATE_PRODUCT_FWD].n && out->rates[RATE_MOVED].n;
}
