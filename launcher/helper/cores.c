#include "launcher/helper/cores.h"

#include "topo/bind.h"

#include <sched.h>
#include <stdbool.h>
#include <unistd.h>

/* Whether this process may not run on all cores that are online. */
static bool is_bound(void)
{
	cpu_set_t set;
	return !sched_getaffinity(0, sizeof set, &set) &&
	       CPU_COUNT(&set) < sysconf(_SC_NPROCESSORS_ONLN);
}

int helper_cores_choose(enum job_bind bind, int n, int i, int threads, char *cpus, int size,
			struct err *e)
{
	cpus[0] = '\0';
	if (bind == BIND_NONE || (bind == BIND_AUTO && !is_bound()))
		return 0;
	if (topo_bind_cpus(n, i, threads, cpus, size, e))
		return -1;
	if (bind == BIND_CORE && !*cpus)
		return err_set(e, ERR_NOFIT,
			       "[launch] bind = core: %d agents of %d threads need more cores than "
			       "Slurm gave on this node; use bind = auto",
			       n, threads);
	return 0;
}
