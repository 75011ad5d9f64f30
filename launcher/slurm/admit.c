#include "launcher/slurm/admit.h"

#include "base/human.h"
#include "topo/hostlist.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { LISTED_MAX = 12, YEAR_S = 365 * 86400 };

struct admission {
	const struct job *job;
	const struct script_size *size;
	const struct site *site;
	const struct site_partition *p;
	struct buf *warnings;
};

#define REFUSE(e, ...) err_set(e, ERR_NOFIT, __VA_ARGS__)

static const char *duration(int64_t s, char out[HUMAN])
{
	static const struct {
		int64_t seconds;
		const char *unit;
	} units[] = { { 86400, "day" }, { 3600, "hour" }, { 60, "minute" }, { 1, "second" } };
	size_t i = 0;
	while (i < 3 && s < units[i].seconds + units[i].seconds / 2)
		i++;
	int64_t n = (s + units[i].seconds / 2) / units[i].seconds;
	snprintf(out, HUMAN, "%lld %s%s", (long long)n, units[i].unit, human_s(n));
	return out;
}

/* --- The partition --- */

static int check_state(const struct admission *a, struct err *e)
{
	const struct site_partition *p = a->p;
	if (!strcmp(p->state, "INACTIVE") || !strcmp(p->state, "DRAIN"))
		return REFUSE(e,
			      "[slurm] partition %s takes no new jobs (its state is %s); use another "
			      "partition, or ask its administrators",
			      p->name, p->state);
	if (!strcmp(p->state, "DOWN"))
		buf_printf(a->warnings,
			   "partition %s is down, so the job waits until its administrators start "
			   "it again\n",
			   p->name);
	return 0;
}

static int check_size(const struct admission *a, struct err *e)
{
	const struct site_partition *p = a->p;
	long long asked = a->size->min_nodes, most = a->size->max_nodes;
	bool spares = a->job->slurm.spares > 0;
	if (p->total > 0 && asked > p->total)
		return REFUSE(e,
			      "[slurm] nodes%s: %lld node%s are requested, but partition %s has %lld; "
			      "request at most %lld, or use another partition",
			      spares ? " + spares" : "", asked, human_s(asked), p->name,
			      (long long)p->total, (long long)p->total);
	/* A QOS may have a limit of its own that replaces the partition's. */
	if (p->max_nodes > 0 && asked > p->max_nodes && !*a->job->slurm.qos)
		return REFUSE(e,
			      "[slurm] nodes%s: %lld node%s are requested, but partition %s allows a "
			      "job %lld; request at most %lld, or use another partition",
			      spares ? " + spares" : "", asked, human_s(asked), p->name,
			      (long long)p->max_nodes, (long long)p->max_nodes);
	if (most < p->min_nodes && !*a->job->slurm.qos)
		return REFUSE(e,
			      "[slurm] nodes: %lld node%s are requested, but a job of partition %s "
			      "needs at least %lld; use another partition",
			      most, human_s(most), p->name, (long long)p->min_nodes);
	return 0;
}

static int check_time(const struct admission *a, struct err *e)
{
	const struct site_partition *p = a->p;
	const char *time = a->job->slurm.time;
	int64_t asked = slurm_script_time(a->job);
	char limit[HUMAN];
	if (!*time || p->max_time <= 0 || (asked > 0 && asked <= p->max_time))
		return 0;
	duration(p->max_time, limit);
	if (!*a->job->slurm.qos)
		return REFUSE(e,
			      "[slurm] time = %s is longer than the %s that partition %s allows; lower "
			      "time (a run continues when it is submitted again), or use another "
			      "partition",
			      time, limit, p->name);
	buf_printf(a->warnings,
		   "[slurm] time = %s is longer than the %s that partition %s allows; the job waits "
		   "for ever unless qos %s permits more\n",
		   time, limit, p->name, a->job->slurm.qos);
	return 0;
}

/* what: the key's name, such as "account". */
static int check_allowed(const struct admission *a, const char *what, const char *value,
			 const char *allowed, const char *denied, struct err *e)
{
	if (!*value)
		return 0;
	if (*allowed && !slurm_site_lists(allowed, value, strlen(value)))
		return REFUSE(e,
			      "[slurm] %s = %s may not use partition %s, which allows %.200s; use "
			      "another %s or partition",
			      what, value, a->p->name, allowed, what);
	if (slurm_site_lists(denied, value, strlen(value)))
		return REFUSE(e,
			      "[slurm] %s = %s may not use partition %s, which denies it; use another "
			      "%s or partition",
			      what, value, a->p->name, what);
	return 0;
}

static int check_account(const struct admission *a, struct err *e)
{
	return check_allowed(a, "account", a->job->slurm.account, a->p->allow_accounts,
			     a->p->deny_accounts, e);
}

static int check_qos(const struct admission *a, struct err *e)
{
	return check_allowed(a, "qos", a->job->slurm.qos, a->p->allow_qos, a->p->deny_qos, e);
}

/* --- Its nodes --- */

/* Features that are all needed (joined by '&'), or one of which is ('|'). Whether nodes match any
 * other constraint is left to Slurm. */
static bool has_features(const struct admission *a, const struct site_nodes *g)
{
	const char *at = a->job->slurm.constraint;
	bool any = strchr(at, '|') != NULL;
	if (!*at || at[strcspn(at, "[]()*,")] || (any && strchr(at, '&')))
		return true;
	while (*at) {
		size_t n = strcspn(at, "&|");
		bool has = slurm_site_lists(g->features, at, n);
		if (has == any)
			return any;
		at += n + (at[n] != '\0');
	}
	return !any;
}

static bool has_gpus(const struct admission *a, const struct site_nodes *g)
{
	return g->gpus >= a->size->gpus;
}

static bool has_cpus(const struct admission *a, const struct site_nodes *g)
{
	return g->cpus >= (int64_t)a->size->agents * a->size->cpus;
}

static bool has_memory(const struct admission *a, const struct site_nodes *g)
{
	return g->memory <= 0 || g->memory >= slurm_script_memory(a->job);
}

static void describe_features(const struct admission *a, struct buf *out)
{
	int n = 0;
	buf_printf(out, "[slurm] constraint = %s: the nodes have ", a->job->slurm.constraint);
	for (int i = 0; i < a->site->n_nodes && n < LISTED_MAX; i++) {
		const struct site_nodes *g = &a->site->nodes[i];
		if (!strcmp(g->partition, a->p->name) && g->features[0])
			buf_printf(out, "%s%.100s", n++ ? ", " : "the features ", g->features);
	}
	if (!n)
		buf_puts(out, "no features");
}

/* The largest value of a member of the partition's groups of nodes, an int64_t. */
static long long find_most(const struct admission *a, size_t member)
{
	int64_t most = 0, value;
	for (int i = 0; i < a->site->n_nodes; i++) {
		const struct site_nodes *g = &a->site->nodes[i];
		memcpy(&value, (const char *)g + member, sizeof value);
		if (!strcmp(g->partition, a->p->name) && value > most)
			most = value;
	}
	return most;
}

static void describe_gpus(const struct admission *a, struct buf *out)
{
	buf_printf(out, "[slurm] %s: %d GPU%s are requested on each node, and a node has at most %lld",
		   *a->job->slurm.gres && !a->job->slurm.gpus_per_node ? "gres" : "gpus_per_node",
		   a->size->gpus, human_s(a->size->gpus), find_most(a, offsetof(struct site_nodes, gpus)));
}

static void describe_cpus(const struct admission *a, struct buf *out)
{
	buf_printf(out,
		   "[slurm] cpus_per_task: %d agent%s with %d core%s each are requested on each node, "
		   "and a node has at most %lld",
		   a->size->agents, human_s(a->size->agents), a->size->cpus, human_s(a->size->cpus),
		   find_most(a, offsetof(struct site_nodes, cpus)));
}

static void describe_memory(const struct admission *a, struct buf *out)
{
	buf_printf(out, "[slurm] mem = %s: a node has at most %lld MB", a->job->slurm.mem,
		   find_most(a, offsetof(struct site_nodes, memory)));
}

/* What a node must have. `describe` writes the key, and what the nodes have. */
static const struct property {
	bool (*fits)(const struct admission *a, const struct site_nodes *g);
	void (*describe)(const struct admission *a, struct buf *out);
	const char *remedy;
} properties[] = {
	{ has_features, describe_features, "use features that they have, or another partition" },
	{ has_gpus, describe_gpus,
	  "lower gpus_per_node and request more nodes, or use another partition" },
	{ has_cpus, describe_cpus, "request more nodes, lower cpus_per_task, or use another partition" },
	{ has_memory, describe_memory, "lower mem, or use another partition" },
};
enum { PROPERTIES = sizeof properties / sizeof *properties };

/* The nodes of the group that the job does not exclude. */
static int64_t count_names(const struct site_nodes *g, const struct hostlist *without)
{
	int64_t n = 0;
	for (int i = 0; i < g->names.n; i++) {
		bool excluded = false;
		for (int k = 0; k < without->n && !excluded; k++)
			excluded = !strcmp(g->names.names[i], without->names[k]);
		n += !excluded;
	}
	return n;
}

static bool fits_properties(const struct admission *a, const struct site_nodes *g, int n)
{
	for (int i = 0; i < n; i++)
		if (!properties[i].fits(a, g))
			return false;
	return true;
}

/* The nodes of the partition that have the first n properties. up: those that are not down. */
static int64_t count_nodes(const struct admission *a, int n, const struct hostlist *without,
			   int64_t *up)
{
	int64_t all = 0;
	*up = 0;
	for (int i = 0; i < a->site->n_nodes; i++) {
		const struct site_nodes *g = &a->site->nodes[i];
		if (strcmp(g->partition, a->p->name) || !fits_properties(a, g, n))
			continue;
		int64_t names = count_names(g, without);
		all += names;
		*up += g->down ? 0 : names;
	}
	return all;
}

static int refuse_property(const struct admission *a, const struct property *property, int64_t n,
			   struct err *e)
{
	struct buf what = BUF_INIT;
	property->describe(a, &what);
	if (n == 0)
		REFUSE(e, "%s; no node of partition %s fits; %s", buf_str(&what), a->p->name,
		       property->remedy);
	else
		REFUSE(e, "%s; %lld of the %d nodes that are requested fit in partition %s; %s",
		       buf_str(&what), (long long)n, a->size->min_nodes, a->p->name,
		       property->remedy);
	buf_fini(&what);
	return -1;
}

/* Adds one property after the other. The one with which too few nodes are left is the reason. */
static int count_fitting(const struct admission *a, const struct hostlist *without, struct err *e)
{
	int64_t up, n = count_nodes(a, 0, without, &up);
	if (n == 0 && without->n == 0)
		return 0; /* sinfo has not listed the partition */
	if (n < a->size->min_nodes)
		return REFUSE(e,
			      "[slurm] exclude leaves %lld of the nodes of partition %s, and %d are "
			      "requested; exclude fewer or request fewer",
			      (long long)n, a->p->name, a->size->min_nodes);
	for (int i = 0; i < PROPERTIES; i++) {
		n = count_nodes(a, i + 1, without, &up);
		if (n < a->size->min_nodes)
			return refuse_property(a, &properties[i], n, e);
	}
	if (up < a->size->min_nodes)
		buf_printf(a->warnings,
			   "%d node%s are requested, and of the %lld that fit in partition %s, %lld "
			   "are up; the job waits for the others\n",
			   a->size->min_nodes, human_s(a->size->min_nodes), (long long)n, a->p->name,
			   (long long)up);
	return 0;
}

static int check_nodes(const struct admission *a, struct err *e)
{
	struct hostlist without = { .n = 0 };
	struct err why = ERR_INIT;
	if (*a->job->slurm.exclude && topo_hostlist_expand(a->job->slurm.exclude, &without, &why))
		return err_set(e, ERR_USAGE, "[slurm] exclude: %.300s; use a list such as n[1-4]",
			       why.text);
	int rc = count_fitting(a, &without, e);
	topo_hostlist_free(&without);
	return rc;
}

static bool has_node(const struct admission *a, const char *name)
{
	for (int i = 0; i < a->site->n_nodes; i++) {
		const struct site_nodes *g = &a->site->nodes[i];
		for (int k = 0; !strcmp(g->partition, a->p->name) && k < g->names.n; k++)
			if (!strcmp(g->names.names[k], name))
				return true;
	}
	return false;
}

static int check_nodelist(const struct admission *a, struct err *e)
{
	struct hostlist asked = { .n = 0 };
	struct err why = ERR_INIT;
	int rc = 0;
	if (!*a->job->slurm.nodelist || strchr(a->job->slurm.nodelist, '/'))
		return 0;
	if (topo_hostlist_expand(a->job->slurm.nodelist, &asked, &why))
		return err_set(e, ERR_USAGE, "[slurm] nodelist: %.300s; use a list such as n[1-4]",
			       why.text);
	for (int i = 0; i < asked.n && !rc && a->site->n_nodes; i++)
		if (!has_node(a, asked.names[i]))
			rc = REFUSE(e,
				    "[slurm] nodelist: partition %s has no node %s; `sinfo -N` lists "
				    "its nodes",
				    a->p->name, asked.names[i]);
	if (!rc && asked.n > a->size->max_nodes)
		rc = REFUSE(e,
			    "[slurm] nodelist names %d nodes, and at most %d are requested; set nodes "
			    "= %d, or name fewer",
			    asked.n, a->size->max_nodes, asked.n);
	topo_hostlist_free(&asked);
	return rc;
}

/* --- All of it --- */

static int (*const checks[])(const struct admission *a, struct err *e) = {
	check_state, check_size, check_time, check_account, check_qos, check_nodelist, check_nodes,
};

static const struct site_partition *find_partition(const struct site *site, const char *name,
						   size_t len)
{
	for (int i = 0; i < site->n_partitions; i++) {
		const struct site_partition *p = &site->partitions[i];
		if (len ? strlen(p->name) == len && !strncmp(p->name, name, len) : p->is_default)
			return p;
	}
	return NULL;
}

static int refuse_partition(const struct site *site, const char *name, size_t len, struct err *e)
{
	struct buf list = BUF_INIT;
	for (int i = 0; i < site->n_partitions && i < LISTED_MAX; i++)
		buf_printf(&list, "%s%s", i ? ", " : "", site->partitions[i].name);
	if (len)
		REFUSE(e, "[slurm] partition: there is no partition %.*s; the partitions are %s",
		       (int)len, name, buf_str(&list));
	else
		REFUSE(e,
		       "[slurm] partition: the cluster has no default partition; use one of %s",
		       buf_str(&list));
	buf_fini(&list);
	return -1;
}

static int admit_to(const struct admission *a, struct err *e)
{
	for (size_t i = 0; i < sizeof checks / sizeof *checks; i++)
		if (checks[i](a, e))
			return -1;
	return 0;
}

int slurm_admit(const struct job *job, const struct script_size *size, const struct site *site,
		struct buf *warnings, struct err *e)
{
	const char *at = job->slurm.partition;
	bool admitted = false;
	struct err why = ERR_INIT;
	if (!site->n_partitions)
		return 0;
	/* With several partitions Slurm takes the one that can start the job first. */
	do {
		size_t n = strcspn(at, ",");
		struct buf said = BUF_INIT;
		struct admission a = { job, size, site, find_partition(site, at, n), &said };
		if (!a.p) {
			refuse_partition(site, at, n, e);
			return -1;
		}
		if (!admit_to(&a, &why)) {
			buf_puts(warnings, admitted ? "" : buf_str(&said));
			admitted = true;
		}
		buf_fini(&said);
		at += n + (at[n] == ',');
	} while (*at);
	return admitted ? 0 : err_set(e, why.code, "%s", why.text);
}

void slurm_admit_wait(const char *test, time_t now, struct buf *out)
{
	time_t start;
	char wait[HUMAN], when[40];
	struct tm t;
	if (!slurm_site_start(test, &start)) {
		size_t n = strcspn(test, "\n");
		buf_printf(out,
			   "Slurm cannot start the job on the nodes as they are now (%.*s); it waits "
			   "until that changes\n",
			   n > 0 && n < 200 ? (int)n : 200, n ? test : "no reason is known");
		return;
	}
	if (start - now > YEAR_S) {
		buf_puts(out, "Slurm cannot say when the job will start\n");
		return;
	}
	if (start - now < 60) {
		buf_puts(out, "Slurm expects to start the job now\n");
		return;
	}
	localtime_r(&start, &t);
	strftime(when, sizeof when, "%Y-%m-%d %H:%M", &t);
	buf_printf(out, "Slurm expects to start the job in about %s (%s)\n",
		   duration(start - now, wait), when);
}
