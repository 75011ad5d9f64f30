#include "launcher/slurm/srun.h"

#include "launcher/slurm/script.h"

#include "base/file.h"
#include "base/run_paths.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

/* The number of ranks that the plan places on node i. */
static int count_ranks_on(const struct plan *p, int node)
{
	int n = 0;
	for (int r = 0; r < p->world; r++)
		n += p->ranks[r].node == node;
	return n;
}

/* The number of nodes in use, and the CPUs that Slurm can give each rank on the node with the
 * fewest per rank; 0: fewer CPUs than ranks. */
static void count_nodes(const struct launch_request *r, int *nodes, int *cpus_a_rank)
{
	const struct cluster *c = r->cluster;
	*nodes = 0;
	*cpus_a_rank = 0;
	for (int i = 0; i < c->n_nodes; i++) {
		int ranks = count_ranks_on(r->plan, i);
		if (!ranks)
			continue;
		int cpus = c->kinds[c->nodes[i].kind].cores / ranks;
		if (!*nodes || cpus < *cpus_a_rank)
			*cpus_a_rank = cpus;
		++*nodes;
	}
}

static int write_hosts(const struct launch_request *r, const char *path, struct err *e)
{
	struct buf text = BUF_INIT;
	for (int i = 0; i < r->plan->world; i++)
		buf_printf(&text, "%s\n", r->cluster->nodes[r->plan->ranks[i].node].name);
	int rc = buf_failed(&text) ? err_set(e, ERR_NOMEM, "%s: no memory for the host list", path)
				   : file_replace(path, text.data, text.len, e);
	buf_fini(&text);
	return rc;
}

/* Compares prefixes. */
bool slurm_srun_removes(const char *word)
{
	static const char *const names[] = {
		"SLURM_NTASKS",
		"SLURM_NPROCS",
		"SLURM_TASKS_PER_NODE",
		"SLURM_CPUS_PER_TASK",
		"SLURM_CPUS_PER_GPU",
		"SLURM_GPUS_PER_TASK",
		"SLURM_GPU_BIND",
		"SLURM_GPUS=",
		"SLURM_DISTRIBUTION",
		"SLURM_CPU_BIND",
		"SLURM_NNODES=",
		"SLURM_JOB_NUM_NODES=",
		"SLURM_HOSTFILE=",
		"SLURM_EXACT=",
		"SLURM_EXCLUSIVE=",
		"SLURM_OVERCOMMIT=",
		"SLURM_THREADS_PER_CORE=",
		"SLURM_HINT=",
		"SLURM_STEP",
		"SLURM_LABELIO=",
		"SLURM_THREADS=",
		"SLURM_WAIT=",
		"SLURM_KILL_BAD_EXIT=",
		"SLURM_NO_KILL=",
		"SLURM_TIMELIMIT=",
		"SLURM_WORKING_DIR=",
		"SLURM_MULTI_PROG=",
		"PMIX_",
		"PMI_",
		AGENT_ENV_ADDRESS "=",
		AGENT_ENV_SECRET "=",
		AGENT_ENV_GENERATION "=",
		AGENT_ENV_AUTH "=",
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		if (!strncmp(word, names[i], strlen(names[i])))
			return true;
	return false;
}

char **slurm_srun_environment(char *const *own, int n_own)
{
	size_t most = (size_t)n_own + 1, n = 0;
	for (char **at = environ; *at; at++)
		most++;
	char **env = malloc(most * sizeof *env);
	if (!env)
		return NULL;
	for (char **at = environ; *at; at++)
		if (!slurm_srun_removes(*at))
			env[n++] = *at;
	for (int i = 0; i < n_own; i++) {
		if (!own[i]) {
			free(env);
			return NULL;
		}
		env[n++] = own[i];
	}
	env[n] = NULL;
	return env;
}

static bool in_environment(const char *word)
{
	char name[64];
	snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
	return getenv(name) != NULL;
}

/* Adds a variable to the step's environment; a soft one only if the user has not set it. */
__attribute__((format(printf, 3, 4))) static void add_variable(struct srun *s, bool soft,
							       const char *fmt, ...)
{
	char *word = NULL;
	va_list ap;
	va_start(ap, fmt);
	if (vasprintf(&word, fmt, ap) < 0)
		word = NULL;
	va_end(ap);
	if (word && soft && in_environment(word)) {
		free(word);
		return;
	}
	s->own[s->n_own++] = word;
}

static int build_environment(const struct launch_request *r, const char *hosts, struct srun *s,
			     struct err *e)
{
	add_variable(s, false, AGENT_ENV_ADDRESS "=%s", r->address);
	add_variable(s, false, AGENT_ENV_SECRET "=%s", r->secret);
	add_variable(s, false, AGENT_ENV_GENERATION "=%u", r->generation);
	add_variable(s, false, AGENT_ENV_AUTH "=%s", r->auth);
	add_variable(s, false, "SLURM_HOSTFILE=%s", hosts);
	add_variable(s, true, "OMP_NUM_THREADS=%d", r->plan->threads);
	add_variable(s, true, "OPENBLAS_NUM_THREADS=%d", r->plan->threads);
	/* There may be more ranks than cores, so a waiting thread must sleep. */
	add_variable(s, true, "OMP_WAIT_POLICY=passive");
	s->env = slurm_srun_environment(s->own, s->n_own);
	return s->env ? 0 : err_set(e, ERR_NOMEM, "srun: no memory for its environment");
}

static void build_argv(const struct launch_request *r, struct srun *s)
{
	static const char *const fixed[] = {
		"srun",      "-K0",          "--wait=0", "--mpi=pmix",
		"--overlap", "--export=ALL", "--label",  "--distribution=arbitrary",
	};
	int n = 0, nodes, cpus, texts = 0;
	for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
		s->argv[n++] = (char *)fixed[i];
	if (slurm_script_outlives_nodes(r->job, r->cluster->n_nodes))
		s->argv[n++] = (char *)"--no-kill";
	count_nodes(r, &nodes, &cpus);
	snprintf(s->text[texts], SRUN_OPTION, "--job-name=%s", s->name);
	s->argv[n++] = s->text[texts++];
	snprintf(s->text[texts], SRUN_OPTION, "--ntasks=%d", r->plan->world);
	s->argv[n++] = s->text[texts++];
	snprintf(s->text[texts], SRUN_OPTION, "--nodes=%d", nodes);
	s->argv[n++] = s->text[texts++];
	if (cpus > 0) {
		/* Exactly its share, so that the site's binding gives each rank separate cores. */
		snprintf(s->text[texts], SRUN_OPTION, "--cpus-per-task=%d", cpus);
		s->argv[n++] = s->text[texts++];
	} else {
		s->argv[n++] = "--overcommit";
	}
	if (r->job->launch.bind == BIND_NONE)
		s->argv[n++] = "--cpu-bind=none";
	else if (r->job->launch.bind == BIND_CORE)
		s->argv[n++] = "--cpu-bind=cores";
	s->argv[n++] = (char *)r->agent;
	s->argv[n] = NULL;
}

int slurm_srun_prepare(const struct launch_request *r, struct srun *s, struct err *e)
{
	char hosts[RUN_PATH];
	*s = (struct srun){ 0 };
	snprintf(s->name, sizeof s->name, "muster-%u-%ld", r->generation, (long)getpid());
	run_path_hosts(hosts, r->run_dir, r->generation);
	if (write_hosts(r, hosts, e))
		return -1;
	if (build_environment(r, hosts, s, e)) {
		slurm_srun_fini(s);
		return -1;
	}
	build_argv(r, s);
	return 0;
}

void slurm_srun_fini(struct srun *s)
{
	for (int i = 0; i < s->n_own; i++) {
		if (s->own[i])
			explicit_bzero(s->own[i], strlen(s->own[i]));
		free(s->own[i]);
	}
	free(s->env);
	*s = (struct srun){ 0 };
}
