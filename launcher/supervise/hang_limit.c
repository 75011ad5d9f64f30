#include "launcher/supervise/hang_limit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare_gaps(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static float percentile_99(const struct hang_phase *p)
{
	float sorted[HANG_STEPS];
	size_t n = p->n < HANG_STEPS ? (size_t)p->n : HANG_STEPS;
	memcpy(sorted, p->gaps, n * sizeof *sorted);
	qsort(sorted, n, sizeof *sorted, compare_gaps);
	return sorted[(n * 99 + 99) / 100 - 1];
}

/* The index of the phase, or of the first free entry; -1: the table is full. */
static int find_phase(const struct hang_limit *h, const char *name)
{
	for (int i = 0; i < HANG_PHASES; i++)
		if (!*h->phases[i].name || !strncmp(h->phases[i].name, name, HANG_PHASE - 1))
			return i;
	return -1;
}

void supervise_hang_note_gap(struct hang_limit *h, const char *phase, double seconds)
{
	int at = find_phase(h, phase);
	if (at < 0 || !*phase)
		return;
	struct hang_phase *p = &h->phases[at];
	snprintf(p->name, sizeof p->name, "%s", phase);
	p->longest = fmaxf(p->longest, (float)seconds);
}

void supervise_hang_note_step(struct hang_limit *h)
{
	for (struct hang_phase *p = h->phases; p < h->phases + HANG_PHASES && *p->name; p++) {
		if (p->longest <= 0)
			continue;
		p->gaps[p->n++ % HANG_STEPS] = p->longest;
		p->longest = 0;
		if (p->n >= HANG_STEPS_MIN)
			p->high = percentile_99(p);
	}
}

double supervise_hang_limit_of(const struct hang_limit *h, const char *phase, double floor,
			       double cap)
{
	int at = find_phase(h, phase);
	double high = at >= 0 ? (double)h->phases[at].high : 0;
	return high > 0 ? fmin(cap, fmax(fmax(floor, h->floor), HANG_FACTOR * high)) : cap;
}

void supervise_hang_note_hang(struct hang_limit *h, double floor, double limit, double cap)
{
	if (limit < cap)
		h->floor = 2 * fmax(fmax(floor, h->floor), limit);
}
