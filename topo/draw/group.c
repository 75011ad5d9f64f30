#include "topo/draw/internal.h"

#include <limits.h>
#include <stdint.h>
#include <stdlib.h>

enum {
	APART = 4,  /* at most this many equal neighbours are drawn one by one */
	NAMES = 48, /* bytes of a group's name before the rest is counted */
	DEEP = 32,  /* levels of switches; lower ones are not drawn */
};

/* The children of each switch, as lists that a counting sort makes. */
struct tree {
	const struct cluster *c;
	/* The children of switch s are switches[switch_at[s + 1]] up to, but without,
	 * switches[switch_at[s + 2]]. s = -1: the top switches. */
	int *switch_at, *switches;
	int *node_at, *nodes; /* the same for the nodes of leaf s; s = -1: those on no switch */
};

typedef int above_of(const struct cluster *c, int index);

static int switch_above(const struct cluster *c, int i)
{
	int p = c->switches[i].parent;
	return p < c->n_switches && p != i ? p : -1;
}

static int leaf_of(const struct cluster *c, int i)
{
	return c->switches && c->nodes[i].leaf < c->n_switches ? c->nodes[i].leaf : -1;
}

static int sort_below(const struct cluster *c, above_of *above, int n, int **at, int **list)
{
	int slots = c->n_switches + 3;
	*at = calloc((size_t)slots, sizeof **at);
	*list = calloc((size_t)n + 1, sizeof **list);
	if (!*at || !*list)
		return -1;
	for (int i = 0; i < n; i++)
		(*at)[above(c, i) + 3]++;
	/* at[s + 2] is the start of list s until that list is filled, then its end. */
	for (int s = 1; s < slots; s++)
		(*at)[s] += (*at)[s - 1];
	for (int i = 0; i < n; i++)
		(*list)[(*at)[above(c, i) + 2]++] = i;
	return 0;
}

static bool same_group(const struct group *a, const struct group *b)
{
	if (a->what != b->what || a->n_below != b->n_below ||
	    (a->what == GROUP_NODES && (a->kind != b->kind)))
		return false;
	for (int i = 0; i < a->n_below; i++)
		if (a->below[i]->n != b->below[i]->n || !same_group(a->below[i], b->below[i]))
			return false;
	return true;
}

static void free_one(struct group *g)
{
	if (!g)
		return;
	topo_group_free(g->below, g->n_below);
	free(g->members);
	free(g);
}

void topo_group_free(struct group **g, int n)
{
	for (int i = 0; g && i < n; i++)
		free_one(g[i]);
	free(g);
}

static struct group *new_group(enum group_what what, int first, int kind)
{
	struct group *g = calloc(1, sizeof *g);
	int *members = malloc(sizeof *members);
	if (!g || !members) {
		free(g);
		free(members);
		return NULL;
	}
	*members = first;
	*g = (struct group){ .what = what, .members = members, .n = 1, .kind = kind };
	return g;
}

/* A list of groups that grows; failed: there was no memory. */
struct list {
	struct group **at;
	int n, cap;
	bool failed;
};

static void push_group(struct list *l, struct group *g)
{
	if (g && l->n == l->cap) {
		int cap = l->cap ? 2 * l->cap : 4;
		struct group **more = realloc(l->at, (size_t)cap * sizeof *more);
		if (more)
			l->at = more, l->cap = cap;
	}
	if (!g || l->n == l->cap) {
		l->failed = true;
		free_one(g);
		return;
	}
	l->at[l->n++] = g;
}

/* Merges equal neighbours into one group: nodes always, switches and domains if there are more than
 * APART. */
static void merge_groups(struct list *l)
{
	int kept = 0;
	for (int i = 0, end; i < l->n; i = end) {
		struct group *g = l->at[i];
		for (end = i + 1; end < l->n && same_group(g, l->at[end]); end++)
			;
		int *members = end - i > (g->what == GROUP_NODES ? 1 : APART)
				       ? malloc((size_t)(end - i) * sizeof *members)
				       : NULL;
		if (!members) {
			for (int k = i; k < end; k++)
				l->at[kept++] = l->at[k];
			continue;
		}
		for (int k = i; k < end; k++)
			members[k - i] = l->at[k]->members[0];
		for (int k = i + 1; k < end; k++)
			free_one(l->at[k]);
		free(g->members);
		g->members = members;
		g->n = end - i;
		l->at[kept++] = g;
	}
	l->n = kept;
}

static void give_node(struct list *l, struct group *g)
{
	merge_groups(l);
	g->below = l->at;
	g->n_below = l->n;
}

/* Orders nodes by domain, kind and index, so that equal nodes are neighbours. Their order on the
 * switch does not matter. */
static int by_likeness(const void *a, const void *b, void *cluster)
{
	const struct cluster *c = cluster;
	int i = *(const int *)a, j = *(const int *)b;
	const struct cluster_node *x = &c->nodes[i], *y = &c->nodes[j];
	int dx = x->domain < 0 ? INT_MAX : x->domain, dy = y->domain < 0 ? INT_MAX : y->domain;
	if (dx != dy)
		return dx < dy ? -1 : 1;
	return x->kind != y->kind ? (x->kind > y->kind) - (x->kind < y->kind) : (i > j) - (i < j);
}

/* Adds the nodes of one switch. If several of them are in one domain, they are below a group of
 * their own. */
static void add_nodes(const struct cluster *c, int *nodes, int n, struct list *l)
{
	qsort_r(nodes, (size_t)n, sizeof *nodes, by_likeness, (void *)(uintptr_t)c);
	for (int i = 0, end; i < n; i = end) {
		int domain = c->nodes[nodes[i]].domain;
		for (end = i + 1; end < n && domain >= 0 && c->nodes[nodes[end]].domain == domain;
		     end++)
			;
		struct list inside = { 0 };
		for (int k = i; k < end; k++)
			push_group(&inside,
				   new_group(GROUP_NODES, nodes[k], c->nodes[nodes[k]].kind));
		struct group *g = end - i > 1 ? new_group(GROUP_DOMAIN, nodes[i], -1) : NULL;
		l->failed |= inside.failed;
		if (g) {
			give_node(&inside, g);
			push_group(l, g);
			continue;
		}
		for (int k = 0; k < inside.n; k++)
			push_group(l, inside.at[k]);
		free(inside.at);
	}
}

static void add_below(const struct tree *t, int at, int depth, struct list *l)
{
	for (int i = t->switch_at[at + 1]; i < t->switch_at[at + 2] && depth < DEEP; i++) {
		struct list inside = { 0 };
		struct group *g = new_group(GROUP_SWITCH, t->switches[i], -1);
		add_below(t, t->switches[i], depth + 1, &inside);
		l->failed |= inside.failed;
		if (g)
			give_node(&inside, g);
		else
			topo_group_free(inside.at, inside.n);
		push_group(l, g);
	}
	add_nodes(t->c, t->nodes + t->node_at[at + 1], t->node_at[at + 2] - t->node_at[at + 1], l);
}

struct group **topo_group_cluster(const struct cluster *c, int *n)
{
	struct tree t = { .c = c };
	struct list top = { 0 };
	top.failed = sort_below(c, switch_above, c->switches ? c->n_switches : 0, &t.switch_at,
				&t.switches) ||
		     sort_below(c, leaf_of, c->n_nodes, &t.node_at, &t.nodes);
	if (!top.failed)
		add_below(&t, -1, 0, &top);
	merge_groups(&top);
	free(t.switch_at);
	free(t.switches);
	free(t.node_at);
	free(t.nodes);
	if (top.failed || !top.at) {
		topo_group_free(top.at, top.n);
		return NULL;
	}
	*n = top.n;
	return top.at;
}

void topo_group_count(const struct cluster *c, const struct group *g, int *nodes, int *devices)
{
	*nodes = g->what == GROUP_NODES;
	*devices = g->what == GROUP_NODES ? c->kinds[g->kind].devices : 0;
	for (int i = 0; i < g->n_below; i++) {
		int some, parts;
		topo_group_count(c, g->below[i], &some, &parts);
		*nodes += g->below[i]->n * some;
		*devices += g->below[i]->n * parts;
	}
}

void topo_group_name(const struct cluster *c, const struct group *g, struct buf *out)
{
	if (g->what != GROUP_DOMAIN)
		topo_names_fold(c, g->what == GROUP_SWITCH ? topo_switch_name : topo_node_name,
				g->members, g->n, NAMES, out);
	else if (g->n == 1)
		buf_printf(out, "NVLink domain %d", c->nodes[g->members[0]].domain);
	else
		buf_printf(out, "NVLink domains %d to %d", c->nodes[g->members[0]].domain,
			   c->nodes[g->members[g->n - 1]].domain);
}
