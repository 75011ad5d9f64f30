#include "topo/draw/internal.h"

#include "base/human.h"

#include <stdio.h>
#include <string.h>

const char *topo_draw_colour(enum ink i, bool colour)
{
	static const char *const codes[] = {
		[INK_NONE] = "\033[0m",          [INK_BOLD] = "\033[1m",
		[INK_DIM] = "\033[38;5;245m",    [INK_DEVICE] = "\033[38;5;68m",
		[INK_DIRECT] = "\033[38;5;71m",  [INK_NEAR] = "\033[38;5;37m",
		[INK_FAR] = "\033[38;5;245m",    [INK_NIC] = "\033[38;5;172m",
		[INK_WARN] = "\033[1;38;5;172m",
	};
	return colour ? codes[i] : "";
}

enum ink topo_draw_link_colour(enum link_kind kind)
{
	if (kind == LINK_NVLINK || kind == LINK_NVSWITCH || kind == LINK_XGMI)
		return INK_DIRECT;
	return kind == LINK_PIX || kind == LINK_PXB ? INK_NEAR : INK_FAR;
}

void topo_link_name(const struct topo_link *l, char out[16])
{
	bool direct = l->kind == LINK_NVLINK || l->kind == LINK_NVSWITCH;
	if (l->lanes > 0 && (direct || l->kind == LINK_XGMI))
		snprintf(out, 16, "%s%d", direct ? "NV" : "XG", l->lanes);
	else
		snprintf(out, 16, "%s", topo_link_word(l->kind));
}

/* Explains the word for a link; the bandwidth follows it. */
static void explain(const struct topo_link *l, char out[80])
{
	static const char *const meanings[LINK_KINDS] = {
		[LINK_UNKNOWN] = "path unknown",
		[LINK_SYS] = "over the interconnect of the sockets",
		[LINK_NODE] = "over host bridges of a NUMA domain",
		[LINK_PHB] = "over a PCIe host bridge",
		[LINK_PXB] = "over several PCIe switches",
		[LINK_PIX] = "over one PCIe switch",
		[LINK_XGMI] = "xGMI, direct",
		[LINK_NVLINK] = "NVLink, direct",
		[LINK_NVSWITCH] = "NVSwitch",
	};
	if (l->lanes > 0 && l->kind == LINK_NVSWITCH)
		snprintf(out, 80, "%d NVLinks into the NVSwitch", l->lanes);
	else if (l->lanes > 0 && (l->kind == LINK_NVLINK || l->kind == LINK_XGMI))
		snprintf(out, 80, "%d %s%s, direct", l->lanes,
			 l->kind == LINK_XGMI ? "xGMI link" : "NVLink", human_s(l->lanes));
	else
		snprintf(out, 80, "%s", meanings[l->kind]);
}

/* One kind of link with one number of lanes, and the range of its bandwidths. */
struct sort {
	struct topo_link link;
	double least;
	int pairs;
};

enum { SORTS = 24, NAMED = 16 };

/* Finds the sorts of links in a node, nearest first. Returns their number. */
static int sorts_of(const struct node_kind *k, struct sort sorts[SORTS])
{
	int n = 0;
	for (int i = 0; i < k->devices; i++)
		for (int j = i + 1; j < k->devices; j++) {
			struct topo_link l = topo_cluster_link(k, i, j);
			int at = 0;
			while (at < n &&
			       (sorts[at].link.kind > l.kind ||
				(sorts[at].link.kind == l.kind && sorts[at].link.lanes > l.lanes)))
				at++;
			if (at < n && sorts[at].link.kind == l.kind &&
			    sorts[at].link.lanes == l.lanes) {
				sorts[at].pairs++;
				if (l.bandwidth > sorts[at].link.bandwidth)
					sorts[at].link.bandwidth = l.bandwidth;
				if (l.bandwidth < sorts[at].least)
					sorts[at].least = l.bandwidth;
			} else if (n < SORTS) {
				memmove(sorts + at + 1, sorts + at,
					(size_t)(n - at) * sizeof *sorts);
				sorts[at] = (struct sort){ l, l.bandwidth, 1 };
				n++;
			}
		}
	return n;
}

static void put_latency(struct buf *out, double seconds)
{
	char text[HUMAN];
	if (seconds > 0)
		buf_printf(out, ", %s", human_seconds(seconds, text));
}

static void put_rate(struct buf *out, double least, double most)
{
	char a[HUMAN], b[HUMAN];
	if (!(most > 0))
		buf_puts(out, "bandwidth unknown");
	else if (least < 0.99 * most && least > 0)
		buf_printf(out, "%s to %s", human_count(least, "B/s", a),
			   human_count(most, "B/s", b));
	else
		buf_puts(out, human_count(most, "B/s", a));
}

void topo_links_summary(const struct node_kind *k, struct buf *out)
{
	struct sort sorts[SORTS];
	char text[80], rate[HUMAN];
	int n = k->devices > 1 && k->devices <= MATRIX_MAX ? sorts_of(k, sorts) : 0;
	bool untold = n == 1 && sorts[0].link.kind == LINK_UNKNOWN;
	if (k->devices > 1 && (k->switched || !n || untold)) {
		buf_puts(out, k->switched ? "a switch connects all: " : "each other device: ");
		buf_printf(out, "%s",
			   k->link_bandwidth > 0 ? human_count(k->link_bandwidth, "B/s", rate)
						 : "unknown");
		put_latency(out, k->link_latency);
		return;
	}
	for (int i = 0; i < n; i++) {
		explain(&sorts[i].link, text);
		buf_printf(out, "%s%s: ", i ? "; " : "", text);
		put_rate(out, sorts[i].least, sorts[i].link.bandwidth);
		put_latency(out, sorts[i].link.latency);
	}
}

static void put_legend(const struct node_kind *k, bool colour, struct buf *out)
{
	struct sort sorts[SORTS];
	int n = sorts_of(k, sorts);
	for (int i = 0; i < n; i++) {
		char word[16], text[80];
		topo_link_name(&sorts[i].link, word);
		explain(&sorts[i].link, text);
		buf_printf(out, "    %s%-5s%s %s, ",
			   topo_draw_colour(topo_draw_link_colour(sorts[i].link.kind), colour),
			   word, topo_draw_colour(INK_NONE, colour), text);
		put_rate(out, sorts[i].least, sorts[i].link.bandwidth);
		buf_puts(out, " each way\n");
	}
}

/* Labels a device: its name, or its number if names are long or the columns are narrow. */
static const char *put_name(const struct node_kind *k, int i, char out[8])
{
	bool named = k->parts && *k->parts[i].name && strlen(k->parts[i].name) < 6 &&
		     k->devices <= NAMED;
	if (named)
		snprintf(out, 8, "%s", k->parts[i].name);
	else
		snprintf(out, 8, "%d", i % 1000);
	human_plain(out);
	return out;
}

static void put_row(const struct node_kind *k, int i, bool colour, struct buf *out)
{
	const struct topo_device *p = k->parts ? &k->parts[i] : NULL;
	char name[8];
	int width = k->devices <= NAMED ? 6 : 5;
	buf_printf(out, "    %s%-5s%s", topo_draw_colour(INK_DEVICE, colour), put_name(k, i, name),
		   topo_draw_colour(INK_NONE, colour));
	for (int j = 0; j < k->devices; j++) {
		struct topo_link l = topo_cluster_link(k, i, j);
		char word[16];
		topo_link_name(&l, word);
		buf_printf(out, "%s%*s%s",
			   topo_draw_colour(i == j ? INK_DIM : topo_draw_link_colour(l.kind),
					    colour),
			   width, i == j ? "X" : word, topo_draw_colour(INK_NONE, colour));
	}
	if (p) {
		if (p->numa >= 0)
			buf_printf(out, "%6d  ", p->numa);
		else
			buf_puts(out, "     -  ");
		char cpus[28];
		snprintf(cpus, sizeof cpus, "%.27s", *p->cpus ? p->cpus : "-");
		human_plain(cpus);
		buf_printf(out, "%-16s", cpus);
		if (p->nic >= 0 && p->nic < k->n_nics) {
			buf_printf(out, " %s", topo_draw_colour(INK_NIC, colour));
			topo_draw_plain(out, k->nics[p->nic].name);
			buf_printf(out, "%s (%s)", topo_draw_colour(INK_NONE, colour),
				   topo_link_word(p->nic_link));
		} else {
			buf_puts(out, " -");
		}
	}
	buf_puts(out, "\n");
}

void topo_draw_matrix(const struct node_kind *k, bool colour, struct buf *out)
{
	if (k->devices < 2 || k->devices > MATRIX_MAX || !k->links)
		return;
	buf_printf(out, "         ");
	for (int j = 0; j < k->devices; j++) {
		char name[8];
		buf_printf(out, "%s%*s%s", topo_draw_colour(INK_DEVICE, colour),
			   k->devices <= NAMED ? 6 : 5, put_name(k, j, name),
			   topo_draw_colour(INK_NONE, colour));
	}
	buf_printf(out, "%s\n", k->parts ? "  NUMA  cores            adapter" : "");
	for (int i = 0; i < k->devices; i++)
		put_row(k, i, colour, out);
	put_legend(k, colour, out);
}
