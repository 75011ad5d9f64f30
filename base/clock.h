/* clock — monotonic time for waits and measurements, and wall-clock time for files. */
#ifndef MUSTER_BASE_CLOCK_H
#define MUSTER_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

static inline int64_t clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double clock_s(void)
{
	return (double)clock_ns() * 1e-9;
}

/* Seconds since 1970, for files that people and other machines read. */
static inline double clock_wall_s(void)
{
	struct timespec t;
	clock_gettime(CLOCK_REALTIME, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Nanoseconds from clock_ns() to nanoseconds since 1970. The thread may lose its core between the two
 * clocks, so they are read until that has hardly happened. */
static inline int64_t clock_wall_offset_ns(void)
{
	int64_t offset = 0, shortest = INT64_MAX;
	for (int i = 0; i < 8 && shortest > 1000; i++) {
		struct timespec t;
		int64_t before = clock_ns();
		clock_gettime(CLOCK_REALTIME, &t);
		int64_t took = clock_ns() - before;
		if (took >= shortest)
			continue;
		shortest = took;
		offset = (int64_t)t.tv_sec * 1000000000 + t.tv_nsec - before - took / 2;
	}
	return offset;
}

#endif
