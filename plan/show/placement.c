#include "plan/show/placement.h"

#include "base/human.h"

#include <stdio.h>
#include <string.h>

enum { SPARES_NAMED = 4 };

/* The name of the worst link between neighbours on a node. */
static const char *const link_names[LINK_KINDS] = {
	[LINK_UNKNOWN] = "node",
	[LINK_SYS] = "PCIe between sockets",
	[LINK_NODE] = "PCIe over the CPU",
	[LINK_PHB] = "PCIe over the CPU",
	[LINK_PXB] = "PCIe switches",
	[LINK_PIX] = "PCIe switch",
	[LINK_XGMI] = "XGMI",
	[LINK_NVLINK] = "NVLink",
	[LINK_NVSWITCH] = "NVSwitch",
};

static bool has_traffic(const struct place_links *l)
{
	return l->span.ranks > 1 && l->bytes > 0;
}

static void append_text(char *out, size_t size, const char *text)
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
		append_text(out, size, link_names[l->inside]);
	if (l->fabric)
		append_text(out, size, "NVLink fabric");
	if (!l->hops)
		return;
	if (l->rails)
		append_text(out, size, "rails");
	snprintf(levels, sizeof levels, "%d levels of switches", l->hops);
	append_text(out, size,
		    !c->switches   ? "network"
		    : l->hops == 1 ? "leaf"
		    : l->hops == 2 ? "spine"
				   : levels);
}

static double bandwidth_of(const struct place_links *l)
{
	return l->hops ? l->span.across.bandwidth : l->span.inside.bandwidth;
}

/* Prints how this map compares with all others. */
static void print_note(const struct placement *s, struct buf *out)
{
	if (s->fixed)
		buf_printf(out, "Slurm's block order%s, as the job's settings ask\n",
			   s->is_block ? "" : " of whole tp groups");
	else if (s->proven)
		buf_printf(out, "%sno map costs less\n",
			   s->is_block ? "Slurm's block order: " : "");
	else
		buf_printf(out,
			   s->is_block ? "Slurm's block order: none of %d maps tried costs less\n"
				       : "the best of %d maps tried\n",
			   s->tried);
}

static void print_costs(const struct placement *s, struct buf *out)
{
	char time[HUMAN];
	buf_printf(
		out,
		"\nPlacement: the time per step that ranks wait for transfers, roughly\n  this map "
		"            %9s  ",
		human_seconds(s->cost.total, time));
	print_note(s, out);
	if (!s->is_block)
		buf_printf(out, "  Slurm's block order  %9s\n",
			   human_seconds(s->block.total, time));
	buf_printf(out, "  worst map tried      %9s\n", human_seconds(s->worst.total, time));
}

static void print_groups(const struct cluster *c, const struct placement *s, struct buf *out)
{
	buf_printf(out, "  %-14s %5s %5s  %-22s %9s %8s %8s\n", "group of", "ranks", "nodes",
		   "over", "bandwidth", "per step", "waited");
	for (int k = 0; k < GROUP_KINDS; k++) {
		const struct place_links *l = &s->links[k];
		char over[96], rate[HUMAN], time[HUMAN], waited[HUMAN];
		if (!has_traffic(l))
			continue;
		name_links(c, l, over, sizeof over);
		buf_printf(out, "  %-14s %5d %5d  %-22s %9s %8s %8s\n",
			   place_group_word((enum group_kind)k), l->span.ranks, l->span.nodes, over,
			   human_count(bandwidth_of(l), "B/s", rate),
			   human_seconds(l->seconds, time), human_seconds(l->waited, waited));
	}
}

static void print_spares(const struct cluster *c, const struct placement *s, struct buf *out)
{
	if (s->n_spares) {
		buf_printf(out, "  spare node%s: ", human_s(s->n_spares));
		for (int i = 0; i < s->n_spares && i < SPARES_NAMED; i++)
			buf_printf(out, "%s%s", i ? ", " : "", c->nodes[s->spares[i]].name);
		if (s->n_spares > SPARES_NAMED)
			buf_printf(out, " and %d more", s->n_spares - SPARES_NAMED);
		buf_puts(out, "\n");
	}
	if (s->idle)
		buf_printf(out, "  %d device%s free on nodes that hold ranks\n", s->idle,
			   s->idle == 1 ? " stays" : "s stay");
}

void show_placement_print(const struct cluster *c, const struct plan *p, struct buf *out)
{
	int kinds = 0;
	for (int k = 0; k < GROUP_KINDS; k++)
		kinds += has_traffic(&p->place.links[k]);
	if (!kinds || (c->n_nodes == 1 && !c->kinds[0].links))
		return;
	print_costs(&p->place, out);
	print_groups(c, &p->place, out);
	print_spares(c, &p->place, out);
}

json_t *show_placement_json(const struct cluster *c, const struct plan *p)
{
	const struct placement *s = &p->place;
	json_t *groups = json_array(), *spares = json_array();
	for (int k = 0; k < GROUP_KINDS; k++) {
		const struct place_links *l = &s->links[k];
		if (has_traffic(l))
			json_array_append_new(
				groups,
				json_pack("{s:s, s:i, s:i, s:i, s:s, s:i, s:b, s:b, s:f, s:f, s:f, "
					  "s:f, s:f}",
					  "kind", place_group_word((enum group_kind)k), "ranks",
					  l->span.ranks, "nodes", l->span.nodes, "per_node",
					  l->span.per_node, "inside",
					  l->inside == LINK_SELF ? "" : topo_link_word(l->inside),
					  "hops", l->hops, "rails", (int)l->rails, "fabric",
					  (int)l->fabric, "bandwidth", bandwidth_of(l), "latency",
					  l->hops ? l->span.across.latency : l->span.inside.latency,
					  "bytes", l->bytes, "seconds", l->seconds, "waited",
					  l->waited));
	}
	for (int i = 0; i < s->n_spares; i++)
		json_array_append_new(spares, json_string(c->nodes[s->spares[i]].name));
	return json_pack("{s:s, s:f, s:f, s:f, s:o, s:o}", "order",
			 s->is_block ? "block" : "placed", "seconds", s->cost.total,
			 "block_seconds", s->block.total, "worst_seconds", s->worst.total, "spares",
			 spares, "groups", groups);
}
