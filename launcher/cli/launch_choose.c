#include "launcher/cli/launch_choose.h"

#include "launcher/pmix/local.h"
#include "launcher/slurm/slurm.h"

/* `auto` selects the first one that is available. The last one always is. */
static const struct launch_ops *const backends[] = { &launch_slurm, &launch_local };
enum { BACKENDS = sizeof backends / sizeof *backends };

const struct launch_ops *command_launcher(enum job_launcher wanted)
{
	int i = 0;
	while (i < BACKENDS - 1 &&
	       (wanted == LAUNCHER_AUTO ? !backends[i]->available() : wanted != backends[i]->word))
		i++;
	return backends[i];
}
