#include "launcher/top/curve.h"

#include <math.h>

enum { STEPS = 8 };

static const wchar_t blocks[STEPS + 1] = L" ▁▂▃▄▅▆▇█", left_blocks[STEPS + 1] = L" ▏▎▍▌▋▊▉█";
static const wchar_t ascii[STEPS + 1] = L" _.,-=+*#";

void top_curve_bar(struct top_page *p, int row, int col, int width, double share)
{
	int full = (int)lround(fmin(fmax(share, 0), 1) * width * STEPS);
	for (int i = 0; i < width; i++) {
		int part = full - i * STEPS;
		part = part < 0 ? 0 : part > STEPS ? STEPS : part;
		if (!p->unicode)
			top_page_set(p, row, col + i, part >= STEPS / 2 ? TOP_CURVE : TOP_DIM,
				     part >= STEPS / 2 ? L'#' : L'-');
		else if (part)
			top_page_set(p, row, col + i, TOP_CURVE, left_blocks[part]);
		else
			top_page_set(p, row, col + i, TOP_DIM, L'·');
	}
}

/* The mean of the values that column i of `cols` shows; not finite if one of them is not. */
static double column_of(const double *values, int n, int i, int cols)
{
	long from = (long)i * n / cols, to = (long)(i + 1) * n / cols;
	double sum = 0;
	for (long k = from; k < to; k++)
		sum += values[k];
	return sum / (double)(to - from);
}

static void draw_column(struct top_page *p, int row, int col, int height, int level)
{
	for (int h = 0; h < height; h++) {
		int part = level - h * STEPS;
		part = part < 0 ? 0 : part > STEPS ? STEPS : part;
		if (part)
			top_page_set(p, row + height - 1 - h, col, TOP_CURVE,
				     p->unicode ? blocks[part] : ascii[part]);
	}
}

int top_curve_draw(struct top_page *p, int row, int col, int height, int width,
		   const double *values, int n)
{
	int cols = n < width ? n : width, most = height * STEPS - 1;
	double low = INFINITY, high = -INFINITY;
	for (int i = 0; i < cols; i++) {
		double v = column_of(values, n, i, cols);
		if (isfinite(v)) {
			low = fmin(low, v);
			high = fmax(high, v);
		}
	}
	for (int i = 0; i < cols; i++) {
		double v = column_of(values, n, i, cols);
		double share = high > low ? (v - low) / (high - low) : 0.5;
		if (isfinite(v))
			draw_column(p, row, col + i, height, 1 + (int)lround(share * most));
		else
			top_page_set(p, row + height - 1, col + i, TOP_BAD, L'!');
	}
	return cols > 0 ? cols : 0;
}
