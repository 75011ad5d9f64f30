/*
 * srun — the command line, the environment and the host file of a generation's step.
 *
 * The plan assigns ranks to nodes. srun gets that assignment as a host file with one node name per
 * task (--distribution=arbitrary): a task is a rank, or the helper of a node. -K0 --wait=0 keep the death of one task from ending the step, and
 * --no-kill keeps the loss of a node from it, if the run can continue (script.h). Variables about tasks that the outer sbatch or salloc left in the environment are
 * removed, because srun would read them as its own options. The step shares the allocation's CPUs
 * and GPUs with other steps (--overlap), so the next generation need not wait until Slurm has freed
 * those of the last one.
 */
#ifndef MUSTER_LAUNCHER_SLURM_SRUN_H
#define MUSTER_LAUNCHER_SLURM_SRUN_H

#include "launcher/launch.h"

#include <stdbool.h>

enum { SRUN_WORDS = 32, SRUN_NAME = 48, SRUN_OPTION = 96, SRUN_OPTIONS = 4 };

struct srun {
	char name[SRUN_NAME]; /* of the step; Slurm finds the step by it */
	char *argv[SRUN_WORDS];
	char **env;
	/* memory that argv and env point to */
	char text[SRUN_OPTIONS][SRUN_OPTION];
	char *own[10];
	int n_argv, n_text, n_own;
};

/* Whether a variable is removed from a step's environment: srun would read it as an option about
 * tasks, or it belongs to another PMIx job or launch. */
bool slurm_srun_removes(const char *word);
/* A step's environment: this process's without those variables, and the n_own words "NAME=value",
 * which are borrowed. NULL: no memory, also for one of the words. The caller frees the array. */
char **slurm_srun_environment(char *const *own, int n_own);

/* The step of the agents, served by Slurm's PMIx server. Also writes the host file,
 * logs/hosts-<generation> in the run folder. */
int slurm_srun_prepare(const struct launch_request *r, struct srun *s, struct err *e);
/* The step of the agents that a generation is missing (r->ranks), without PMIx. */
int slurm_srun_prepare_missing(const struct launch_request *r, struct srun *s, struct err *e);
/* The step of the helpers (launcher/helper/helper.h): one task per node that has ranks, and no PMIx.
 * address, secret: of the relay. */
struct srun_helpers {
	const char *program; /* path of muster */
	const char *address, *secret;
};
int slurm_srun_prepare_helpers(const struct launch_request *r, const struct srun_helpers *h,
			       struct srun *s, struct err *e);
/* Wipes the secret. */
void slurm_srun_fini(struct srun *s);

#endif
