/*
 * simulate_seed — one simulated run (launcher/simulate) in a temporary folder, in memory if there is such a
 * file system.
 */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_SIMULATE_SEED_H
#define MUSTER_TESTS_UNIT_LAUNCHER_SIMULATE_SEED_H

#include "launcher/simulate/simulate.h"

#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static inline int simulate_seed_remove(const char *path, const struct stat *st, int kind,
				       struct FTW *at)
{
	(void)st;
	(void)kind;
	(void)at;
	return remove(path);
}

/* change: alters the setup of the seed; NULL: nothing. The caller frees result->text. */
static inline int simulate_seed(uint64_t seed, void (*change)(struct simulate_setup *s),
				struct simulate_result *result, struct err *e)
{
	static const char memory[] = "/dev/shm";
	struct simulate_setup setup;
	const char *top = getenv("TMPDIR");
	char folder[256];
	snprintf(folder, sizeof folder, "%s/simulated-run-XXXXXX",
		 !access(memory, W_OK) ? memory
		 : top && *top         ? top
				       : "/tmp");
	if (simulate_chaos(seed, &setup, e))
		return -1;
	if (change)
		change(&setup);
	int rc = mkdtemp(folder) ? simulate_run(&setup, folder, result, e)
				 : err_errno(e, ERR_IO, "%s", folder);
	nftw(folder, simulate_seed_remove, 8, FTW_DEPTH | FTW_PHYS);
	simulate_setup_free(&setup);
	return rc;
}

#endif
