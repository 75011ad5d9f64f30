/*
 * srun — the command line, the environment and the host file of a generation's step.
 *
 * The plan says which rank runs where; srun is told so by a host file, one
 * node name a rank (--distribution=arbitrary). Flags that keep one death from
 * taking the step along: -K0 --no-kill --wait=0. What the outer job's sbatch
 * or salloc left in the environment about tasks is removed, as srun would
 * take it for its own options. The step shares the allocation's CPUs and GPUs with any
 * other step (--overlap): the next generation need not wait for Slurm's books.
 */
#ifndef MUSTER_LAUNCHER_SLURM_SRUN_H
#define MUSTER_LAUNCHER_SLURM_SRUN_H

#include "launcher/launch.h"

#include <stdbool.h>

enum { SRUN_WORDS = 32, SRUN_NAME = 48, SRUN_OPTION = 96, SRUN_OPTIONS = 4 };

struct srun {
	char name[SRUN_NAME]; /* of the step: by it the step is found again */
	char *argv[SRUN_WORDS];
	char **env;
	/* what argv and env point into */
	char text[SRUN_OPTIONS][SRUN_OPTION];
	char *own[8];
	int n_own;
};

/* Whether a word of the environment stays away from a step: what srun reads as options about tasks,
 * and what belongs to another PMIx job or launch. */
bool slurm_srun_removes(const char *word);

/* Writes the host file, logs/hosts-<generation> of the run folder. */
int slurm_srun_prepare(const struct launch_request *r, struct srun *s, struct err *e);
/* Wipes the secret. */
void slurm_srun_fini(struct srun *s);

#endif
