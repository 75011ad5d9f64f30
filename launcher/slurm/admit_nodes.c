/* Whether a partition has enough nodes with what the job requests of each. */
#include "launcher/slurm/admission.h"

#include "base/human.h"
#include "topo/discover/scontrol.h"
#include "topo/hostlist.h"

#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

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

/* Takes the next item of a list of gres. The number of its GPUs; *type: "" if it names none. */
static int next_gpus(const char **at, char type[TOPO_NAME])
{
	char item[SITE_NAME];
	size_t n = strcspn(*at, ",");
	snprintf(item, sizeof item, "%.*s", n < sizeof item ? (int)n : 0, *at);
	*at += n + ((*at)[n] == ',');
	*type = '\0';
	return topo_scontrol_gpus(item, true, type);
}

/* GPUs whose type Slurm does not tell may be of any. */
static int count_type(const char *gres, const char *type)
{
	char has[TOPO_NAME];
	int n = 0;
	while (*gres) {
		int count = next_gpus(&gres, has);
		n += !*has || !strcasecmp(has, type) ? count : 0;
	}
	return n;
}

static bool has_types(const struct admission *a, const struct site_nodes *g)
{
	char type[TOPO_NAME];
	for (const char *at = a->job->slurm.gres; *at;) {
		int asked = next_gpus(&at, type);
		if (*type && count_type(g->gres, type) < asked)
			return false;
	}
	return true;
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
	for (int i = 0; i < a->site->n_nodes && n < ADMISSION_LISTED; i++) {
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
	buf_printf(out,
		   "[slurm] %s: %d GPU%s are requested on each node, and a node has at most %lld",
		   *a->job->slurm.gres && !a->job->slurm.gpus_per_node ? "gres" : "gpus_per_node",
		   a->size->gpus, human_s(a->size->gpus),
		   find_most(a, offsetof(struct site_nodes, gpus)));
}

static void describe_types(const struct admission *a, struct buf *out)
{
	int n = 0;
	buf_printf(out, "[slurm] gres = %.100s: the nodes have ", a->job->slurm.gres);
	for (int i = 0; i < a->site->n_nodes && n < ADMISSION_LISTED; i++) {
		const struct site_nodes *g = &a->site->nodes[i];
		if (!strcmp(g->partition, a->p->name) && g->gpus > 0)
			buf_printf(out, "%s%.60s", n++ ? ", " : "", g->gres);
	}
}

static void describe_cpus(const struct admission *a, struct buf *out)
{
	buf_printf(
		out,
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
	{ has_types, describe_types, "use a type that they have, or another partition" },
	{ has_cpus, describe_cpus,
	  "request more nodes, lower cpus_per_task, or use another partition" },
	{ has_memory, describe_memory, "lower mem, or use another partition" },
};
enum { PROPERTIES = sizeof properties / sizeof *properties };

/* The nodes of the group that the job does not exclude. */
static int64_t count_names(const struct site_nodes *g, const struct hostlist *without)
{
	int64_t n = g->names.n ? 0 : g->count;
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
		ADMISSION_REFUSE(e, "%s; no node of partition %s fits; %s", buf_str(&what),
				 a->p->name, property->remedy);
	else
		ADMISSION_REFUSE(
			e, "%s; %lld of the %d nodes that are requested fit in partition %s; %s",
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
		return ADMISSION_REFUSE(
			e,
			"[slurm] exclude leaves %lld of the nodes of partition %s, and %d are "
			"requested; exclude fewer or request fewer",
			(long long)n, a->p->name, a->size->min_nodes);
	for (int i = 0; i < PROPERTIES; i++) {
		n = count_nodes(a, i + 1, without, &up);
		if (n < a->size->min_nodes)
			return refuse_property(a, &properties[i], n, e);
	}
	if (up < a->size->min_nodes)
		buf_printf(
			a->warnings,
			"%d node%s are requested, and of the %lld that fit in partition %s, %lld "
			"are up; the job waits for the others\n",
			a->size->min_nodes, human_s(a->size->min_nodes), (long long)n, a->p->name,
			(long long)up);
	return 0;
}

int slurm_admission_nodes(const struct admission *a, struct err *e)
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

/* True also if the names of the partition's nodes are unknown. */
static bool may_have_node(const struct admission *a, const char *name)
{
	bool known = false;
	for (int i = 0; i < a->site->n_nodes; i++) {
		const struct site_nodes *g = &a->site->nodes[i];
		if (strcmp(g->partition, a->p->name))
			continue;
		if (!g->names.n)
			return true;
		known = true;
		for (int k = 0; k < g->names.n; k++)
			if (!strcmp(g->names.names[k], name))
				return true;
	}
	return !known;
}

int slurm_admission_nodelist(const struct admission *a, struct err *e)
{
	struct hostlist asked = { .n = 0 };
	struct err why = ERR_INIT;
	int rc = 0;
	if (!*a->job->slurm.nodelist || strchr(a->job->slurm.nodelist, '/'))
		return 0;
	if (topo_hostlist_expand(a->job->slurm.nodelist, &asked, &why))
		return err_set(e, ERR_USAGE, "[slurm] nodelist: %.300s; use a list such as n[1-4]",
			       why.text);
	for (int i = 0; i < asked.n && !rc; i++)
		if (!may_have_node(a, asked.names[i]))
			rc = ADMISSION_REFUSE(
				e,
				"[slurm] nodelist: partition %s has no node %s; `sinfo -N` lists "
				"its nodes",
				a->p->name, asked.names[i]);
	if (!rc && asked.n > a->size->max_nodes)
		rc = ADMISSION_REFUSE(
			e,
			"[slurm] nodelist names %d nodes, and at most %d are requested; set nodes "
			"= %d, or name fewer",
			asked.n, a->size->max_nodes, asked.n);
	topo_hostlist_free(&asked);
	return rc;
}
