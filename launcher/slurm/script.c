#include "launcher/slurm/script.h"

#include "base/file.h"
#include "base/human.h"
#include "base/run_paths.h"
#include "plan/spec/layout.h"
#include "plan/spec/speeds.h"

#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { TEMPLATE_MAX = 1 << 20 };

static int read_template(const char *folder, const char *name, struct buf *out, struct err *e)
{
	char path[PATH_MAX];
	if (snprintf(path, sizeof path, "%s/%s", folder, name) >= (int)sizeof path)
		return err_set(e, ERR_NOTFOUND, "%s: the path of the templates is too long",
			       folder);
	return file_slurp(path, TEMPLATE_MAX, out, e);
}

int slurm_script_template(const char *name, struct buf *out, struct err *e)
{
	/* Relative to an installed program, and to one in build/. */
	static const char *const places[] = { "../share/muster/templates", "../templates" };
	const char *named = getenv("MUSTER_TEMPLATES");
	if (named && *named)
		return read_template(named, name, out, e) ? err_prefix(e, "MUSTER_TEMPLATES") : 0;
	char self[PATH_MAX], folder[PATH_MAX + 64];
	ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
	self[n > 0 ? n : 0] = '\0';
	char *slash = strrchr(self, '/');
	if (slash)
		*slash = '\0';
	for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
		struct err why = ERR_INIT;
		snprintf(folder, sizeof folder, "%s/%s", self, places[i]);
		if (!read_template(folder, name, out, &why))
			return 0;
		if (why.code != ERR_NOTFOUND)
			return err_set(e, why.code, "%s", why.text);
	}
	return err_set(e, ERR_NOTFOUND,
		       "the template %s is neither in %s/%s nor in %s/%s; set MUSTER_TEMPLATES to "
		       "its folder",
		       name, self, places[0], self, places[1]);
}

static const char *value_of(const struct script_value *values, const char *name, size_t len)
{
	for (; values->name; values++)
		if (strlen(values->name) == len && !memcmp(values->name, name, len))
			return values->text;
	return NULL;
}

int slurm_script_render(const char *text, const struct script_value *values, struct buf *out,
			struct err *e)
{
	while (*text) {
		size_t plain = strcspn(text, "@");
		buf_add(out, text, plain);
		text += plain;
		if (!*text)
			break;
		size_t len = strspn(text + 1, "abcdefghijklmnopqrstuvwxyz_");
		if (!len || text[1 + len] != '@') {
			buf_add(out, text++, 1);
			continue;
		}
		const char *value = value_of(values, text + 1, len);
		if (!value)
			return err_set(
				e, ERR_USAGE,
				"the template has @%.*s@, which muster does not know; remove it",
				(int)len, text + 1);
		buf_puts(out, value);
		text += len + 2;
	}
	return buf_failed(out) ? err_set(e, ERR_NOMEM, "no memory for the script") : 0;
}

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

/* The agents per node that hold `world` ranks on `nodes` nodes. */
static int64_t count_agents(const struct job *job, int64_t world, int64_t nodes, int64_t tp)
{
	int64_t agents = (world + nodes - 1) / nodes;
	if (job->slurm.gpus_per_node > 0)
		return job->slurm.gpus_per_node;
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
		.gpus = job->slurm.gpus_per_node > 0 || job->job.device == DEVICE_CUDA ? (int)agents
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

int slurm_script_options(const struct job *job, const struct script_size *size, const char *run_dir,
			 struct buf *out, struct err *e)
{
	static const struct {
		const char *option;
		size_t offset;
	} texts[] = {
		{ "job-name", offsetof(struct job, job.name) },
		{ "time", offsetof(struct job, slurm.time) },
		{ "partition", offsetof(struct job, slurm.partition) },
		{ "account", offsetof(struct job, slurm.account) },
		{ "qos", offsetof(struct job, slurm.qos) },
		{ "constraint", offsetof(struct job, slurm.constraint) },
		{ "reservation", offsetof(struct job, slurm.reservation) },
	};
	buf_printf(out, "#SBATCH --nodes=%d", size->min_nodes);
	if (size->max_nodes > size->min_nodes)
		buf_printf(out, "-%d", size->max_nodes);
	buf_printf(out, "\n#SBATCH --ntasks-per-node=%d\n#SBATCH --cpus-per-task=%d", size->agents,
		   size->cpus);
	if (size->gpus)
		buf_printf(out, "\n#SBATCH --gpus-per-node=%d", size->gpus);
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		const char *value = (const char *)job + texts[i].offset;
		if (check_value(texts[i].option, value, e))
			return -1;
		if (*value)
			buf_printf(out, "\n#SBATCH --%s=\"%s\"", texts[i].option, value);
	}
	if (job->slurm.signal_before > 0)
		buf_printf(out, "\n#SBATCH --signal=B:TERM@%lld",
			   (long long)job->slurm.signal_before);
	buf_puts(out, job->slurm.requeue ? "\n#SBATCH --requeue" : "\n#SBATCH --no-requeue");
	if (slurm_script_outlives_nodes(job, size->max_nodes))
		buf_puts(out, "\n#SBATCH --no-kill");
	return add_log(run_dir, out, e);
}
