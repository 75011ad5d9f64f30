/*
 * tool: runs one of the agent's tools as a step on all devices of the allocation.
 *
 * This process executes srun, which forwards Ctrl-C. If a task fails, the others learn of it from each
 * other and end by themselves, with the status that says why; srun ends those that are left after
 * a while (WAIT). It must not end them at once (--kill-on-bad-exit): when all tasks find the same mistake in an
 * option, the status would be that of a killed task.
 */
#include "base/agent_env.h"
#include "base/auth.h"
#include "base/process.h"
#include "launcher/slurm/slurm.h"
#include "launcher/slurm/srun.h"
#include "topo/cluster.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* Seconds from the end of the first task until srun ends the others. */
#define WAIT "--wait=30"

enum { OWN_WORDS = 16, LIST_MAX = 100000 };

static int devices_on(const struct cluster *c, int node)
{
	return c->kinds[c->nodes[node].kind].devices;
}

/* One task per device, nodes in order: a number of tasks per node if it is the same on each,
 * otherwise a list with one node name per task. */
static int assign_tasks(const struct cluster *c, struct buf *tasks, struct buf *where,
			struct err *e)
{
	bool even = true;
	for (int i = 0; i < c->n_nodes; i++)
		even &= devices_on(c, i) == devices_on(c, 0);
	buf_printf(tasks, "--ntasks=%d", topo_cluster_devices(c));
	if (even)
		buf_printf(where, "--ntasks-per-node=%d", devices_on(c, 0));
	for (int i = 0; i < c->n_nodes && !even; i++)
		for (int k = 0; k < devices_on(c, i); k++)
			buf_printf(where, "%s%s",
				   where->len ? "," : "--distribution=arbitrary\n--nodelist=",
				   c->nodes[i].name);
	if (buf_failed(tasks) || buf_failed(where))
		return err_set(e, ERR_NOMEM, "srun: no memory for the list of nodes");
	if (where->len > LIST_MAX)
		return err_set(
			e, ERR_UNSUPPORTED,
			"srun: the nodes have unequal numbers of tasks and their list is too long; "
			"request the same number of tasks on each node");
	return 0;
}

/* The environment without the variables that srun reads as options, and with `secret`
 * ("NAME=…"). */
static char **step_environment(char *secret)
{
	size_t n = 0, k = 0;
	while (environ[n])
		n++;
	char **env = calloc(n + 2, sizeof *env);
	if (!env)
		return NULL;
	for (size_t i = 0; i < n; i++)
		if (!slurm_srun_removes(environ[i]) &&
		    strncmp(environ[i], AGENT_ENV_SECRET "=", sizeof AGENT_ENV_SECRET))
			env[k++] = environ[i];
	env[k++] = secret;
	return env;
}

/* Makes the secret that the step's ranks share. */
static void make_secret(char out[sizeof AGENT_ENV_SECRET + AUTH_SECRET_HEX])
{
	unsigned char secret[AUTH_SECRET_BYTES];
	char hex[AUTH_SECRET_HEX];
	auth_secret_new(secret);
	auth_secret_hex(secret, hex);
	snprintf(out, sizeof AGENT_ENV_SECRET + AUTH_SECRET_HEX, AGENT_ENV_SECRET "=%s", hex);
	explicit_bzero(secret, sizeof secret);
	explicit_bzero(hex, sizeof hex);
}

static int become_srun(const char *agent, int argc, char **argv, const char *tasks, char *where,
		       struct err *e)
{
	static const char *const fixed[] = { "srun",
					     "--kill-on-bad-exit=0",
					     WAIT,
					     "--quit-on-interrupt",
					     "--mpi=pmix",
					     "--overlap",
					     "--overcommit",
					     "--export=ALL",
					     "--job-name=muster-bench" };
	enum { FIXED = sizeof fixed / sizeof *fixed };
	char secret[sizeof AGENT_ENV_SECRET + AUTH_SECRET_HEX];
	make_secret(secret);
	char **words = calloc((size_t)argc + OWN_WORDS, sizeof *words),
	     **env = step_environment(secret);
	int n = FIXED;
	if (words && env) {
		memcpy(words, fixed, sizeof fixed);
		words[n++] = (char *)(uintptr_t)tasks;
		for (char *at = where; at; words[n++] = strsep(&at, "\n"))
			;
		words[n++] = (char *)(uintptr_t)agent;
		memcpy(words + n, argv, (size_t)argc * sizeof *words);
		process_signals();
		execvpe("srun", words, env);
		err_errno(e, ERR_NOTFOUND, "srun: cannot execute");
	} else {
		err_set(e, ERR_NOMEM, "srun: no memory for its arguments");
	}
	free(words);
	free(env);
	return -1;
}

int slurm_tool(const char *agent, int argc, char **argv, struct err *e)
{
	struct cluster cluster;
	struct buf tasks = BUF_INIT, where = BUF_INIT;
	if (topo_cluster_open("slurm", 0, &cluster, e))
		return -1;
	int rc = assign_tasks(&cluster, &tasks, &where, e);
	topo_cluster_free(&cluster);
	if (!rc)
		rc = become_srun(agent, argc, argv, buf_str(&tasks), where.data, e);
	buf_fini(&tasks);
	buf_fini(&where);
	return rc;
}
