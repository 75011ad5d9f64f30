/* check_step: the job steps that check and measure nodes: all of them before the first generation,
 * or one that is back while the run trains on others. */
#include "base/agent_env.h"
#include "base/auth.h"
#include "base/buf.h"
#include "launcher/child.h"
#include "launcher/slurm/slurm.h"
#include "launcher/slurm/srun.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A node that fails, or is lost meanwhile, does not end the check of the others. */
static const char *const fixed[] = {
	"srun",       "-K0",          "--no-kill",    "--wait=0",
	"--mpi=none", "--overlap",    "--overcommit", "--cpu-bind=none",
	"--quiet",    "--export=ALL", "--input=none",
};

enum { FIXED = sizeof fixed / sizeof *fixed, OPTIONS = 6, WORDS = 48 };

struct step {
	const char *name, *nodes;
	int n_nodes, cpus;      /* cpus: of each task; 0: Slurm does not count them */
	const char *time_limit; /* an option; NULL: that of the job */
};

static int start_step(uv_loop_t *loop, const struct step *s, const char *const *command,
		      char *const *own, int n_own,
		      void (*ended)(void *arg, int status, const char *output), void *arg,
		      struct child **out, struct err *e)
{
	const char *argv[FIXED + OPTIONS + WORDS];
	char sizes[3][SRUN_OPTION];
	struct buf list = BUF_INIT;
	int n = FIXED;
	memcpy(argv, fixed, sizeof fixed);
	buf_printf(&list, "--nodelist=%s", s->nodes);
	snprintf(sizes[0], SRUN_OPTION, "--nodes=%d", s->n_nodes);
	snprintf(sizes[1], SRUN_OPTION, "--ntasks=%d", s->n_nodes);
	snprintf(sizes[2], SRUN_OPTION, "--cpus-per-task=%d", s->cpus);
	for (int i = 0; i < (s->cpus ? 3 : 2); i++)
		argv[n++] = sizes[i];
	if (s->time_limit)
		argv[n++] = s->time_limit;
	argv[n++] = s->name;
	argv[n++] = buf_str(&list);
	while (*command && n < FIXED + OPTIONS + WORDS - 1)
		argv[n++] = *command++;
	argv[n] = NULL;
	char **env = slurm_srun_environment(own, n_own);
	const struct child_command c = { .argv = (char *const *)(uintptr_t)argv,
					 .env = env,
					 .out = -1,
					 .tied = true,
					 .absent = SLURM_ABSENT };
	int rc = buf_failed(&list) || !env
			 ? err_set(e, ERR_NOMEM, "srun: no memory to start a step on %d nodes",
				   s->n_nodes)
			 : launcher_child_watch(loop, &c, ended, arg, out, e);
	buf_fini(&list);
	free(env);
	return rc;
}

int slurm_check_nodes(uv_loop_t *loop, const struct check_request *r,
		      void (*ended)(void *arg, int status, const char *output), void *arg,
		      struct child **out, struct err *e)
{
	const char *command[] = { r->program, "doctor", "--node", r->needs, NULL };
	const struct step s = { .name = "--job-name=muster-check",
				.nodes = r->nodes,
				.n_nodes = r->n_nodes,
				.time_limit = "--time=1" }; /* minute */
	return start_step(loop, &s, command, NULL, 0, ended, arg, out, e);
}

int slurm_burn_in(uv_loop_t *loop, const struct burn_in_request *r,
		  void (*ended)(void *arg, int status, const char *output), void *arg,
		  struct child **out, struct err *e)
{
	enum { OWN = 4, WORD = 512 };
	const char *command[WORDS] = { r->agent, "bench", "node" };
	char own[OWN][WORD], *words[OWN];
	/* Its processes end with their connections, so it needs no limit in Slurm, which kills in
	 * the midst of a long [health] preflight_timeout. */
	const struct step s = { .name = "--job-name=muster-burn-in",
				.nodes = r->nodes,
				.n_nodes = r->n_nodes,
				.cpus = r->cpus };
	for (int i = 0; r->words[i] && i < WORDS - 4; i++)
		command[3 + i] = r->words[i];
	snprintf(own[0], WORD, AGENT_ENV_ADDRESS "=%s", r->address);
	snprintf(own[1], WORD, AGENT_ENV_SECRET "=%s", r->secret);
	snprintf(own[2], WORD, AGENT_ENV_AUTH "=%s", r->auth);
	/* Several virtual nodes may share cores, so a waiting thread must sleep. */
	snprintf(own[3], WORD, "OMP_WAIT_POLICY=passive");
	for (int i = 0; i < OWN; i++)
		words[i] = own[i];
	int rc = start_step(loop, &s, command, words, OWN, ended, arg, out, e);
	explicit_bzero(own, sizeof own);
	return rc;
}
