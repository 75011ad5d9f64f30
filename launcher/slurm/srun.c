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

/* The i-th rank whose agent is started. */
static int rank_at(const struct launch_request *r, int i)
{
	return r->ranks ? r->ranks[i] : i;
}

/* The number of agents to start on node i. */
static int count_ranks_on(const struct launch_request *r, int node)
{
	int n = 0;
	for (int i = 0; i < r->n_ranks; i++)
		n += r->plan->ranks[rank_at(r, i)].node == node;
	return n;
}

/* The nodes in use. */
struct use {
	int nodes;
	int cpus_a_node; /* of the node with the fewest */
	int cpus_a_rank; /* that Slurm can give each rank on the node with the fewest per rank; 0: fewer
			  * CPUs than ranks */
};

static struct use count_use(const struct launch_request *r)
{
	const struct cluster *c = r->cluster;
	struct use u = { 0 };
	for (int i = 0; i < c->n_nodes; i++) {
		int ranks = count_ranks_on(r, i), cores = c->kinds[c->nodes[i].kind].cores;
		if (!ranks)
			continue;
		if (!u.nodes || cores / ranks < u.cpus_a_rank)
			u.cpus_a_rank = cores / ranks;
		if (!u.nodes || cores < u.cpus_a_node)
			u.cpus_a_node = cores;
		u.nodes++;
	}
	return u;
}

static int write_hosts(const struct launch_request *r, bool one_per_node, const char *path,
		       struct err *e)
{
	struct buf text = BUF_INIT;
	for (int i = 0; i < r->n_ranks && !one_per_node; i++)
		buf_printf(&text, "%s\n",
			   r->cluster->nodes[r->plan->ranks[rank_at(r, i)].node].name);
	for (int i = 0; i < r->cluster->n_nodes && one_per_node; i++)
		if (count_ranks_on(r, i))
			buf_printf(&text, "%s\n", r->cluster->nodes[i].name);
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
		AGENT_ENV_RANKS "=",
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

static void set_environment(const struct launch_request *r, const char *address, const char *secret,
			    struct srun *s)
{
	char hosts[RUN_PATH];
	run_path_hosts(hosts, r->run_dir, r->generation);
	add_variable(s, false, AGENT_ENV_ADDRESS "=%s", address);
	add_variable(s, false, AGENT_ENV_SECRET "=%s", secret);
	add_variable(s, false, AGENT_ENV_GENERATION "=%u", r->generation);
	add_variable(s, false, AGENT_ENV_AUTH "=%s", r->auth);
	add_variable(s, false, "SLURM_HOSTFILE=%s", hosts);
}

static void set_threads(const struct launch_request *r, struct srun *s)
{
	add_variable(s, true, "OMP_NUM_THREADS=%d", r->plan->threads);
	add_variable(s, true, "OPENBLAS_NUM_THREADS=%d", r->plan->threads);
	/* There may be more ranks than cores, so a waiting thread must sleep. */
	add_variable(s, true, "OMP_WAIT_POLICY=passive");
}

__attribute__((format(printf, 2, 3))) static void add_option(struct srun *s, const char *fmt, ...)
{
	char *to = s->text[s->n_text++];
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(to, SRUN_OPTION, fmt, ap);
	va_end(ap);
	s->argv[s->n_argv++] = to;
}

static void add_word(struct srun *s, const char *word)
{
	s->argv[s->n_argv++] = (char *)(uintptr_t)word;
}

/* What both kinds of steps have. cpus: of each task; 0: Slurm does not count them. */
static void add_step(const struct launch_request *r, int nodes, int tasks, int cpus, struct srun *s)
{
	static const char *const fixed[] = {
		"srun", "-K0", "--wait=0", "--overlap", "--export=ALL", "--distribution=arbitrary",
	};
	for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
		add_word(s, fixed[i]);
	if (slurm_script_outlives_nodes(r->job, r->cluster->n_nodes))
		add_word(s, "--no-kill");
	snprintf(s->name, sizeof s->name, "muster-%u-%ld", r->generation, (long)getpid());
	add_option(s, "--job-name=%s", s->name);
	add_option(s, "--ntasks=%d", tasks);
	add_option(s, "--nodes=%d", nodes);
	/* Exactly its share, so that the site's binding gives each rank separate cores. */
	if (cpus > 0)
		add_option(s, "--cpus-per-task=%d", cpus);
	else
		add_word(s, "--overcommit");
}

static int finish(const struct launch_request *r, bool one_per_node, struct srun *s, struct err *e)
{
	char hosts[RUN_PATH];
	run_path_hosts(hosts, r->run_dir, r->generation);
	s->argv[s->n_argv] = NULL;
	s->env = slurm_srun_environment(s->own, s->n_own);
	if (s->env && !write_hosts(r, one_per_node, hosts, e))
		return 0;
	if (!s->env)
		err_set(e, ERR_NOMEM, "srun: no memory for its environment");
	slurm_srun_fini(s);
	return -1;
}

/* AGENT_ENV_RANKS, whose list is ascending: consecutive ranks become a range. */
static int set_ranks(const struct launch_request *r, struct srun *s, struct err *e)
{
	struct buf text = BUF_INIT;
	for (int i = 0, last; i < r->n_ranks; i = last + 1) {
		for (last = i;
		     last + 1 < r->n_ranks && rank_at(r, last + 1) == rank_at(r, last) + 1;)
			last++;
		buf_printf(&text, last > i ? "%s%d-%d" : "%s%d", i ? "," : "", rank_at(r, i),
			   rank_at(r, last));
	}
	if (!buf_failed(&text))
		add_variable(s, false, AGENT_ENV_RANKS "=%s/%d", buf_str(&text), r->plan->world);
	int rc = buf_failed(&text) ? err_set(e, ERR_NOMEM, "srun: no memory for its environment")
				   : 0;
	buf_fini(&text);
	return rc;
}

/* The agents' step, up to the PMIx plugin. */
static void add_agents(const struct launch_request *r, const char *mpi, struct srun *s)
{
	struct use u = count_use(r);
	set_environment(r, r->address, r->secret, s);
	set_threads(r, s);
	add_step(r, u.nodes, r->n_ranks, u.cpus_a_rank, s);
	add_word(s, mpi);
	add_word(s, "--label");
	if (r->job->launch.bind == BIND_NONE)
		add_word(s, "--cpu-bind=none");
	else if (r->job->launch.bind == BIND_CORE)
		add_word(s, "--cpu-bind=cores");
	add_word(s, r->agent);
}

int slurm_srun_prepare(const struct launch_request *r, struct srun *s, struct err *e)
{
	*s = (struct srun){ 0 };
	if (job_has_program(r->job) && set_ranks(r, s, e)) {
		slurm_srun_fini(s);
		return -1;
	}
	add_agents(r, "--mpi=pmix", s);
	return finish(r, false, s, e);
}

int slurm_srun_prepare_missing(const struct launch_request *r, struct srun *s, struct err *e)
{
	*s = (struct srun){ 0 };
	if (set_ranks(r, s, e)) {
		slurm_srun_fini(s);
		return -1;
	}
	add_agents(r, "--mpi=none", s);
	return finish(r, false, s, e);
}

int slurm_srun_prepare_helpers(const struct launch_request *r, const struct srun_helpers *h,
			       struct srun *s, struct err *e)
{
	struct use u = count_use(r);
	*s = (struct srun){ 0 };
	set_environment(r, h->address, h->secret, s);
	add_step(r, u.nodes, u.nodes, u.cpus_a_node, s);
	add_word(s, "--mpi=none");
	add_word(s, "--ntasks-per-node=1");
	add_word(s, "--input=none");
	if (r->job->launch.bind == BIND_NONE)
		add_word(s, "--cpu-bind=none");
	add_word(s, h->program);
	add_word(s, "helper");
	return finish(r, true, s, e);
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
