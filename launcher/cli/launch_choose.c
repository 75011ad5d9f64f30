#include "launcher/cli/launch_choose.h"

#include "launcher/pmix/local.h"
#include "launcher/slurm/slurm.h"

#include <stdlib.h>

static bool in_allocation(void)
{
	return getenv("SLURM_JOB_ID") != NULL;
}

static bool always(void)
{
	return true;
}

/* `auto` selects the first row whose condition holds. */
static const struct {
	enum job_launcher word;
	const struct launch_ops *ops;
	bool (*fits)(void);
} ways[] = {
	{ LAUNCHER_SLURM, &launch_slurm, in_allocation },
	{ LAUNCHER_LOCAL, &launch_local, always },
};

const struct launch_ops *command_launcher(enum job_launcher wanted)
{
	for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
		if (wanted == LAUNCHER_AUTO ? ways[i].fits() : wanted == ways[i].word)
			return ways[i].ops;
	return &launch_local;
}
