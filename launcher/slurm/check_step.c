/* check_step: the job step that checks a node which is back, while the run trains on others. */
#include "launcher/child.h"
#include "launcher/slurm/slurm.h"
#include "launcher/slurm/srun.h"

#include <stdio.h>
#include <stdlib.h>

enum { WORD = 512 };

int slurm_check_node(uv_loop_t *loop, const struct check_request *r,
		     void (*ended)(void *arg, int status, const char *output), void *arg,
		     struct child **out, struct err *e)
{
	char nodes[WORD];
	snprintf(nodes, sizeof nodes, "--nodelist=%s", r->node);
	const char *argv[] = {
		"srun",
		"--mpi=none",
		"--overlap",
		"--overcommit",
		"--cpu-bind=none",
		"--quiet",
		"--export=ALL",
		"--job-name=muster-check",
		"--nodes=1",
		"--ntasks=1",
		"--time=1", /* minute; the checks have limits of their own */
		"--input=none",
		nodes,
		r->program,
		"doctor",
		"--node",
		r->needs,
		NULL,
	};
	char **env = slurm_srun_environment(NULL, 0);
	if (!env)
		return err_set(e, ERR_NOMEM, "srun: no memory for the environment of a check");
	const struct child_command c = { .argv = (char *const *)(uintptr_t)argv,
					 .env = env,
					 .out = -1,
					 .tied = true,
					 .absent = SLURM_ABSENT };
	int rc = launcher_child_watch(loop, &c, ended, arg, out, e);
	free(env);
	return rc;
}
