/*
 * large — selects the cells of a large table that a test runs. `make check` runs every third cell
 * in diagonals, so that each row and each column of a table of at least 3 × 3 has some. `make
 * check-all` sets MUSTER_LARGE, which selects all cells.
 */
#ifndef MUSTER_TESTS_LARGE_H
#define MUSTER_TESTS_LARGE_H

#include <stdbool.h>
#include <stdlib.h>

static inline bool large_run(void)
{
	const char *set = getenv("MUSTER_LARGE");
	return set && *set;
}

static inline bool cell_runs(int row, int column)
{
	return (row + column) % 3 == 0 || large_run();
}

#endif
