/*
 * pmix — whose PMIx server serves the agents of an allocation: Slurm's, in its plugin mpi/pmix, or
 * muster's own, in a helper on each node (relay.h).
 *
 * [launch] pmix = auto chooses Slurm's if `srun --mpi=list` names the plugin. That command asks no
 * daemon and takes some milliseconds; its answer is kept for all generations of this process. It
 * knows only the host of this process, so a step may fail nevertheless: the plugin may be missing on
 * another node, or the agents may not reach the server, such as agents in a container, or with an
 * incompatible version of PMIx. If its output says so, later generations get muster's server.
 */
#ifndef MUSTER_LAUNCHER_SLURM_PMIX_H
#define MUSTER_LAUNCHER_SLURM_PMIX_H

#include "plan/spec/job/job.h"

#include <stdbool.h>

/* Whether the next generation gets muster's server; *why: for people, static. It may take some
 * seconds if srun hangs. */
bool slurm_pmix_is_own(const struct job *job, const char **why);
/* The output of a step with Slurm's server shows that this server did not work. */
bool slurm_pmix_failed(const char *output);
/* From now on slurm_pmix_is_own() is true for pmix = auto. */
void slurm_pmix_refuse(void);
/* Whether "pmix" is in the list of plugins that `srun --mpi=list` prints. */
bool slurm_pmix_listed(const char *list);

#endif
