/* preset_sum: a cluster of several presets, such as "dgx-h100:4+dgx-a100:2", each with its number
 * of nodes. */
#include "topo/internal.h"
#include "topo/presets.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { TERMS_MAX = 16 };

struct sum {
	const struct topo_preset *boxes[TERMS_MAX]; /* all different */
	int nodes[TERMS_MAX];
	int n, total;
};

static int refuse_preset(const char *spec, const char *name, size_t len, struct err *e)
{
	char names[256] = "";
	size_t used = 0;
	for (int i = 0; topo_preset_at(i) && used < sizeof names; i++)
		used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", i ? ", " : "",
					 topo_preset_at(i)->name);
	return err_set(
		e, ERR_USAGE,
		"cluster \"%.200s\": there is no preset or file \"%.*s\"; use auto, local, slurm, "
		"NAME[:NODES][+NAME[:NODES]…] "
		"with NAME one of %s, or a file: PATH[:NODES] with a '/' in it or .xml, "
		".json or .txt at its end",
		spec, (int)(len > 100 ? 100 : len), name, names);
}

long topo_node_count_of(const char *text, size_t len)
{
	long n = 0;
	for (size_t i = 0; i < len; i++) {
		if (text[i] < '0' || text[i] > '9' || n > NODES_MAX)
			return -1;
		n = n * 10 + text[i] - '0';
	}
	return n < 1 || n > NODES_MAX ? -1 : n;
}

static int add_term(struct sum *s, const struct topo_preset *b, int nodes)
{
	int i = 0;
	while (i < s->n && s->boxes[i] != b)
		i++;
	if (i == TERMS_MAX)
		return -1;
	s->n += i == s->n;
	s->boxes[i] = b;
	s->nodes[i] += nodes;
	s->total += nodes;
	return 0;
}

static int read_sum(const char *spec, struct sum *s, struct err *e)
{
	for (const char *at = spec;; at++) {
		size_t len = strcspn(at, "+"), name = strcspn(at, "+:");
		const struct topo_preset *b = topo_preset_named(at, name);
		if (!b)
			return refuse_preset(spec, at, name, e);
		long nodes = name == len ? 1 : topo_node_count_of(at + name + 1, len - name - 1);
		if (nodes < 0)
			return err_set(
				e, ERR_USAGE,
				"cluster \"%.200s\": \"%.*s\" is not a number of nodes; give "
				"one from 1 to %d",
				spec, (int)(len - name - 1 > 100 ? 100 : len - name - 1),
				at + name + 1, NODES_MAX);
		if (s->total + nodes > NODES_MAX || add_term(s, b, (int)nodes))
			return err_set(e, ERR_USAGE,
				       "cluster \"%.200s\": more than %d nodes or %d kinds; "
				       "describe fewer",
				       spec, NODES_MAX, TERMS_MAX);
		at += len;
		if (!*at)
			return 0;
	}
}

static int fill_cluster(const struct sum *s, struct cluster *c, struct err *e)
{
	int at = 0;
	for (int k = 0; k < s->n; k++) {
		if (topo_preset_kind(s->boxes[k], &c->kinds[k], e))
			return -1;
		for (int i = 0; i < s->nodes[k]; i++, at++) {
			snprintf(c->nodes[at].name, sizeof c->nodes[at].name, "node%d", at);
			c->nodes[at].kind = k;
		}
	}
	return topo_fabric_build(c, s->boxes, e);
}

int topo_cluster_preset(const char *spec, struct cluster *out, struct err *e)
{
	struct sum s = { .n = 0 };
	struct cluster c;
	if (read_sum(spec, &s, e) || topo_cluster_alloc(spec, s.n, s.total, &c, e))
		return -1;
	if (fill_cluster(&s, &c, e)) {
		topo_cluster_free(&c);
		return -1;
	}
	*out = c;
	return 0;
}
