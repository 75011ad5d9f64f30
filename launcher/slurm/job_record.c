#include "launcher/slurm/job_record.h"

#include "topo/discover/scontrol.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_MAX = 1000000, NODE_LIST_MAX = 1 << 20 };

static const char *next_line(const char *at)
{
	at += strcspn(at, "\n");
	return *at ? at + 1 : at;
}

/* The number at the start of a value, such as that of "2:0:*:*"; 0: none, or out of range. */
static int read_count(const char *line, const char *key)
{
	char text[64];
	if (!topo_scontrol_field(line, key, text, sizeof text) || !isdigit((unsigned char)*text))
		return 0;
	long n = strtol(text, NULL, 10);
	return n <= COUNT_MAX ? (int)n : 0;
}

time_t slurm_time_field(const char *line, const char *key)
{
	char text[64];
	struct tm tm = { .tm_isdst = -1 };
	if (!topo_scontrol_field(line, key, text, sizeof text))
		return 0;
	const char *end = strptime(text, "%Y-%m-%dT%H:%M:%S", &tm);
	time_t at = end && !*end ? mktime(&tm) : 0;
	return at > 0 ? at : 0;
}

bool slurm_job_has_gres(const char *line)
{
	static const char *const keys[] = { "TresPerNode", "TresPerJob", "TresPerSocket",
					    "TresPerTask" };
	char text[256];
	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		if (topo_scontrol_field(line, keys[i], text, sizeof text) &&
		    (strstr(text, "gres") || strstr(text, "gpu"))) /* "gpu:2" before 20.11 */
			return true;
	return false;
}

/* The line that begins with "JobId=ID "; NULL: none. A heterogeneous job has several lines. */
static const char *find_job(const char *text, const char *id)
{
	size_t n = strlen(id);
	for (; *text; text = next_line(text))
		if (!strncmp(text, "JobId=", 6) && !strncmp(text + 6, id, n) && text[6 + n] == ' ')
			return text;
	return NULL;
}

static int read_nodes(const char *line, const char *key, struct hostlist *out, struct err *e)
{
	size_t size = strcspn(line, "\n") + 1;
	char *list = malloc(size < NODE_LIST_MAX ? size : NODE_LIST_MAX);
	int rc = 0;
	if (!list)
		return err_set(e, ERR_NOMEM, "scontrol: no memory for a list of nodes");
	if (topo_scontrol_field(line, key, list, size < NODE_LIST_MAX ? size : NODE_LIST_MAX))
		rc = topo_hostlist_expand(list, out, e);
	free(list);
	return rc ? err_prefix(e, "scontrol show job: %s", key) : 0;
}

int slurm_job_record_parse(const char *text, const char *job_id, struct job_record *out,
			   struct err *e)
{
	const char *line = find_job(text, job_id);
	struct job_record r = { .can_requeue = false };
	if (!line || !topo_scontrol_field(line, "JobState", r.state, sizeof r.state))
		return err_set(e, ERR_NOTFOUND, "scontrol show job: no job %s in its answer",
			       job_id);
	r.can_requeue = read_count(line, "Requeue") == 1 && read_count(line, "BatchFlag") > 0;
	r.restarts = read_count(line, "Restarts");
	r.ends = slurm_time_field(line, "EndTime");
	r.preempted = slurm_time_field(line, "PreemptTime");
	topo_scontrol_field(line, "Reason", r.reason, sizeof r.reason);
	topo_scontrol_field(line, "Partition", r.partition, sizeof r.partition);
	r.partition[strcspn(r.partition, ",")] = '\0';
	r.tasks_per_node = read_count(line, "NtasksPerN:B:S:C");
	r.tasks = read_count(line, "NumTasks");
	r.cpus_per_task = read_count(line, "CPUs/Task");
	if (r.cpus_per_task < 1)
		r.cpus_per_task = 1;
	if (read_nodes(line, "NodeList", &r.nodes, e) ||
	    read_nodes(line, "ExcNodeList", &r.excluded, e)) {
		slurm_job_record_free(&r);
		return -1;
	}
	*out = r;
	return 0;
}

bool slurm_job_state_is_running(const char *state)
{
	/* SIGNALING: while Slurm sends a signal, as at the start of a preemption's grace time. */
	static const char *const states[] = { "RUNNING", "SUSPENDED", "STOPPED", "SIGNALING",
					      "RESIZING" };
	for (size_t i = 0; i < sizeof states / sizeof *states; i++)
		if (!strcmp(state, states[i]))
			return true;
	return false;
}

void slurm_job_record_free(struct job_record *r)
{
	topo_hostlist_free(&r->nodes);
	topo_hostlist_free(&r->excluded);
}

/* --- Nodes --- */

/* clang-format off */

/* The first row whose word occurs decides. */
static const struct {
	const char *word;
	enum node_state state;
} states[] = {
	{ "DOWN",                 NODE_DOWN },
	{ "ERROR",                NODE_DOWN },
	{ "FUTURE",               NODE_DOWN },
	{ "INVAL",                NODE_DOWN },
	{ "INVALID_REG",          NODE_DOWN },
	{ "POWERED_DOWN",         NODE_DOWN },
	{ "POWERING_DOWN",        NODE_DOWN },
	{ "POWER_DOWN",           NODE_DOWN },
	{ "REBOOT_ISSUED",        NODE_DOWN },
	{ "FAIL",                 NODE_FAIL },
	{ "FAILING",              NODE_FAIL },
	{ "DRAIN",                NODE_DRAIN },
	{ "DRAINED",              NODE_DRAIN },
	{ "DRAINING",             NODE_DRAIN },
	{ "NOT_RESPONDING",       NODE_UNREACHABLE },
	{ "NO_RESPOND",           NODE_UNREACHABLE },
	{ "*",                    NODE_UNREACHABLE }, /* how old versions write NOT_RESPONDING */
};

/* clang-format on */

static bool has_word(const char *text, const char *word)
{
	size_t n = strlen(word);
	if (*word == '*')
		return strchr(text, '*') != NULL;
	for (const char *at = text; *at;) {
		size_t len = strspn(at, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_");
		if (len == n && !memcmp(at, word, n))
			return true;
		at += len ? len : 1;
	}
	return false;
}

enum node_state slurm_node_state(const char *word)
{
	for (size_t i = 0; i < sizeof states / sizeof *states; i++)
		if (has_word(word, states[i].word))
			return states[i].state;
	return NODE_UP;
}

bool slurm_node_record_next(const char **text, struct node_record *out)
{
	for (const char *at = *text; *at;) {
		const char *line = at;
		char state[256];
		at = next_line(at);
		*text = at;
		if (strncmp(line, "NodeName=", 9) ||
		    !topo_scontrol_field(line, "NodeName", out->name, sizeof out->name) ||
		    !topo_scontrol_field(line, "State", state, sizeof state))
			continue;
		out->state = slurm_node_state(state);
		out->idle = out->state == NODE_UP && !strcmp(state, "IDLE");
		if (!topo_scontrol_field(line, "NodeAddr", out->host, sizeof out->host))
			snprintf(out->host, sizeof out->host, "%s", out->name);
		out->port = read_count(line, "Port");
		if (out->port < 1 || out->port > 65535)
			out->port = SLURMD_PORT;
		return true;
	}
	return false;
}

int slurm_partition_nodes(const char *text)
{
	for (; *text; text = next_line(text))
		if (!strncmp(text, "PartitionName=", 14))
			return read_count(text, "TotalNodes");
	return 0;
}
