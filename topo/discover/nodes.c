#include "topo/discover/nodes.h"

#include "topo/discover/command.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

enum { PATH = 4096, ANSWER_MAX = 512 << 20, WORDS_MAX = 16 };
/* Slurm's step manager forwards a line of at most 1 KB in one piece. */
enum { PART = 800, PARTS_MAX = 100000 };

#define NODE_SECONDS 0.02 /* per node, in addition to the time of the job step */

int topo_nodes_of_allocation(struct hostlist *out, struct err *e)
{
	const char *list = getenv("SLURM_JOB_NODELIST");
	if (!list || !*list)
		return err_set(e, ERR_NOTFOUND,
			       "SLURM_JOB_NODELIST is not set, so this process is not in an "
			       "allocation; start "
			       "through `muster "
			       "submit`, sbatch or salloc");
	return topo_hostlist_expand(list, out, e) ? err_prefix(e, "SLURM_JOB_NODELIST") : 0;
}

void topo_nodes_own_name(char out[HOSTLIST_NAME])
{
	const char *node = getenv("SLURMD_NODENAME");
	if (node && *node)
		snprintf(out, HOSTLIST_NAME, "%s", node);
	else if (gethostname(out, HOSTLIST_NAME - 1))
		snprintf(out, HOSTLIST_NAME, "localhost");
	out[HOSTLIST_NAME - 1] = '\0';
}

void topo_nodes_print(const char *tag, const char *text, size_t len, struct buf *out)
{
	char node[HOSTLIST_NAME];
	int parts = (int)((len + PART - 1) / PART);
	topo_nodes_own_name(node);
	for (int i = 0; i < parts; i++)
		buf_printf(out, "%s %s %d %d %.*s\n", tag, node, i, parts, PART,
			   text + (size_t)i * PART);
}

/* --- The job step --- */

/* The path of this program, which the nodes must see too. */
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

/* Keeps only the Slurm variables that name the allocation and the cluster. srun would read the
 * others as its options. */
static bool kept_variable(const char *word)
{
	static const char *const kept[] = { "SLURM_JOB_ID=", "SLURM_JOBID=", "SLURM_CONF",
					    "SLURM_CLUSTER_NAME=" };
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
		if (kept_variable(environ[i]))
			env[k++] = environ[i];
	return env;
}

static int run_step(const char *tag, const char *const *words, double seconds, int n,
		    struct buf *answer, struct err *e)
{
	/* Each task sees everything that the allocation has on its node. The failure of one node
	 * does not affect the others. */
	static const char *const fixed[] = { "srun",
					     "--ntasks-per-node=1",
					     "--overlap",
					     "--overcommit",
					     "--mpi=none",
					     "--cpu-bind=none",
					     "--kill-on-bad-exit=0",
					     "--wait=0",
					     "--quiet",
					     "--input=none",
					     "--export=ALL" };
	enum { FIXED = sizeof fixed / sizeof *fixed };
	char path[PATH], nodes[32], tasks[32], name[64];
	const char *argv[FIXED + 4 + WORDS_MAX + 1];
	if (find_muster(path, e))
		return -1;
	snprintf(nodes, sizeof nodes, "--nodes=%d", n);
	snprintf(tasks, sizeof tasks, "--ntasks=%d", n);
	snprintf(name, sizeof name, "--job-name=%.40s", tag);
	const char *const own[] = { nodes, tasks, name, path };
	memcpy(argv, fixed, sizeof fixed);
	memcpy(argv + FIXED, own, sizeof own);
	int k = FIXED + 4;
	for (int i = 0; words[i] && i < WORDS_MAX; i++)
		argv[k++] = words[i];
	argv[k] = NULL;
	char **env = step_environment();
	if (!env)
		return err_set(e, ERR_NOMEM, "srun: no memory for its environment");
	struct command c = { .argv = (char *const *)argv,
			     .env = env,
			     .timeout = seconds + n * NODE_SECONDS,
			     .most = ANSWER_MAX };
	int rc = topo_command_run(&c, answer, e);
	free(env);
	return rc;
}

/* --- The answer's lines --- */

/* The parts of a node's answer as they arrive; parts -1: they are malformed. */
struct pieces {
	struct buf *text;
	int next, parts;
};

struct entry {
	const char *name;
	int index;
};

static int by_name(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static void take_line(const char *tag, const char *line, size_t len, const struct entry *index,
		      int n, struct pieces *all)
{
	char name[HOSTLIST_NAME];
	size_t skip = strlen(tag);
	int part, parts, at = 0;
	char head[HOSTLIST_NAME + 64];
	snprintf(head, sizeof head, "%.*s", (int)(len < sizeof head - 1 ? len : sizeof head - 1),
		 line);
	if (len <= skip || strncmp(head, tag, skip) || head[skip] != ' ')
		return;
	if (sscanf(head + skip, " %63s %6d %6d%n", name, &part, &parts, &at) != 3 ||
	    head[skip + (size_t)at] != ' ' || parts < 1 || parts > PARTS_MAX)
		return;
	struct entry key = { .name = name };
	const struct entry *found = bsearch(&key, index, (size_t)n, sizeof *index, by_name);
	if (!found)
		return;
	struct pieces *p = &all[found->index];
	if (part != p->next || (part && parts != p->parts)) {
		p->parts = -1;
		return;
	}
	p->parts = parts;
	p->next++;
	skip += (size_t)at + 1;
	buf_add(p->text, line + skip, len - skip);
}

int topo_nodes_gather(const char *tag, const char *text, const struct hostlist *nodes,
		      struct buf *answers, struct err *e)
{
	struct pieces *all = calloc((size_t)nodes->n + 1, sizeof *all);
	struct entry *index = calloc((size_t)nodes->n + 1, sizeof *index);
	int rc = all && index
			 ? 0
			 : err_set(e, ERR_NOMEM, "no memory for the answers of %d nodes", nodes->n);
	for (int i = 0; !rc && i < nodes->n; i++) {
		index[i] = (struct entry){ nodes->names[i], i };
		all[i].text = &answers[i];
	}
	if (!rc)
		qsort(index, (size_t)nodes->n, sizeof *index, by_name);
	for (const char *at = text; !rc && *at;) {
		size_t len = strcspn(at, "\n");
		take_line(tag, at, len, index, nodes->n, all);
		at += len + (at[len] == '\n');
	}
	for (int i = 0; !rc && i < nodes->n; i++)
		if (all[i].parts < 1 || all[i].next != all[i].parts)
			buf_clear(&answers[i]);
	free(all);
	free(index);
	return rc;
}

int topo_nodes_ask(const char *tag, const char *const *words, double seconds,
		   const struct hostlist *nodes, struct buf *answers, struct err *e)
{
	struct buf answer = BUF_INIT;
	struct err why = ERR_INIT;
	int told = 0, rc = run_step(tag, words, seconds, nodes->n, &answer, &why);
	/* The answers that arrived before the step failed are used. */
	int bad = topo_nodes_gather(tag, buf_str(&answer), nodes, answers, e);
	buf_fini(&answer);
	for (int i = 0; i < nodes->n; i++)
		told += answers[i].len > 0;
	if (bad || told)
		return bad;
	if (rc)
		return err_set(e, why.code, "%s", why.text);
	return err_set(e, ERR_PROTO,
		       "the job step that examines the nodes gave no readable answer");
}
