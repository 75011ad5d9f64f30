#include "launcher/slurm/slurm.h"

#include <stdlib.h>

static long read_variable(const char *name)
{
	const char *text = getenv(name);
	return text ? strtol(text, NULL, 10) : 0;
}

int slurm_check_place(struct err *e)
{
	long tasks = read_variable("SLURM_STEP_NUM_TASKS");
	if (getenv("SLURM_HET_SIZE") || getenv("SLURM_PACK_SIZE"))
		return err_set(e, ERR_UNSUPPORTED,
			       "this is a heterogeneous Slurm job: muster starts all agents with one "
			       "job step, and a step reaches only one component of such a job; request "
			       "one kind of node ([slurm] constraint or partition) in a job without "
			       "\":\" and hetjob");
	if (tasks > 1)
		return err_set(e, ERR_UNSUPPORTED,
			       "srun has started muster run %ld times, and each would start all agents; "
			       "start it once, without srun: muster itself starts an agent for each "
			       "device (in an allocation: muster run JOB.ini)",
			       tasks);
	return 0;
}

bool slurm_speaks(void)
{
	return read_variable("SLURM_PROCID") == 0;
}
