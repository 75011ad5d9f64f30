#include "base/frame.h"

#include <stddef.h>
#include <string.h>

static const char mark[] = ", in ", caller[] = ", called by ";

const char *frame_of(const char *clause)
{
	const char *found = NULL;
	for (const char *at = clause; at && (at = strstr(at, mark)); at += sizeof mark - 1)
		found = at + sizeof mark - 1;
	return found && *found ? found : NULL;
}

bool frame_waits(const char *frame)
{
	static const char *const words[] = {
		"(torch/distributed/distributed_c10d.py:",
		"(torch/distributed/_functional_collectives.py:",
		"(torch/distributed/c10d_logger.py:",
		"synchronize (torch/cuda/",
		"(horovod/",
		"(mpi4py/",
		"() of libnccl",
		"() of librccl",
		"() of libcuda.so",
		"() of libcudart",
		"() of libamdhip64",
		"() of libmpi",
		"() of libopen-pal",
		"() of libuc", /* UCX: libucp, libuct, libucs */
		"() of libfabric",
		"() of libpsm2",
		"gloo::",
		"c10d::",
	};
	const char *end = strstr(frame, caller);
	for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
		const char *at = strstr(frame, words[i]);
		if (at && (!end || at < end))
			return true;
	}
	return false;
}

/* The function and its file, without the line. */
static size_t place_length(const char *frame)
{
	return strcspn(frame, ":,");
}

static bool same_place(const char *a, const char *b)
{
	size_t n = place_length(a);
	return n == place_length(b) && !strncmp(a, b, n);
}

static bool same_frame(const char *a, const char *b)
{
	return !strcmp(a, b);
}

/* The first rank outside a majority, or -1. */
static int find_outside(const char *const *clauses, int n, bool (*same)(const char *, const char *))
{
	int known = 0, outside = -1;
	for (int i = 0; i < n; i++)
		known += frame_of(clauses[i]) != NULL;
	for (int i = 0; i < n; i++) {
		const char *frame = frame_of(clauses[i]);
		int agree = 0, other = -1;
		for (int k = n - 1; frame && k >= 0; k--) {
			const char *its = frame_of(clauses[k]);
			if (its && same(frame, its))
				agree++;
			else if (its)
				other = k;
		}
		if (2 * agree > known)
			outside = other;
	}
	return outside;
}

int frame_odd(const char *const *clauses, int n)
{
	int waiting = 0, first = -1;
	for (int i = 0; i < n; i++) {
		const char *frame = frame_of(clauses[i]);
		if (frame && frame_waits(frame))
			waiting++;
		else if (frame && first < 0)
			first = i;
	}
	if (waiting && first >= 0)
		return first;
	int odd = find_outside(clauses, n, same_place);
	return odd >= 0 ? odd : find_outside(clauses, n, same_frame);
}
