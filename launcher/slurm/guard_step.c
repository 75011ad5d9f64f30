#include "launcher/slurm/guard_step.h"

#include "base/file.h"
#include "base/run_paths.h"
#include "launcher/child.h"
#include "launcher/slurm/slurm.h"
#include "launcher/slurm/srun.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OWN = 3, WORD = 512, SECRET_WORD = 512 };

const char *slurm_own_node(void)
{
	const char *node = getenv("SLURMD_NODENAME");
	return node && *node ? node : NULL;
}

/* srun refuses --gres=none beside the allocation's request of GPUs, such as SLURM_GPUS_PER_NODE. */
static void remove_gpus(char **env)
{
	static const char gpus[] = "SLURM_GPUS";
	char **to = env;
	for (; *env; env++)
		if (strncmp(*env, gpus, sizeof gpus - 1) != 0)
			*to++ = *env;
	*to = NULL;
}

static char **build_environment(const struct guard_request *r, char own[OWN][SECRET_WORD])
{
	char *words[OWN], **env;
	snprintf(own[0], SECRET_WORD, AGENT_ENV_ADDRESS "=%s", r->address);
	snprintf(own[1], SECRET_WORD, AGENT_ENV_SECRET "=%s", r->secret);
	snprintf(own[2], SECRET_WORD, AGENT_ENV_AUTH "=%s", r->auth);
	for (int i = 0; i < OWN; i++)
		words[i] = own[i];
	env = slurm_srun_environment(words, OWN);
	if (env)
		remove_gpus(env);
	return env;
}

static int start_step(uv_loop_t *loop, const struct guard_request *r, char **env, int log,
		      void (*ended)(void *, int, const char *), void *arg, struct child **out,
		      struct err *e)
{
	char nodes[WORD], number[16], patience[32];
	snprintf(nodes, sizeof nodes, "--nodelist=%s", r->node);
	snprintf(number, sizeof number, "%d", r->number);
	snprintf(patience, sizeof patience, "%.0f", r->patience);
	const char *argv[] = {
		"srun",
		"-K0",
		"--no-kill",
		"--wait=0",
		"--mpi=none",
		"--overlap",
		"--export=ALL",
		"--job-name=muster-guard",
		"--nodes=1",
		"--ntasks=1",
		"--cpus-per-task=1",
		"--gres=none", /* the ranks have the GPUs */
		"--input=none",
		"--output=none", /* the guard writes its log itself, also when srun is gone */
		nodes,
		r->program,
		"guard",
		"--run",
		r->run_dir,
		"--number",
		number,
		"--patience",
		patience,
		r->requeue ? "--requeue" : NULL,
		NULL,
	};
	const struct child_command c = { .argv = (char *const *)(uintptr_t)argv,
					 .env = env,
					 .out = log,
					 .absent = SLURM_ABSENT };
	return launcher_child_watch(loop, &c, ended, arg, out, e);
}

int slurm_guard_start(uv_loop_t *loop, const struct guard_request *r,
		      void (*ended)(void *arg, int status, const char *output), void *arg,
		      struct child **out, struct err *e)
{
	char path[RUN_PATH], own[OWN][SECRET_WORD];
	run_path_guard_log(path, r->run_dir);
	int log = file_open(path, O_WRONLY | O_CREAT | O_APPEND, FILE_OWN, e), rc = -1;
	if (log < 0)
		return -1;
	char **env = build_environment(r, own);
	if (!env)
		err_set(e, ERR_NOMEM, "srun: no memory for the environment of the guard");
	else
		rc = start_step(loop, r, env, log, ended, arg, out, e);
	free(env);
	explicit_bzero(own, sizeof own);
	close(log);
	return rc;
}
