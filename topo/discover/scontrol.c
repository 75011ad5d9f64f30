#include "topo/discover/scontrol.h"

#include "topo/internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SWITCHES_MAX = 65536, GPUS_MAX = 1024, LEVELS_MAX = 64 };

/* Finds the text behind the first "KEY=" of the line, up to the next blank; false: the key is
 * missing. Slurm's own keys come before texts that people write (OS, Reason, Comment). */
static bool find_field(const char *line, const char *key, const char **at, size_t *len)
{
	size_t n = strlen(key);
	const char *end = line + strcspn(line, "\n");
	for (const char *p = line; (size_t)(end - p) > n;) {
		if (!memcmp(p, key, n) && p[n] == '=') {
			*at = p + n + 1;
			*len = strcspn(*at, " \n");
			return true;
		}
		const char *blank = memchr(p, ' ', (size_t)(end - p));
		if (!blank)
			return false;
		p = blank + 1;
	}
	return false;
}

bool topo_scontrol_field(const char *line, const char *key, char *out, size_t size)
{
	const char *at;
	size_t len;
	out[0] = '\0';
	if (find_field(line, key, &at, &len) && len < size &&
	    !(len == 6 && !memcmp(at, "(null)", 6)))
		snprintf(out, size, "%.*s", (int)len, at);
	return out[0] != '\0';
}

static double number(const char *line, const char *key, double most)
{
	char text[24];
	topo_scontrol_field(line, key, text, sizeof text);
	char *end;
	double v = *text >= '0' && *text <= '9' ? strtod(text, &end) : 0;
	return *text && v >= 0 && v <= most ? v : 0;
}

/* Reads "8(S:0-1)" or "8" as 8; -1: it is no number. */
static int count_at(const char *at, size_t len)
{
	int n = 0, digits = 0;
	while ((size_t)digits < len && digits < 6 && at[digits] >= '0' && at[digits] <= '9')
		n = 10 * n + (at[digits++] - '0');
	return digits && ((size_t)digits == len || at[digits] == '(') ? n : -1;
}

/* The length of an item, which ends at a comma outside brackets. */
static size_t item_at(const char *at)
{
	size_t n = 0;
	for (int deep = 0; at[n] && (deep || at[n] != ','); n++)
		deep += (at[n] == '(') - (at[n] == ')');
	return n;
}

int topo_scontrol_gpus(const char *text, bool named, char type[TOPO_NAME])
{
	int total = 0;
	while (text && *text) {
		size_t len = item_at(text), open = strcspn(text, "("),
		       head = open < len ? open : len;
		const char *last = memrchr(text, ':', head), *name = text;
		bool gpu = !named;
		if ((head == 3 || (head > 3 && text[3] == ':')) && !memcmp(text, "gpu", 3)) {
			gpu = true;
			name = text + (head > 3 ? 4 : 3);
		}
		const char *count = last ? last + 1 : text;
		int n = count_at(count, len - (size_t)(count - text));
		if (gpu && n > 0 && n <= GPUS_MAX)
			total += n;
		if (gpu && n > 0 && type && !*type && last && last > name &&
		    (size_t)(last - name) < TOPO_NAME)
			snprintf(type, TOPO_NAME, "%.*s", (int)(last - name), name);
		text += len + (text[len] == ',');
	}
	return total;
}

static void read_node(const char *line, struct slurm_node *v)
{
	char gres[1024];
	*v = (struct slurm_node){ .gpus = 0 };
	topo_scontrol_field(line, "NodeName", v->name, sizeof v->name);
	topo_scontrol_field(line, "Gres", gres, sizeof gres);
	topo_scontrol_field(line, "BootTime", v->boot, sizeof v->boot);
	topo_scontrol_field(line, "ActiveFeatures", v->features, sizeof v->features);
	v->gpus = topo_scontrol_gpus(gres, true, v->gpu);
	v->sockets = (int)number(line, "Sockets", 1e4);
	v->cores = (int)number(line, "CoresPerSocket", 1e5);
	v->threads = (int)number(line, "ThreadsPerCore", 1e3);
	v->memory = number(line, "RealMemory", 1e12) * 1024 * 1024;
}

static const char *next_line(const char *at)
{
	at += strcspn(at, "\n");
	return *at ? at + 1 : NULL;
}

int topo_scontrol_nodes(const char *text, struct slurm_node **nodes, int *n, struct err *e)
{
	int most = 0;
	for (const char *at = text; at && *at; at = next_line(at))
		most += !strncmp(at, "NodeName=", 9);
	if (most > NODES_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "scontrol: lists %d nodes, more than the limit of %d", most,
			       NODES_MAX);
	struct slurm_node *list = calloc((size_t)most + 1, sizeof *list);
	if (!list)
		return err_set(e, ERR_NOMEM, "scontrol: no memory for %d nodes", most);
	*n = 0;
	for (const char *at = text; at && *at; at = next_line(at))
		if (!strncmp(at, "NodeName=", 9)) {
			read_node(at, &list[*n]);
			*n += list[*n].name[0] != '\0';
		}
	*nodes = list;
	return 0;
}

/* --- Switches --- */

/* A switch as scontrol reports it. It lists the switches below it by name. */
struct slurm_switch {
	struct cluster_switch s;
	struct hostlist nodes, below;
	int level;
	bool block, used;
};

struct slurm_switches {
	struct slurm_switch *at;
	int n;
};

static void free_switches(struct slurm_switches *l)
{
	for (int i = 0; i < l->n; i++) {
		topo_hostlist_free(&l->at[i].nodes);
		topo_hostlist_free(&l->at[i].below);
	}
	free(l->at);
}

static int expand_nodes(const char *line, const char *key, struct hostlist *out, struct err *e)
{
	const char *at;
	size_t len;
	if (!find_field(line, key, &at, &len) || !len || (len == 6 && !memcmp(at, "(null)", 6)))
		return 0;
	char *copy = strndup(at, len);
	int rc = copy ? topo_hostlist_expand(copy, out, e)
		      : err_set(e, ERR_NOMEM, "scontrol: no memory for a list of nodes");
	free(copy);
	return rc ? err_prefix(e, "scontrol show topology: %s", key) : 0;
}

static int read_told(const char *text, struct slurm_switches *l, struct err *e)
{
	int most = 0;
	for (const char *at = text; at && *at; at = next_line(at))
		most += !strncmp(at, "SwitchName=", 11) || !strncmp(at, "BlockName=", 10);
	if (most > SWITCHES_MAX)
		return err_set(e, ERR_UNSUPPORTED,
			       "scontrol: lists %d switches, more than the limit of %d", most,
			       SWITCHES_MAX);
	l->at = calloc((size_t)most + 1, sizeof *l->at);
	if (!l->at)
		return err_set(e, ERR_NOMEM, "scontrol: no memory for %d switches", most);
	for (const char *at = text; at && *at; at = next_line(at)) {
		bool block = !strncmp(at, "BlockName=", 10);
		if (!block && strncmp(at, "SwitchName=", 11))
			continue;
		struct slurm_switch *t = &l->at[l->n++];
		t->block = block;
		t->s.parent = -1;
		topo_scontrol_field(at, block ? "BlockName" : "SwitchName", t->s.name,
				    sizeof t->s.name);
		t->level = (int)number(at, "Level", LEVELS_MAX);
		if (expand_nodes(at, "Nodes", &t->nodes, e) ||
		    (!block && expand_nodes(at, "Switches", &t->below, e)))
			return -1;
	}
	return 0;
}

/* A row of a sorted list of names, for binary search. */
struct entry {
	const char *name;
	int index;
};

static int compare_names(const void *a, const void *b)
{
	return strcmp(((const struct entry *)a)->name, ((const struct entry *)b)->name);
}

static int find_switch(const struct entry *list, int n, const char *name)
{
	struct entry key = { .name = name };
	const struct entry *at = bsearch(&key, list, (size_t)n, sizeof *list, compare_names);
	return at ? at->index : -1;
}

/* The parent of a switch is the lowest switch above it that lists it. */
static void set_parents(struct slurm_switches *l, const struct entry *switches)
{
	for (int i = 0; i < l->n; i++)
		for (int k = 0; k < l->at[i].below.n; k++) {
			int below = find_switch(switches, l->n, l->at[i].below.names[k]);
			if (below < 0 || l->at[below].level >= l->at[i].level)
				continue;
			int now = l->at[below].s.parent;
			if (now < 0 || l->at[i].level < l->at[now].level)
				l->at[below].s.parent = i;
		}
}

/* The leaf of a node is the lowest switch that lists it. Switches above the leaf list it again. */
static void set_leaves(struct slurm_switches *l, const struct entry *nodes, const bool *joins,
		       struct cluster *c)
{
	for (int i = 0; i < l->n; i++)
		for (int k = 0; k < l->at[i].nodes.n; k++) {
			int node = find_switch(nodes, c->n_nodes, l->at[i].nodes.names[k]);
			if (node < 0)
				continue;
			int now = c->nodes[node].leaf;
			if (now < 0 || l->at[i].level < l->at[now].level)
				c->nodes[node].leaf = i;
			if (l->at[i].block && joins && joins[node])
				c->nodes[node].domain = i;
		}
}

/* Keeps only the switches above the cluster's nodes, and numbers these and the domains again. */
static int keep_used(struct slurm_switches *l, struct cluster *c, struct err *e)
{
	int kept = 0, domains = 0, top = 0;
	int *number_of = calloc((size_t)l->n + 1, sizeof *number_of),
	    *domain_of = calloc((size_t)l->n + 1, sizeof *domain_of);
	for (int i = 0; number_of && domain_of && i < c->n_nodes; i++)
		for (int at = c->nodes[i].leaf; at >= 0 && !l->at[at].used; at = l->at[at].s.parent)
			l->at[at].used = true;
	/* Upper switches come first, as struct cluster requires. */
	for (int i = 0; number_of && domain_of && i < l->n; i++) {
		top = l->at[i].level > top ? l->at[i].level : top;
		number_of[i] = -1;
	}
	for (int level = top; number_of && domain_of && level >= 0; level--)
		for (int i = 0; i < l->n; i++)
			if (l->at[i].used && l->at[i].level == level)
				number_of[i] = kept++;
	c->switches = kept && number_of && domain_of ? calloc((size_t)kept, sizeof *c->switches)
						     : NULL;
	if (!number_of || !domain_of || (kept && !c->switches)) {
		free(number_of);
		free(domain_of);
		return err_set(e, ERR_NOMEM, "scontrol: no memory for %d switches", l->n);
	}
	for (int i = 0; i < l->n; i++) {
		if (!l->at[i].used)
			continue;
		struct cluster_switch *s = &c->switches[number_of[i]];
		*s = l->at[i].s;
		c->n_switches = kept;
		s->parent = s->parent < 0 ? -1 : number_of[s->parent];
	}
	for (int i = 0; i < c->n_nodes; i++) {
		struct cluster_node *v = &c->nodes[i];
		if (v->domain >= 0) {
			if (!domain_of[v->domain])
				domain_of[v->domain] = ++domains;
			v->domain = domain_of[v->domain] - 1;
		}
		v->leaf = v->leaf < 0 ? -1 : number_of[v->leaf];
	}
	free(number_of);
	free(domain_of);
	return 0;
}

static int attach_node(struct slurm_switches *l, const bool *joins, struct cluster *c,
		       struct err *e)
{
	struct entry *nodes = calloc((size_t)c->n_nodes + 1, sizeof *nodes),
		     *switches = calloc((size_t)l->n + 1, sizeof *switches);
	int rc = nodes && switches
			 ? 0
			 : err_set(e, ERR_NOMEM, "scontrol: no memory for %d nodes", c->n_nodes);
	for (int i = 0; !rc && i < c->n_nodes; i++)
		nodes[i] = (struct entry){ c->nodes[i].name, i };
	for (int i = 0; !rc && i < l->n; i++)
		switches[i] = (struct entry){ l->at[i].s.name, i };
	if (!rc) {
		qsort(nodes, (size_t)c->n_nodes, sizeof *nodes, compare_names);
		qsort(switches, (size_t)l->n, sizeof *switches, compare_names);
		set_parents(l, switches);
		set_leaves(l, nodes, joins, c);
		rc = keep_used(l, c, e);
	}
	free(nodes);
	free(switches);
	return rc;
}

int topo_scontrol_topology(const char *text, const bool *joins, struct cluster *c, struct err *e)
{
	struct slurm_switches l = { .n = 0 };
	int rc = read_told(text, &l, e);
	if (!rc && l.n)
		rc = attach_node(&l, joins, c, e);
	free_switches(&l);
	return rc;
}
