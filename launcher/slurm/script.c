#include "launcher/slurm/script.h"

#include "base/human.h"
#include "base/run_paths.h"
#include "plan/spec/job/keys.h" /* job_time_seconds() */
#include "plan/spec/job/sbatch.h"
#include "plan/spec/layout.h"
#include "plan/spec/speeds.h"
#include "topo/discover/scontrol.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void slurm_script_quote(const char *word, struct buf *out)
{
	buf_puts(out, "'");
	for (; *word; word++) {
		if (*word == '\'')
			buf_puts(out, "'\\''");
		else
			buf_add(out, word, 1);
	}
	buf_puts(out, "'");
}

int64_t slurm_script_gpus(const struct job *job)
{
	return job->slurm.gpus_per_node > 0 ? job->slurm.gpus_per_node
					    : topo_scontrol_gpus(job->slurm.gres, true, NULL);
}

int64_t slurm_script_time(const struct job *job)
{
	return *job->slurm.time ? job_time_seconds(job->slurm.time) : 0;
}

int64_t slurm_script_memory(const struct job *job)
{
	static const char units[] = "KMGT";
	char *end;
	double amount = strtod(job->slurm.mem, &end);
	const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	amount *= pow(1024, unit ? (double)(unit - units) - 1 : 0);
	return amount < 1e15 ? (int64_t)amount : (int64_t)1e15;
}

/* The agents per node that hold `world` ranks on `nodes` nodes. */
static int64_t count_agents(const struct job *job, int64_t world, int64_t nodes, int64_t tp)
{
	int64_t agents = (world + nodes - 1) / nodes, gpus = slurm_script_gpus(job);
	if (gpus > 0)
		return gpus;
	return agents >= tp ? (agents + tp - 1) / tp * tp : agents;
}

/* Refuses nodes that have fewer agents than `ranks`. */
static int check_room(int64_t nodes, int64_t agents, int64_t ranks, const char *what,
		      const char *remedy, struct err *e)
{
	if (nodes * agents < ranks)
		return err_set(e, ERR_NOFIT,
			       "[slurm] %lld node%s with %lld agent%s each cannot hold the %lld "
			       "ranks of %s; %s",
			       (long long)nodes, human_s(nodes), (long long)agents, human_s(agents),
			       (long long)ranks, what, remedy);
	return 0;
}

static int check_nodes(const struct job *job, int64_t agents, struct err *e)
{
	struct layout least = layout_of(job, (int)job->parallel.ep);
	struct layout whole =
		layout_of(job, (int)(job->parallel.dp > 0 ? job->parallel.dp : job->parallel.ep));
	const struct job_range *nodes = &job->slurm.nodes;
	if (check_room(nodes->max, agents, layout_world(&whole), "tp × cp × pp × dp",
		       "request more or lower a degree", e))
		return -1;
	/* With shrink = keep the agents are counted for the fewest nodes, unless they are GPUs. */
	if (job->restart.shrink == SHRINK_KEEP)
		return check_room(nodes->min, agents, layout_world(&whole), "tp × cp × pp × dp",
				  "[restart] shrink = keep allows no other: raise the minimum of "
				  "nodes, or use shrink = dp or any",
				  e);
	if (job->restart.shrink == SHRINK_DP)
		return check_room(nodes->min, agents, layout_world(&least), "one replica",
				  "raise the minimum of nodes, or use [restart] shrink = any", e);
	return 0;
}

int slurm_script_size(const struct job *job, struct script_size *out, struct err *e)
{
	struct layout l =
		layout_of(job, (int)(job->parallel.dp > 0 ? job->parallel.dp : job->parallel.ep));
	const struct job_range *nodes = &job->slurm.nodes;
	bool keep = job->restart.shrink == SHRINK_KEEP, range = nodes->min < nodes->max;
	int64_t world = layout_world(&l);
	int64_t agents = count_agents(job, world, keep ? nodes->min : nodes->max, l.tp);
	int64_t most = nodes->max + job->slurm.spares;
	if (check_nodes(job, agents, e))
		return -1;
	if (most > INT_MAX / agents)
		return err_set(e, ERR_NOFIT,
			       "[slurm] %lld nodes with %lld agents each are too many",
			       (long long)most, (long long)agents);
	int64_t cpus = job->slurm.cpus_per_task;
	for (int rank = 0; rank < SPEEDS_MAX && rank < world; rank++)
		cpus = speeds_threads(job, rank) > cpus ? speeds_threads(job, rank) : cpus;
	*out = (struct script_size){
		.min_nodes = (int)(range ? nodes->min : most),
		.max_nodes = (int)most,
		.agents = (int)agents,
		.cpus = cpus > 0 ? (int)cpus : 1,
		.gpus = slurm_script_gpus(job) > 0 || job->job.device == DEVICE_CUDA ? (int)agents
										     : 0,
	};
	return 0;
}

bool slurm_script_outlives_nodes(const struct job *job, int nodes)
{
	return job->slurm.spares > 0 || (nodes > 1 && job->restart.shrink != SHRINK_KEEP);
}

/* Checks a value that the script puts between double quotes on an #SBATCH line. */
static int check_value(const char *what, const char *text, struct err *e)
{
	for (const char *at = text; *at; at++)
		if ((unsigned char)*at < ' ' || *at == 127 || strchr("\"\\'`$", *at))
			return err_set(
				e, ERR_USAGE,
				"%s = \"%.100s\": contains a quote, a backslash, a dollar sign or "
				"a "
				"control character, which a batch script cannot contain; choose "
				"another value",
				what, text);
	return 0;
}

/* Slurm replaces %-patterns in the log's path, so each % of the folder is doubled. */
static int add_log(const char *run_dir, struct buf *out, struct err *e)
{
	char path[RUN_PATH];
	size_t folder = strlen(run_dir);
	if (check_value("the run folder", run_dir, e))
		return -1;
	run_path_slurm_log(path, run_dir, "%j");
	buf_puts(out, "\n#SBATCH --output=\"");
	for (size_t i = 0; path[i]; i++)
		buf_puts(out, path[i] == '%' && i < folder ? "%%" : (char[]){ path[i], '\0' });
	buf_puts(out, "\"\n#SBATCH --open-mode=append");
	return 0;
}

/* --- Options whose values muster computes --- */

static void add_nodes(const struct job *job, const struct script_size *size, struct buf *out)
{
	(void)job;
	buf_printf(out, "\n#SBATCH --nodes=%d", size->min_nodes);
	if (size->max_nodes > size->min_nodes)
		buf_printf(out, "-%d", size->max_nodes);
	buf_printf(out, "\n#SBATCH --ntasks-per-node=%d", size->agents);
}

static void add_cpus(const struct job *job, const struct script_size *size, struct buf *out)
{
	(void)job;
	buf_printf(out, "\n#SBATCH --cpus-per-task=%d", size->cpus);
}

static void add_gpus(const struct job *job, const struct script_size *size, struct buf *out)
{
	if (size->gpus && !topo_scontrol_gpus(job->slurm.gres, true, NULL))
		buf_printf(out, "\n#SBATCH --gpus-per-node=%d", size->gpus);
}

static void add_signal(const struct job *job, const struct script_size *size, struct buf *out)
{
	(void)size;
	if (job->slurm.signal_before > 0)
		buf_printf(out, "\n#SBATCH --signal=B:TERM@%lld",
			   (long long)job->slurm.signal_before);
}

static void add_requeue(const struct job *job, const struct script_size *size, struct buf *out)
{
	(void)size;
	buf_puts(out, job->slurm.requeue ? "\n#SBATCH --requeue" : "\n#SBATCH --no-requeue");
}

/* Of the rows SBATCH_SET; "requeue" also adds "no-requeue". */
static const struct {
	const char *option;
	void (*add)(const struct job *job, const struct script_size *size, struct buf *out);
} computed[] = {
	{ "nodes", add_nodes },   { "cpus-per-task", add_cpus }, { "gpus-per-node", add_gpus },
	{ "signal", add_signal }, { "requeue", add_requeue },
};

static void add_computed(const struct job *job, const struct script_size *size, const char *option,
			 struct buf *out)
{
	for (size_t i = 0; i < sizeof computed / sizeof *computed; i++)
		if (!strcmp(computed[i].option, option))
			computed[i].add(job, size, out);
}

/* --- The script --- */

/* The option of a row of the table of sbatch's options. */
static int add_row(const struct job *job, const struct script_size *size,
		   const struct job_sbatch *row, struct buf *out, struct err *e)
{
	const char *value = (const char *)job + row->key;
	if (row->kind == SBATCH_SET)
		add_computed(job, size, row->option, out);
	if (row->kind != SBATCH_VALUE && row->kind != SBATCH_CHOICE)
		return 0;
	if (check_value(row->option, value, e))
		return -1;
	if (!*value || (row->kind == SBATCH_CHOICE && !strcmp(value, "no")))
		return 0;
	if (row->kind == SBATCH_CHOICE && !strcmp(value, "yes"))
		buf_printf(out, "\n#SBATCH --%s", row->option);
	else
		buf_printf(out, "\n#SBATCH --%s=\"%s\"", row->option, value);
	return 0;
}

/* The words of [slurm] options, one per line. */
static int add_other(const struct job *job, struct buf *out, struct err *e)
{
	const char *at = job->slurm.options, *word;
	size_t len;
	if (check_value("[slurm] options", at, e))
		return -1;
	while (job_sbatch_word(&at, &word, &len)) {
		const char *equals = memchr(word, '=', len);
		size_t name = equals ? (size_t)(equals - word) : len;
		buf_printf(out, "\n#SBATCH %.*s", (int)name, word);
		if (equals)
			buf_printf(out, "=\"%.*s\"", (int)(len - name - 1), equals + 1);
	}
	return 0;
}

int slurm_script_options(const struct job *job, const struct script_size *size, const char *run_dir,
			 struct buf *out, struct err *e)
{
	struct buf lines = BUF_INIT;
	int rc = 0;
	for (int i = 0; !rc && i < job_n_sbatch; i++)
		rc = add_row(job, size, &job_sbatch_table[i], &lines, e);
	rc = rc ? rc : add_other(job, &lines, e);
	if (!rc && slurm_script_outlives_nodes(job, size->max_nodes))
		buf_puts(&lines, "\n#SBATCH --no-kill");
	rc = rc ? rc : add_log(run_dir, &lines, e);
	if (!rc)
		buf_puts(out, buf_str(&lines) + 1); /* without the first newline */
	buf_fini(&lines);
	return rc;
}
