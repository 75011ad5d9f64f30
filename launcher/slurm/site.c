#include "launcher/slurm/site.h"

#include "plan/spec/job/keys.h" /* job_time_seconds() */
#include "topo/discover/scontrol.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define COUNT_MAX 1e9

/* Names that are expanded in all. Beyond, nodes are counted without their names. */
enum { LINES_MAX = 65536, NAMES_MAX = 1 << 20 };

static const char *next_line(const char *at)
{
	at += strcspn(at, "\n");
	return *at ? at + 1 : at;
}

/* A number, which may have a '+' behind it; `none`: there is no number. */
static int64_t read_count(const char *text, int64_t none)
{
	double v = isdigit((unsigned char)*text) ? strtod(text, NULL) : -1;
	return v >= 0 && v <= COUNT_MAX ? (int64_t)v : none;
}

static int64_t count_field(const char *line, const char *key)
{
	char text[32];
	topo_scontrol_field(line, key, text, sizeof text);
	return read_count(text, 0);
}

/* A list of names; "ALL" is everyone. */
static void list_field(const char *line, const char *key, char out[SITE_LIST])
{
	topo_scontrol_field(line, key, out, SITE_LIST);
	if (!strcasecmp(out, "ALL"))
		out[0] = '\0';
}

static bool read_partition(const char *line, struct site_partition *p)
{
	char text[SITE_NAME];
	*p = (struct site_partition){ .is_default = false };
	if (strncmp(line, "PartitionName=", 14) ||
	    !topo_scontrol_field(line, "PartitionName", p->name, sizeof p->name))
		return false;
	topo_scontrol_field(line, "State", p->state, sizeof p->state);
	topo_scontrol_field(line, "Default", text, sizeof text);
	p->is_default = !strcmp(text, "YES");
	p->total = count_field(line, "TotalNodes");
	p->min_nodes = count_field(line, "MinNodes");
	p->max_nodes = count_field(line, "MaxNodes"); /* UNLIMITED is no number */
	p->max_cpus = count_field(line, "MaxCPUsPerNode");
	p->max_memory = count_field(line, "MaxMemPerNode");
	topo_scontrol_field(line, "MaxTime", text, sizeof text);
	int64_t seconds = job_time_seconds(text);
	p->max_time = seconds > 0 ? seconds : 0;
	list_field(line, "AllowAccounts", p->allow_accounts);
	list_field(line, "DenyAccounts", p->deny_accounts);
	list_field(line, "AllowQos", p->allow_qos);
	list_field(line, "DenyQos", p->deny_qos);
	return true;
}

/* Copies the next of the line's columns; one that is too long is "". */
static void read_column(const char **at, char *out, size_t size)
{
	size_t n = strcspn(*at, "|\n");
	snprintf(out, size, "%.*s", n < size ? (int)n : 0, *at);
	if (!strcmp(out, "(null)"))
		out[0] = '\0';
	*at += n + ((*at)[n] == '|');
}

/* Expands the group's list of names. *left: how many names may still be expanded. */
static void read_names(const char *line, struct site_nodes *g, int *left)
{
	char *names = *left > 0 ? strndup(line, strcspn(line, "|\n")) : NULL;
	if (!names || topo_hostlist_expand(names, &g->names, NULL)) {
		*left -= names ? HOSTLIST_MAX : 0; /* what a list that is too long may take */
		topo_hostlist_free(&g->names);
	} else {
		*left -= g->names.n;
		if (g->names.n != g->count)
			topo_hostlist_free(&g->names);
	}
	free(names);
}

static bool read_nodes(const char *line, struct site_nodes *g, int *left)
{
	static const char *const down[] = { "down", "drain", "fail", "error", "maint", "unk" };
	char count[32], state[64], cpus[32], memory[32];
	*g = (struct site_nodes){ .down = false };
	read_column(&line, g->partition, sizeof g->partition);
	read_column(&line, count, sizeof count);
	read_column(&line, state, sizeof state);
	read_column(&line, cpus, sizeof cpus);
	read_column(&line, memory, sizeof memory);
	read_column(&line, g->gres, sizeof g->gres);
	read_column(&line, g->features, sizeof g->features);
	g->cpus = read_count(cpus, 0);
	g->memory = read_count(memory, 0);
	g->gpus = topo_scontrol_gpus(g->gres, true, NULL);
	for (size_t i = 0; i < sizeof down / sizeof *down; i++)
		g->down |= !strncasecmp(state, down[i], strlen(down[i]));
	g->count = read_count(count, 0);
	if (!g->partition[0] || g->cpus <= 0 || g->count <= 0)
		return false;
	read_names(line, g, left);
	return true;
}

static int count_lines(const char *text)
{
	int n = 0;
	for (; *text && n < LINES_MAX; text = next_line(text))
		n++;
	return n;
}

int slurm_site_parse(const char *partitions, const char *nodes, struct site *out, struct err *e)
{
	int n_partitions = count_lines(partitions), n_nodes = count_lines(nodes);
	struct site s = { .n_nodes = 0 };
	int left = NAMES_MAX;
	s.partitions = calloc((size_t)n_partitions + 1, sizeof *s.partitions);
	s.nodes = calloc((size_t)n_nodes + 1, sizeof *s.nodes);
	if (!s.partitions || !s.nodes) {
		slurm_site_free(&s);
		return err_set(e, ERR_NOMEM, "no memory for Slurm's partitions and nodes");
	}
	for (; *partitions && s.n_partitions < n_partitions; partitions = next_line(partitions))
		s.n_partitions += read_partition(partitions, &s.partitions[s.n_partitions]);
	for (; *nodes && s.n_nodes < n_nodes; nodes = next_line(nodes))
		s.n_nodes += read_nodes(nodes, &s.nodes[s.n_nodes], &left);
	*out = s;
	return 0;
}

/* Whether AccountingStorageEnforce has one of these words, which are separated by commas. */
static bool enforces(const char *config, const char *words)
{
	static const char key[] = "AccountingStorageEnforce";
	const char *at = strstr(config, key);
	at = at ? at + strlen(key) : "";
	at += strspn(at, " =");
	for (size_t n; (n = strcspn(at, ", \n")) > 0; at += n, at += *at == ',')
		if (slurm_site_lists(words, at, n))
			return true;
	return false;
}

bool slurm_site_enforces(const char *config)
{
	return enforces(config, "associations,limits,qos,safe,wckeys,all");
}

int slurm_site_parse_associations(const char *config, const char *text, struct site *s,
				  struct err *e)
{
	int n = slurm_site_enforces(config) ? count_lines(text) : 0;
	bool qos = enforces(config, "qos,all");
	if (!n)
		return 0;
	s->associations = calloc((size_t)n, sizeof *s->associations);
	if (!s->associations)
		return err_set(e, ERR_NOMEM, "no memory for the user's accounts");
	for (; *text && s->n_associations < n; text = next_line(text)) {
		struct site_association *a = &s->associations[s->n_associations];
		const char *at = text;
		read_column(&at, a->account, sizeof a->account);
		read_column(&at, a->partition, sizeof a->partition);
		read_column(&at, a->qos, sizeof a->qos);
		if (!qos)
			a->qos[0] = '\0';
		s->n_associations += a->account[0] != '\0';
	}
	return 0;
}

void slurm_site_free(struct site *s)
{
	free(s->associations);
	for (int i = 0; i < s->n_nodes; i++)
		topo_hostlist_free(&s->nodes[i].names);
	free(s->nodes);
	free(s->partitions);
	*s = (struct site){ .n_nodes = 0 };
}

bool slurm_site_lists(const char *list, const char *word, size_t len)
{
	for (; *list; list += strcspn(list, ","), list += *list == ',')
		if (strcspn(list, ",") == len && !strncasecmp(list, word, len))
			return true;
	return false;
}

bool slurm_site_start(const char *text, time_t *start)
{
	static const char before[] = " to start at ";
	const char *at = strstr(text, before);
	struct tm t = { .tm_isdst = -1 };
	const char *end = at ? strptime(at + strlen(before), "%Y-%m-%dT%H:%M:%S", &t) : NULL;
	if (!end || t.tm_year < 70 || t.tm_year > 8000)
		return false;
	*start = mktime(&t);
	return *start != (time_t)-1;
}
