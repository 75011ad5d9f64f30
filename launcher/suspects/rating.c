/* rating: how sure it is that a node is sick (suspects.h has the formula). */
#include "launcher/suspects/suspects.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const double shares[SUSPECT_KIND_COUNT] = { 0,
#define SUSPECT_SHARE(id, word, share, text) share,
						   SUSPECT_KINDS(SUSPECT_SHARE)
#undef SUSPECT_SHARE
};

/* With an unknown cluster every one counts, except that of runs without Slurm. */
static bool is_of_cluster(const struct suspects_entry *x, const char *cluster)
{
	if (*cluster && *x->line.cluster)
		return !strcmp(x->line.cluster, cluster);
	return strcmp(x->line.cluster, SUSPECTS_LOCAL) && strcmp(cluster, SUSPECTS_LOCAL);
}

static int compare_nodes_of(const struct suspects_entry *x, const struct suspects_entry *y)
{
	int c = strcmp(x->line.node, y->line.node);
	return c ? c : strcmp(x->line.cluster, y->line.cluster);
}

/* Lines of one node, user, kind and run. */
static int compare_cases(const struct suspects_entry *x, const struct suspects_entry *y)
{
	int c = compare_nodes_of(x, y);
	c = c ? c : (x->user > y->user) - (x->user < y->user);
	c = c ? c : (int)x->kind - (int)y->kind;
	return c ? c : strcmp(x->line.run, y->line.run);
}

static int compare_entries(const void *a, const void *b)
{
	const struct suspects_entry *x = *(struct suspects_entry *const *)a,
				    *y = *(struct suspects_entry *const *)b;
	int c = compare_cases(x, y);
	return c ? c : (x->line.time > y->line.time) - (x->line.time < y->line.time);
}

static int compare_nodes(const void *a, const void *b)
{
	const struct suspect_node *x = a, *y = b;
	return x->sure != y->sure ? (x->sure < y->sure) - (x->sure > y->sure)
				  : strcmp(x->name, y->name);
}

/* The time of the last line in [x, end) with which this user has cleared the node. */
static double find_cleared(struct suspects_entry *const *x, struct suspects_entry *const *end,
			   unsigned user)
{
	double time = -INFINITY;
	for (; x < end; x++)
		if ((*x)->user == user && (*x)->kind == SUSPECT_CLEARED)
			time = fmax(time, (*x)->line.time);
	return time;
}

/* Rates one node by its entries, which are sorted. */
static void rate_node(struct suspects_entry **x, struct suspects_entry **end, double now,
		      struct suspect_node *out)
{
	double by_root = find_cleared(x, end, 0), by_user = -INFINITY;
	snprintf(out->name, sizeof out->name, "%s", (*x)->line.node);
	out->cluster = (*x)->line.cluster;
	for (struct suspects_entry **first = x; x < end; x++) {
		struct suspects_entry *entry = *x;
		if (x == first || entry->user != x[-1]->user) {
			struct suspects_entry **next = x;
			while (next < end && (*next)->user == entry->user)
				next++;
			by_user = find_cleared(x, next, entry->user);
		}
		entry->counts = entry->kind != SUSPECT_CLEARED &&
				entry->line.time > fmax(by_root, by_user);
		if (!entry->counts)
			continue;
		out->lines++;
		if (!out->latest || out->latest->line.time < entry->line.time)
			out->latest = entry;
		bool last = x + 1 == end || compare_cases(entry, x[1]);
		double age = fmax(now - entry->line.time, 0);
		double p = last ? shares[entry->kind] * exp2(-age / SUSPECTS_HALF_LIFE) : 0;
		out->sure = 1 - (1 - out->sure) * (1 - p);
	}
}

/* Rates each node of the sorted entries. Returns the number of nodes with lines that count. */
static int rate_nodes(struct suspects_entry **x, struct suspects_entry **end, double now,
		      struct suspect_node *nodes)
{
	int n = 0;
	for (struct suspects_entry **next; x < end; x = next) {
		for (next = x; next < end && !compare_nodes_of(*x, *next);)
			next++;
		nodes[n] = (struct suspect_node){ .sure = 0 };
		rate_node(x, next, now, &nodes[n]);
		n += nodes[n].lines > 0;
	}
	return n;
}

int suspects_rate(struct suspects *s, const char *cluster, double now, struct suspect_node **out)
{
	struct suspect_node *nodes = calloc((size_t)s->n + 1, sizeof *nodes);
	struct suspects_entry **sorted = calloc((size_t)s->n + 1, sizeof(void *));
	int n = -1, of_cluster = 0;
	*out = NULL;
	for (int i = 0; sorted && i < s->n; i++) {
		s->entries[i].counts = false;
		if (is_of_cluster(&s->entries[i], cluster))
			sorted[of_cluster++] = &s->entries[i];
	}
	if (nodes && sorted) {
		qsort(sorted, (size_t)of_cluster, sizeof *sorted, compare_entries);
		n = rate_nodes(sorted, sorted + of_cluster, now, nodes);
		qsort(nodes, (size_t)n, sizeof *nodes, compare_nodes);
		*out = nodes;
		nodes = NULL;
	}
	free(sorted);
	free(nodes);
	return n;
}
