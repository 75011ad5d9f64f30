/* tmpdir — each test creates its files in a folder of its own under TMPDIR. tests/run reports files
 * that remain there. */
#ifndef MUSTER_TESTS_UNIT_TMPDIR_H
#define MUSTER_TESTS_UNIT_TMPDIR_H

#include <stdio.h>
#include <stdlib.h>

/* Makes a new folder and writes its path to `dir`; NULL when it cannot. A TMPDIR too long for
 * `size` is passed over for /tmp: the path of a socket must be short. */
static inline char *tmpdir_make(char *dir, size_t size)
{
	const char *top = getenv("TMPDIR");
	if (!top || !*top || snprintf(dir, size, "%s/muster-test-XXXXXX", top) >= (int)size)
		snprintf(dir, size, "/tmp/muster-test-XXXXXX");
	return mkdtemp(dir);
}

#endif
