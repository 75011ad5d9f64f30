/* check_step: the job step that checks nodes: all of them before the first generation, or one that is
 * back while the run trains on others. */
#include "base/buf.h"
#include "launcher/child.h"
#include "launcher/slurm/slurm.h"
#include "launcher/slurm/srun.h"

#include <stdio.h>
#include <stdlib.h>

/* A node that fails, or is lost meanwhile, does not end the check of the others. */
static int start_step(uv_loop_t *loop, const struct check_request *r, const char *const *sizes,
		      void (*ended)(void *arg, int status, const char *output), void *arg,
		      struct child **out, struct err *e)
{
	const char *argv[] = {
		"srun",
		"-K0",
		"--no-kill",
		"--wait=0",
		"--mpi=none",
		"--overlap",
		"--overcommit",
		"--cpu-bind=none",
		"--quiet",
		"--export=ALL",
		"--job-name=muster-check",
		"--time=1", /* minute; the checks have limits of their own */
		"--input=none",
		sizes[0],
		sizes[1],
		sizes[2],
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

int slurm_check_nodes(uv_loop_t *loop, const struct check_request *r,
		      void (*ended)(void *arg, int status, const char *output), void *arg,
		      struct child **out, struct err *e)
{
	char nodes[SRUN_OPTION], tasks[SRUN_OPTION];
	struct buf list = BUF_INIT;
	snprintf(nodes, sizeof nodes, "--nodes=%d", r->n_nodes);
	snprintf(tasks, sizeof tasks, "--ntasks=%d", r->n_nodes);
	buf_printf(&list, "--nodelist=%s", r->nodes);
	const char *const sizes[] = { nodes, tasks, buf_str(&list) };
	int rc = buf_failed(&list)
			 ? err_set(e, ERR_NOMEM, "srun: no memory for the names of %d nodes",
				   r->n_nodes)
			 : start_step(loop, r, sizes, ended, arg, out, e);
	buf_fini(&list);
	return rc;
}
