#include "plan/spec/job/sbatch.h"

#include "plan/spec/job/keys.h"

#include <stdio.h>
#include <string.h>

#define KEY(section, key) offsetof(struct job, section.key)

#define WHY_TASKS \
	"muster computes the number of tasks from the degrees; set [parallel] tp, pp and dp, and " \
	"[slurm] nodes"
#define WHY_GPUS \
	"each node needs the same number of GPUs, one for each agent; use [slurm] gpus_per_node"
#define WHY_LOG \
	"the output goes to the run folder, logs/slurm-ID.out, which muster's commands read; " \
	"choose the folder with [job] run_dir"
#define WHY_ARRAY \
	"every task of an array would run the same job in the same run folder; submit each run " \
	"by itself with a name of its own (for i in 1 2 3; do muster submit JOB.ini " \
	"job.name=NAME-$i job.seed=$i; done), or use [slurm] dependency = singleton for runs " \
	"that continue each other"
#define WHY_HET \
	"muster starts all agents with one job step, and a step of a heterogeneous job reaches " \
	"only one of its components; request one kind of node with [slurm] constraint or " \
	"partition"
#define WHY_OUTPUT \
	"muster reads the job id from what sbatch prints, and this option changes it; remove it"
#define WHY_USER "the run folder belongs to you, and so must the job; remove it"

/* In the order of the script's lines. */
/* clang-format off */
const struct job_sbatch job_sbatch_table[] = {
	{ "job-name",          SBATCH_VALUE,  KEY(job, name), NULL },
	{ "nodes",             SBATCH_SET,    KEY(slurm, nodes), NULL },
	{ "cpus-per-task",     SBATCH_SET,    KEY(slurm, cpus_per_task), NULL },
	{ "gpus-per-node",     SBATCH_SET,    KEY(slurm, gpus_per_node), NULL },
	{ "gres",              SBATCH_VALUE,  KEY(slurm, gres), NULL },
	{ "mem",               SBATCH_VALUE,  KEY(slurm, mem), NULL },
	{ "exclusive",         SBATCH_CHOICE, KEY(slurm, exclusive), NULL },
	{ "time",              SBATCH_VALUE,  KEY(slurm, time), NULL },
	{ "partition",         SBATCH_VALUE,  KEY(slurm, partition), NULL },
	{ "account",           SBATCH_VALUE,  KEY(slurm, account), NULL },
	{ "qos",               SBATCH_VALUE,  KEY(slurm, qos), NULL },
	{ "constraint",        SBATCH_VALUE,  KEY(slurm, constraint), NULL },
	{ "nodelist",          SBATCH_VALUE,  KEY(slurm, nodelist), NULL },
	{ "exclude",           SBATCH_VALUE,  KEY(slurm, exclude), NULL },
	{ "switches",          SBATCH_VALUE,  KEY(slurm, switches), NULL },
	{ "licenses",          SBATCH_VALUE,  KEY(slurm, licenses), NULL },
	{ "reservation",       SBATCH_VALUE,  KEY(slurm, reservation), NULL },
	{ "dependency",        SBATCH_VALUE,  KEY(slurm, dependency), NULL },
	{ "mail-user",         SBATCH_VALUE,  KEY(slurm, mail_user), NULL },
	{ "mail-type",         SBATCH_VALUE,  KEY(slurm, mail_type), NULL },
	{ "comment",           SBATCH_VALUE,  KEY(slurm, comment), NULL },
	{ "signal",            SBATCH_SET,    KEY(slurm, signal_before), NULL },
	{ "requeue",           SBATCH_SET,    KEY(slurm, requeue), NULL },
	{ "no-requeue",        SBATCH_SET,    KEY(slurm, requeue), NULL },

	{ "ntasks",            SBATCH_BARRED, 0, WHY_TASKS },
	{ "ntasks-per-node",   SBATCH_BARRED, 0, WHY_TASKS },
	{ "ntasks-per-core",   SBATCH_BARRED, 0, WHY_TASKS },
	{ "ntasks-per-socket", SBATCH_BARRED, 0, WHY_TASKS },
	{ "ntasks-per-gpu",    SBATCH_BARRED, 0, WHY_TASKS },
	{ "tasks-per-node",    SBATCH_BARRED, 0, WHY_TASKS },
	{ "gpus",              SBATCH_BARRED, 0, WHY_GPUS },
	{ "gpus-per-task",     SBATCH_BARRED, 0, WHY_GPUS },
	{ "gpus-per-socket",   SBATCH_BARRED, 0, WHY_GPUS },
	{ "output",            SBATCH_BARRED, 0, WHY_LOG },
	{ "error",             SBATCH_BARRED, 0, WHY_LOG },
	{ "open-mode",         SBATCH_BARRED, 0, WHY_LOG },
	{ "no-kill",           SBATCH_BARRED, 0, "muster gives it if the run can go on without a node; set [slurm] spares or [restart] shrink" },
	{ "array",             SBATCH_BARRED, 0, WHY_ARRAY },
	{ "hetjob",            SBATCH_BARRED, 0, WHY_HET },
	{ "packjob",           SBATCH_BARRED, 0, WHY_HET },
	{ "het-group",         SBATCH_BARRED, 0, WHY_HET },
	{ "chdir",             SBATCH_BARRED, 0, "the job's relative paths start at the folder in which you call muster submit; call it in the other folder" },
	{ "clusters",          SBATCH_BARRED, 0, "muster also asks the cluster about the job; set SLURM_CLUSTERS, which all of Slurm's commands read" },
	{ "uid",               SBATCH_BARRED, 0, WHY_USER },
	{ "gid",               SBATCH_BARRED, 0, WHY_USER },
	{ "wrap",              SBATCH_BARRED, 0, "muster gives sbatch its own script; put commands of your own into a copy of sbatch.in, in the folder that MUSTER_TEMPLATES names" },
	{ "test-only",         SBATCH_BARRED, 0, "nothing would be submitted; use muster submit --dry-run to see the script" },
	{ "wait",              SBATCH_BARRED, 0, "muster submit would not return before the job ends; remove it" },
	{ "parsable",          SBATCH_BARRED, 0, WHY_OUTPUT },
	{ "quiet",             SBATCH_BARRED, 0, WHY_OUTPUT },
	{ "verbose",           SBATCH_BARRED, 0, WHY_OUTPUT },
	{ "help",              SBATCH_BARRED, 0, WHY_OUTPUT },
	{ "usage",             SBATCH_BARRED, 0, WHY_OUTPUT },
	{ "version",           SBATCH_BARRED, 0, WHY_OUTPUT },
};
/* clang-format on */

const int job_n_sbatch = sizeof job_sbatch_table / sizeof *job_sbatch_table;

bool job_sbatch_word(const char **text, const char **word, size_t *len)
{
	*word = *text + strspn(*text, " \t");
	*len = strcspn(*word, " \t");
	*text = *word + *len;
	return *len > 0;
}

/* "cause; remedy" of an option that a job file cannot give. */
static void put_reason(const struct job_sbatch *row, const char *shown, struct buf *out)
{
	if (row->kind == SBATCH_BARRED) {
		buf_printf(out, "\"%s\" is not possible: %s", shown, row->why);
		return;
	}
	const struct job_key *key = &job_keys[job_key_at(row->key)];
	buf_printf(out, "\"%s\" is an option that muster sets from a key; use [%s] %s", shown,
		   key->section, key->name);
}

/* The row of the option. sbatch accepts every unambiguous abbreviation of an option, so a name that
 * only begins a row's is that row, too. */
static const struct job_sbatch *find_row(const char *name, size_t len)
{
	const struct job_sbatch *begun = NULL;
	for (int i = 0; i < job_n_sbatch; i++) {
		const struct job_sbatch *row = &job_sbatch_table[i];
		if (strncmp(row->option, name, len))
			continue;
		if (!row->option[len])
			return row;
		begun = begun ? begun : row;
	}
	return begun;
}

int job_sbatch_check(const char *word, size_t len, struct buf *why)
{
	char shown[JOB_SHOWN], text[JOB_SHOWN];
	job_copy(text, sizeof text, word, len);
	job_shown(text, shown);
	const char *equals = memchr(word, '=', len);
	size_t end = equals ? (size_t)(equals - word) : len;
	if (len == 1 && *word == ':') {
		buf_printf(why, "\":\" begins a heterogeneous job: %s", WHY_HET);
		return -1;
	}
	if (end < 3 || strncmp(word, "--", 2)) {
		buf_printf(why,
			   "\"%s\" does not begin with --; write --NAME or --NAME=VALUE, without "
			   "blanks in the value, for each option",
			   shown);
		return -1;
	}
	static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-";
	for (size_t i = 2; i < end; i++)
		if (!strchr(letters, word[i])) {
			buf_printf(why,
				   "\"%s\" is not an option of sbatch; write --NAME or "
				   "--NAME=VALUE, with letters and - in the name",
				   shown);
			return -1;
		}
	for (size_t i = end; i < len; i++)
		if (strchr("\"'\\$`;&|<>(){}!#", word[i])) {
			buf_printf(why,
				   "\"%s\" contains a quote or a shell character, which the batch "
				   "script must not contain; choose another value",
				   shown);
			return -1;
		}
	const struct job_sbatch *row = find_row(word + 2, end - 2);
	if (!row)
		return 0;
	put_reason(row, shown, why);
	return -1;
}

bool job_sbatch_hint(const char *name, struct buf *out)
{
	char option[64];
	job_copy(option, sizeof option, name, strlen(name));
	for (char *at = option; *at; at++)
		*at = *at == '_' ? '-' : *at;
	for (int i = 0; i < job_n_sbatch; i++) {
		const struct job_sbatch *row = &job_sbatch_table[i];
		if (row->kind != SBATCH_BARRED || strcmp(row->option, option))
			continue;
		buf_printf(out, "is no key: %s", row->why);
		return true;
	}
	return false;
}

void job_key_name(size_t key, char *out, size_t size)
{
	const struct job_key *k = &job_keys[job_key_at(key)];
	snprintf(out, size, "%s.%s", k->section, k->name);
}

const char *job_sbatch_option(size_t key)
{
	for (int i = 0; i < job_n_sbatch; i++)
		if (job_sbatch_table[i].kind != SBATCH_BARRED && job_sbatch_table[i].key == key)
			return job_sbatch_table[i].option;
	return NULL;
}
