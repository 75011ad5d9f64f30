/*
 * large: which cells of a large table a test runs. `make check` runs every third cell, in diagonals, so
 * each row and each column has some; `make check-all` sets MUSTER_LARGE and runs all.
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
