#include "launcher/supervise/marks.h"

#include <math.h>
#include <string.h>

int64_t supervise_marks_share(int64_t whole, int64_t part, int64_t of)
{
	return part >= of ? whole : (int64_t)((__int128)whole * part / of);
}

/* Drops the mark whose neighbours are closest to each other for their age. */
static void thin(struct marks *m)
{
	int64_t last = m->list[m->n - 1].step;
	int drop = 1;
	double least = INFINITY;
	for (int i = 1; i < m->n - 1; i++) {
		double apart = (double)(m->list[i + 1].step - m->list[i - 1].step) /
			       (double)(last - m->list[i].step);
		if (apart < least) {
			least = apart;
			drop = i;
		}
	}
	m->n--;
	memmove(m->list + drop, m->list + drop + 1, (size_t)(m->n - drop) * sizeof m->list[0]);
}

static void drop_from(struct marks *m, int64_t step)
{
	while (m->n && m->list[m->n - 1].step >= step)
		m->n--;
}

void supervise_marks_add(struct marks *m, int64_t step, const int64_t parts[TIME_TRAINED])
{
	drop_from(m, step);
	if (m->n == MARKS)
		thin(m);
	struct mark *to = &m->list[m->n++];
	to->step = step;
	memcpy(to->parts, parts, sizeof to->parts);
}

bool supervise_marks_return(struct marks *m, int64_t step, int64_t parts[TIME_TRAINED])
{
	int after = m->n;
	while (after && m->list[after - 1].step > step)
		after--;
	if (after == m->n)
		return false;
	const struct mark *b = &m->list[after], *a = after ? b - 1 : b;
	for (int i = 0; i < TIME_TRAINED; i++) {
		int64_t then = a->parts[i] + supervise_marks_share(b->parts[i] - a->parts[i],
								   after ? step - a->step : 0,
								   after ? b->step - a->step : 1);
		parts[i] = then < parts[i] ? then : parts[i];
	}
	supervise_marks_add(m, step, parts);
	return true;
}
