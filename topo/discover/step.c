#include "topo/discover/command.h"
#include "topo/discover/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum { PATH = 4096, ANSWER_MOST = 512 << 20 };

/* Seconds: for the step to start, and for each node on top of it. */
#define STEP_SECONDS 20.0
#define NODE_SECONDS 0.02

/* This program, as the nodes see it too. */
static int find_muster(char path[PATH], struct err *e)
{
	ssize_t n = readlink("/proc/self/exe", path, PATH - 1);
	if (n <= 0)
		return err_errno(e, ERR_UNSUPPORTED, "this program cannot be found in /proc");
	path[n] = '\0';
	const char *name = strrchr(path, '/');
	if (!name || strcmp(name, "/muster"))
		return err_set(e, ERR_UNSUPPORTED, "%s: only muster itself asks nodes", path);
	return 0;
}

/* Of Slurm's words only which allocation and which cluster: the others srun would take for its options. */
static bool keeps(const char *word)
{
	static const char *const kept[] = { "SLURM_JOB_ID=", "SLURM_JOBID=", "SLURM_CONF", "SLURM_CLUSTER_NAME=" };
	static const char *const dropped[] = { "SLURM_", "SRUN_", "PMIX_", "PMI_" };
	for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
		if (!strncmp(word, kept[i], strlen(kept[i])))
			return true;
	for (size_t i = 0; i < sizeof dropped / sizeof *dropped; i++)
		if (!strncmp(word, dropped[i], strlen(dropped[i])))
			return false;
	return true;
}

static char **step_environment(void)
{
	size_t n = 0;
	while (environ[n])
		n++;
	char **env = calloc(n + 1, sizeof *env);
	for (size_t i = 0, k = 0; env && i < n; i++)
		if (keeps(environ[i]))
			env[k++] = environ[i];
	return env;
}

static int run_step(int n, struct buf *answer, struct err *e)
{
	char path[PATH], nodes[32], tasks[32];
	if (find_muster(path, e))
		return -1;
	snprintf(nodes, sizeof nodes, "--nodes=%d", n);
	snprintf(tasks, sizeof tasks, "--ntasks=%d", n);
	/* All that the allocation has on each node is seen; one node's failure is not the others'. */
	const char *const argv[] = { "srun", nodes, tasks, "--ntasks-per-node=1", "--overlap", "--overcommit", "--mpi=none", "--cpu-bind=none",
				     "--kill-on-bad-exit=0", "--wait=0", "--quiet", "--input=none", "--export=ALL", "--job-name=muster-topo", path, "topo",
				     "--report", NULL };
	char **env = step_environment();
	if (!env)
		return err_set(e, ERR_NOMEM, "srun: no memory for its environment");
	struct command c = { .argv = (char *const *)argv, .env = env, .timeout = STEP_SECONDS + n * NODE_SECONDS, .most = ANSWER_MOST };
	int rc = command_run(&c, answer, e);
	free(env);
	return rc;
}

int step_ask(const struct hostlist *nodes, struct report *reports, struct err *e)
{
	struct buf answer = BUF_INIT;
	struct err why = ERR_INIT;
	int told = 0, rc = run_step(nodes->n, &answer, &why);
	/* What came before it failed counts. */
	int bad = report_parse(buf_str(&answer), nodes, reports, e);
	buf_fini(&answer);
	for (int i = 0; i < nodes->n; i++)
		told += reports[i].there;
	if (bad || told)
		return bad;
	return rc ? err_set(e, why.code, "%s", why.text) : err_set(e, ERR_PROTO, "the step that asks the nodes told nothing that can be read");
}
