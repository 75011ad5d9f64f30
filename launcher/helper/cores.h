/* cores — chooses the cores of an agent within those that Slurm gave to the helper. */
#ifndef MUSTER_LAUNCHER_HELPER_CORES_H
#define MUSTER_LAUNCHER_HELPER_CORES_H

#include "base/err.h"
#include "plan/spec/job/job.h"

/*
 * Agent i of the n agents of this node. cpus: as in base/pin.h; "": it is not bound.
 *
 * bind = auto binds an agent only if Slurm has bound the helper to a part of the node's cores: where
 * it has not, the cores may belong to another job, or the site does not want binding. bind = core
 * binds always. ERR_NOFIT: bind = core, and there are fewer cores than the agents' threads.
 */
int helper_cores_choose(enum job_bind bind, int n, int i, int threads, char *cpus, int size,
			struct err *e);

#endif
