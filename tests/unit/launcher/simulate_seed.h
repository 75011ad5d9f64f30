/*
 * simulate_seed — one simulated run (launcher/simulate) in a temporary folder, in memory if there is such a
 * file system.
 */
#ifndef MUSTER_TESTS_UNIT_LAUNCHER_SIMULATE_SEED_H
#define MUSTER_TESTS_UNIT_LAUNCHER_SIMULATE_SEED_H

#include "launcher/simulate/simulate.h"
#include "tests/unit/tmpdir.h"

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

/* The folder of a run: in memory if it can be, because a run writes much. Its name is not one of muster's
 * shared memory, which other tests look for. */
static inline char *make_simulate_folder(char *folder, size_t size)
{
	snprintf(folder, size, "/dev/shm/simulated-run-XXXXXX");
	return mkdtemp(folder) ? folder : tmpdir_make(folder, size);
}

/* faults: of simulate_chaos. change: alters the setup of the seed; NULL: nothing. The caller frees
 * result->text. */
static inline int simulate_long_seed(uint64_t seed, int faults,
				     void (*change)(struct simulate_setup *s),
				     struct simulate_result *result, struct err *e)
{
	struct simulate_setup setup;
	char folder[256];
	if (simulate_chaos(seed, faults, &setup, e))
		return -1;
	if (change)
		change(&setup);
	int rc = make_simulate_folder(folder, sizeof folder)
			 ? simulate_run(&setup, folder, result, e)
			 : err_errno(e, ERR_IO, "%s", folder);
	nftw(folder, simulate_seed_remove, 8, FTW_DEPTH | FTW_PHYS);
	simulate_setup_free(&setup);
	return rc;
}

static inline int simulate_seed(uint64_t seed, void (*change)(struct simulate_setup *s),
				struct simulate_result *result, struct err *e)
{
	return simulate_long_seed(seed, 0, change, result, e);
}

#endif
