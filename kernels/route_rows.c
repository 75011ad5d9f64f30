/* The host's form of the ops that assign rows to experts: integers, so all host backends share it. */
#include "kernels/backend.h"

#include <string.h>

void backend_host_route_count(struct backend *k, int64_t *choices, const int32_t *chosen, int64_t n,
			      int64_t e, int64_t top, int64_t length)
{
	(void)k;
	if (n) /* with n = 0 the arrays may be NULL */
		memset(choices, 0, (size_t)(n / length * e) * sizeof *choices);
	for (int64_t i = 0; i < n * top; i++)
		choices[i / top / length * e + chosen[i]]++;
}

void backend_host_route_drop(struct backend *k, int64_t *at, const int32_t *chosen,
			     const int64_t *before, int64_t n, int64_t e, int64_t top,
			     int64_t length, int64_t most)
{
	int64_t *taken = backend_scratch(k, 0), piece = length * top;
	for (int64_t i = 0; i < n * top; i++) {
		if (i % piece == 0 && before)
			memcpy(taken, before + i / piece * e, (size_t)e * sizeof *taken);
		else if (i % piece == 0)
			memset(taken, 0, (size_t)e * sizeof *taken);
		at[i] = taken[chosen[i]]++ < most ? 0 : -1;
	}
}

void backend_host_route_place(struct backend *k, int64_t *counts, int64_t *at, int64_t *from,
			      const int32_t *chosen, int64_t n, int64_t e, int64_t top,
			      int64_t block)
{
	int64_t *next = backend_scratch(k, 0), row = 0;
	memset(counts, 0, (size_t)e * sizeof *counts);
	for (int64_t i = 0; i < e * block; i++)
		from[i] = -1;
	for (int64_t i = 0; i < n * top; i++)
		counts[chosen[i]] += at[i] >= 0;
	for (int64_t x = 0; x < e; row += counts[x++])
		next[x] = block ? x * block : row;
	for (int64_t i = 0; i < n * top; i++) {
		if (at[i] < 0)
			continue;
		at[i] = next[chosen[i]]++;
		from[at[i]] = i / top;
	}
}

void backend_host_route_blocks(struct backend *k, int64_t *rows, int64_t *order, int64_t *back,
			       const int64_t *counts, int64_t ranks, int64_t e, int64_t block)
{
	int64_t row = 0;
	(void)k;
	for (int64_t i = 0; i < ranks * e * block; i++)
		order[i] = back[i] = -1;
	for (int64_t x = 0; x < e; x++) {
		int64_t first = row;
		for (int64_t r = 0; r < ranks; r++)
			for (int64_t i = 0; i < block && i < counts[r * e + x]; i++) {
				int64_t place = (r * e + x) * block + i;
				order[row] = place;
				back[place] = row++;
			}
		rows[x] = row - first;
	}
}
