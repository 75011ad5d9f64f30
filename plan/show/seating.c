#include "plan/show/seating.h"

#include "base/human.h"

#include <stdio.h>
#include <string.h>

enum { SPARES_NAMED = 4 };

/* Of the worst link between neighbours on a node. */
static const char *const link_names[LINK_KINDS] = {
	[LINK_UNKNOWN] = "node", [LINK_SYS] = "PCIe between sockets", [LINK_NODE] = "PCIe over the CPU", [LINK_PHB] = "PCIe over the CPU",
	[LINK_PXB] = "PCIe switches", [LINK_PIX] = "PCIe switch", [LINK_XGMI] = "XGMI", [LINK_NVLINK] = "NVLink", [LINK_NVSWITCH] = "NVSwitch",
};

static bool moves(const struct place_links *l)
{
	return l->span.ranks > 1 && l->bytes > 0;
}

static void add(char *out, size_t size, const char *text)
{
	size_t used = strlen(out);
	snprintf(out + used, size - used, "%s%s", used ? ", " : "", text);
}

/* "NVSwitch, rails, spine" */
static void name_links(const struct cluster *c, const struct place_links *l, char *out, size_t size)
{
	char levels[32];
	*out = '\0';
	if (l->inside != LINK_SELF)
		add(out, size, link_names[l->inside]);
	if (l->fabric)
		add(out, size, "NVLink fabric");
	if (!l->hops)
		return;
	if (l->rails)
		add(out, size, "rails");
	snprintf(levels, sizeof levels, "%d levels of switches", l->hops);
	add(out, size, !c->switches ? "network" : l->hops == 1 ? "leaf" : l->hops == 2 ? "spine" : levels);
}

static double bandwidth_of(const struct place_links *l)
{
	return l->hops ? l->span.across.bandwidth : l->span.inside.bandwidth;
}

static void print_head(const struct plan *p, struct buf *out)
{
	const struct placement *s = &p->place;
	char mine[HUMAN], block[HUMAN], worst[HUMAN];
	human_seconds(s->worst.total, worst);
	buf_printf(out, "\nPlacement: about %s of transfers show in a step", human_seconds(s->cost.total, mine));
	if (s->is_block)
		buf_printf(out, " in Slurm's block order, %s in the worst order tried\n", worst);
	else
		buf_printf(out, "; in Slurm's block order %s, in the worst order tried %s\n", human_seconds(s->block.total, block), worst);
}

static void print_spares(const struct cluster *c, const struct plan *p, struct buf *out)
{
	const struct placement *s = &p->place;
	if (!s->n_spares)
		return;
	buf_puts(out, "  free: ");
	for (int i = 0; i < s->n_spares && i < SPARES_NAMED; i++)
		buf_printf(out, "%s%s", i ? ", " : "", c->nodes[s->spares[i]].name);
	if (s->n_spares > SPARES_NAMED)
		buf_printf(out, " and %d more nodes", s->n_spares - SPARES_NAMED);
	buf_puts(out, "\n");
}

void seating_print(const struct cluster *c, const struct plan *p, struct buf *out)
{
	int kinds = 0;
	for (int k = 0; k < GROUP_KINDS; k++)
		kinds += moves(&p->place.links[k]);
	if (!kinds || (c->n_nodes == 1 && !c->kinds[0].links))
		return;
	print_head(p, out);
	buf_printf(out, "  %-15s %5s %6s  %-31s %10s %9s\n", "group of", "ranks", "nodes", "over", "each", "a step");
	for (int k = 0; k < GROUP_KINDS; k++) {
		const struct place_links *l = &p->place.links[k];
		char over[96], rate[HUMAN], time[HUMAN];
		if (!moves(l))
			continue;
		name_links(c, l, over, sizeof over);
		buf_printf(out, "  %-15s %5d %6d  %-31s %10s %9s\n", group_word((enum group_kind)k), l->span.ranks, l->span.nodes, over,
			   human_count(bandwidth_of(l), "B/s", rate), human_seconds(l->seconds, time));
	}
	print_spares(c, p, out);
}

json_t *seating_json(const struct cluster *c, const struct plan *p)
{
	const struct placement *s = &p->place;
	json_t *groups = json_array(), *spares = json_array();
	for (int k = 0; k < GROUP_KINDS; k++) {
		const struct place_links *l = &s->links[k];
		if (moves(l))
			json_array_append_new(groups, json_pack(
				"{s:s, s:i, s:i, s:i, s:s, s:i, s:b, s:b, s:f, s:f, s:f, s:f}", "kind", group_word((enum group_kind)k), "ranks", l->span.ranks,
				"nodes", l->span.nodes, "per_node", l->span.per_node, "inside", l->inside == LINK_SELF ? "" : link_word(l->inside),
				"hops", l->hops, "rails", (int)l->rails, "fabric", (int)l->fabric, "bandwidth", bandwidth_of(l), "latency",
				l->hops ? l->span.across.latency : l->span.inside.latency, "bytes", l->bytes, "seconds", l->seconds));
	}
	for (int i = 0; i < s->n_spares; i++)
		json_array_append_new(spares, json_string(c->nodes[s->spares[i]].name));
	return json_pack("{s:s, s:f, s:f, s:f, s:o, s:o}", "order", s->is_block ? "block" : "placed", "seconds", s->cost.total, "block_seconds",
			 s->block.total, "worst_seconds", s->worst.total, "spares", spares, "groups", groups);
}
