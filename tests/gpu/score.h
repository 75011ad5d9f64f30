/*
 * score — the counts that a program of make check-gpu prints: one line per check, and then `N passed, N
 * failed, N skipped`.
 */
#ifndef MUSTER_TESTS_GPU_SCORE_H
#define MUSTER_TESTS_GPU_SCORE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>

struct score {
	int passed, failed, skipped;
};

__attribute__((format(printf, 3, 4))) static inline void score_check(struct score *s, bool ok,
								     const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	printf("%-6s ", ok ? "ok" : "FAILED");
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	s->passed += ok;
	s->failed += !ok;
}

static inline void score_skip(struct score *s, const char *what, const char *why)
{
	printf("skip   %s: %s\n", what, why);
	s->skipped++;
}

/* The program's exit status. */
static inline int score_close(const struct score *s)
{
	printf("%d passed, %d failed, %d skipped\n", s->passed, s->failed, s->skipped);
	return s->failed ? 1 : 0;
}

#endif
