#include "agent/engine/ckpt/format/part.h"

#include "base/numbers.h"

#include <stddef.h>
#include <string.h>

struct part ckpt_part_of(int dims, const int64_t *lo, const int64_t *hi)
{
	if (dims == 1)
		return (struct part){ { 0, lo[0] }, { 1, hi[0] } };
	return (struct part){ { lo[0], lo[1] }, { hi[0], hi[1] } };
}

static int64_t width_of(const struct part *p)
{
	return p->hi[1] - p->lo[1];
}

int64_t ckpt_part_elements(const struct part *p)
{
	return (p->hi[0] - p->lo[0]) * width_of(p);
}

bool ckpt_part_cut(const struct part *a, const struct part *b, struct part *cut)
{
	for (int i = 0; i < 2; i++) {
		cut->lo[i] = max_int64(a->lo[i], b->lo[i]);
		cut->hi[i] = min_int64(a->hi[i], b->hi[i]);
		if (cut->lo[i] >= cut->hi[i])
			return false;
	}
	return true;
}

int ckpt_part_compare(const struct part *a, const struct part *b)
{
	const int64_t x[4] = { a->lo[0], a->lo[1], a->hi[0], a->hi[1] },
		      y[4] = { b->lo[0], b->lo[1], b->hi[0], b->hi[1] };
	for (int i = 0; i < 4; i++)
		if (x[i] != y[i])
			return x[i] < y[i] ? -1 : 1;
	return 0;
}

int64_t ckpt_part_count(const struct part *from, const struct part *cut, int64_t n)
{
	int64_t row = from->lo[0] + n / width_of(from), column = from->lo[1] + n % width_of(from);
	int64_t rows = clamp_int64(row, cut->lo[0], cut->hi[0]) - cut->lo[0];
	bool inside = row >= cut->lo[0] && row < cut->hi[0];
	return rows * width_of(cut) +
	       (inside ? clamp_int64(column, cut->lo[1], cut->hi[1]) - cut->lo[1] : 0);
}

bool ckpt_part_is_run(const struct part *whole, const struct part *cut)
{
	return width_of(cut) == width_of(whole) || cut->hi[0] - cut->lo[0] == 1;
}

int64_t ckpt_part_index(const struct part *whole, const struct part *cut, int64_t k)
{
	int64_t row = cut->lo[0] + k / width_of(cut), column = cut->lo[1] + k % width_of(cut);
	return (row - whole->lo[0]) * width_of(whole) + column - whole->lo[1];
}

/* Copies the elements [first, first + n), all in rows of the cut, row by row. */
static void copy_rows(const struct part *from, const float *data, int64_t first, int64_t n,
		      const struct part *to, float *out, int64_t base)
{
	int64_t width = width_of(from), to_width = width_of(to);
	while (n > 0) {
		int64_t row = from->lo[0] + first / width, column = from->lo[1] + first % width;
		int64_t run = min_int64(n, from->hi[1] - column);
		int64_t lo = max_int64(column, to->lo[1]), hi = min_int64(column + run, to->hi[1]);
		int64_t at = (row - to->lo[0]) * to_width + lo - to->lo[1] - base;
		if (lo < hi)
			memcpy(out + at, data + (lo - column), (size_t)(hi - lo) * sizeof *out);
		data += run;
		first += run;
		n -= run;
	}
}

void ckpt_part_copy(const struct part *from, const float *data, int64_t first, int64_t n,
		    const struct part *to, float *out, int64_t base)
{
	struct part cut;
	if (!ckpt_part_cut(from, to, &cut))
		return;
	int64_t width = width_of(from);
	int64_t lo = max_int64(first, (cut.lo[0] - from->lo[0]) * width),
		hi = min_int64(first + n, (cut.hi[0] - from->lo[0]) * width);
	if (lo >= hi)
		return;
	if (width_of(&cut) != width || width_of(to) != width) {
		copy_rows(from, data + (lo - first), lo, hi - lo, to, out, base);
		return;
	}
	int64_t at = lo + (from->lo[0] - to->lo[0]) * width - base;
	memcpy(out + at, data + (lo - first), (size_t)(hi - lo) * sizeof *out);
}
