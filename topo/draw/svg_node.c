#include "topo/draw/svg.h"

#include "base/human.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
	HEAD = 64,
	PAD = 20,
	HUB_H = 46,
	DEVICE_H = 58,
	NIC_H = 40,
	CPU_H = 34,
	WIRE = 46, /* length of wires in a row of devices */
	NIC_W = 150,
	SIDE_MAX = 64, /* NICs at one side of a ring */
	GRID = 512 /* slots in a grid */,
	SLOT = 22,
	DOMAINS = 16,
	MOST = 72 /* devices in a row */
};

/* The card of a node kind: where it is, and where its devices and NICs are. */
struct card {
	struct svg *s;
	const struct node_kind *k;
	struct svg_box b; /* area inside the card */
	double *at;       /* centres of devices */
	int n_domains;
	bool wires; /* whether each device has a known place, and a wire to its NIC */
};

static int domain_of(const struct card *d, int numa)
{
	return numa >= 0 && numa < d->n_domains ? numa : 0;
}

static int domains_of(const struct node_kind *k)
{
	int most = k->numa > 0 ? k->numa - 1 : 0;
	for (int i = 0; k->parts && i < k->devices; i++)
		most = k->parts[i].numa > most ? k->parts[i].numa : most;
	return most < DOMAINS ? most + 1 : DOMAINS;
}

static void put_head(struct card *d, double y, int nodes)
{
	const struct node_kind *k = d->k;
	char a[HUMAN], b[HUMAN], c[HUMAN], line[256];
	double x = d->b.x, right_x = d->b.x + d->b.w;
	topo_svg_text(d->s, x, y + 32, "head", 60, k->name);
	snprintf(line, sizeof line, "%d node%s of %d x %.60s", nodes, human_s(nodes), k->devices,
		 k->device);
	topo_svg_text(d->s, x, y + 54, "sub", 100, line);
	struct buf right = BUF_INIT;
	if (k->device_memory > 0)
		buf_printf(&right, "%s", human_bytes(k->device_memory, a));
	if (k->device_bandwidth > 0)
		buf_printf(&right, " at %s", human_count(k->device_bandwidth, "B/s", b));
	if (k->device_flops > 0)
		buf_printf(&right, ", %s per device", human_count(k->device_flops, "FLOP/s", c));
	buf_printf(d->s->out,
		   "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" class=\"sub\">%s</text>\n",
		   right_x, y + 32, buf_str(&right));
	buf_clear(&right);
	if (k->net_bandwidth > 0)
		buf_printf(&right, "network %s per device",
			   human_count(k->net_bandwidth, "B/s", a));
	if (k->cores)
		buf_printf(&right, "%s%d core%s", right.len ? ", " : "", k->cores,
			   human_s(k->cores));
	if (k->memory > 0)
		buf_printf(&right, "%s%s of memory", right.len ? ", " : "",
			   human_bytes(k->memory, b));
	buf_printf(d->s->out,
		   "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"end\" class=\"sub\">%s</text>\n",
		   right_x, y + 54, buf_str(&right));
	buf_fini(&right);
}

static void put_nic(struct card *d, int nic, struct svg_box b)
{
	char rate[HUMAN];
	d->s->nic = true;
	topo_svg_rect(d->s, b, 6, SVG_NIC, NULL);
	bool told = d->k->nics[nic].bandwidth > 0 && b.w >= 76;
	topo_svg_text(d->s, b.x + b.w / 2, b.y + (told ? 17 : b.h / 2 + 5), "on", (int)(b.w / 8.5),
		      d->k->nics[nic].name);
	if (told)
		topo_svg_words(d->s, b.x + b.w / 2, b.y + 33, "onsmall", "%s",
			       human_count(d->k->nics[nic].bandwidth, "B/s", rate));
}

/* --- Rows: devices next to each other by domain, a hub above, NICs and cores below --- */

/* Counts the devices and the NICs of a domain. */
static void count_in(const struct card *d, int domain, int *devices, int *nics)
{
	*devices = *nics = 0;
	for (int i = 0; i < d->k->devices; i++)
		*devices += domain_of(d, d->k->parts ? d->k->parts[i].numa : 0) == domain;
	for (int i = 0; i < d->k->n_nics; i++)
		*nics += domain_of(d, d->k->nics[i].numa) == domain;
}

/* The x coordinate of a NIC: the middle of the devices in its domain that use it; `otherwise` if
 * there are none. */
static double wanted_x(const struct card *d, int nic, double otherwise)
{
	double sum = 0;
	int n = 0;
	for (int i = 0; i < d->k->devices; i++)
		if (d->wires && d->k->parts[i].nic == nic &&
		    domain_of(d, d->k->parts[i].numa) == domain_of(d, d->k->nics[nic].numa)) {
			sum += d->at[2 * i];
			n++;
		}
	return n ? sum / n : otherwise;
}

static void put_cores(struct card *d, int domain, struct svg_box b)
{
	const char *cpus = NULL;
	char text[256];
	bool told = !d->wires;
	for (int i = 0; !told && i < d->k->devices; i++)
		told = d->k->parts[i].numa >= 0;
	/* The cores that all devices of the domain share. Slots on cores have different ones. */
	for (int i = 0; d->k->parts && i < d->k->devices; i++)
		if (domain_of(d, d->k->parts[i].numa) == domain && *d->k->parts[i].cpus) {
			if (cpus && strcmp(cpus, d->k->parts[i].cpus)) {
				cpus = NULL;
				break;
			}
			cpus = d->k->parts[i].cpus;
		}
	if (!domain && !told)
		snprintf(text, sizeof text, "NUMA domains unknown");
	else
		snprintf(text, sizeof text, cpus ? "NUMA %d, cores %s" : "NUMA %d", domain, cpus);
	topo_svg_rect(d->s, b, 6, "#e3e8ee", NULL);
	topo_svg_text(d->s, b.x + b.w / 2, b.y + b.h / 2 + 5, "small", (int)(b.w / 7.5), text);
}

static void put_row_nics(struct card *d, int domain, struct svg_box panel, double y, int n)
{
	double w = n ? panel.w / n - 8 : 0, cursor = panel.x + 4;
	int left = n;
	w = w > 118 ? 118 : w;
	for (int i = 0; i < d->k->n_nics; i++) {
		if (domain_of(d, d->k->nics[i].numa) != domain)
			continue;
		double x = wanted_x(d, i, cursor + w / 2) - w / 2,
		       most = panel.x + panel.w - 4 - left * (w + 4);
		x = x > most ? most : x;
		x = x < cursor ? cursor : x;
		cursor = x + w + 4;
		left--;
		for (int v = 0; d->wires && v < d->k->devices; v++)
			if (d->k->parts[v].nic == i) {
				topo_svg_line(d->s, d->at[2 * v], d->at[2 * v + 1] + DEVICE_H / 2.0,
					      x + w / 2, y, 3, SVG_PCIE);
				d->s->pcie = true;
			}
		put_nic(d, i, (struct svg_box){ x, y, w, NIC_H });
	}
}

/* Places the panels of the domains next to each other. An empty domain gets no width if another one
 * is not empty. */
static void lay_panels(const struct card *d, double top, double height,
		       struct svg_box panels[DOMAINS])
{
	double gap = 16, x = d->b.x;
	int weight[DOMAINS], all = 0, shown = 0;
	for (int n = 0; n < d->n_domains; n++) {
		int nics;
		count_in(d, n, &weight[n], &nics);
		weight[n] += nics > 0 && !weight[n];
		all += weight[n];
		shown += weight[n] > 0;
	}
	for (int n = 0; n < d->n_domains; n++) {
		double w = weight[n] ? (d->b.w - gap * (shown - 1)) * weight[n] / all : 0;
		panels[n] = (struct svg_box){ x, top, w, height };
		x += w > 0 ? w + gap : 0;
	}
}

static void place_row(struct card *d, int domain, struct svg_box panel, double y, double *width)
{
	int devices, nics, seen = 0;
	count_in(d, domain, &devices, &nics);
	double pitch = devices ? (panel.w - 12) / devices : 0,
	       w = pitch - 10 > 130 ? 130 : pitch - 10;
	for (int i = 0; i < d->k->devices; i++)
		if (domain_of(d, d->k->parts[i].numa) == domain) {
			d->at[2 * i] = panel.x + 6 + (seen++ + 0.5) * pitch;
			d->at[2 * i + 1] = y + DEVICE_H / 2.0;
			width[i] = w;
		}
}

/* Draws the hub. Its wires end at the upper edges of the devices. */
static void put_row_hub(struct card *d)
{
	for (int i = 0; i < d->k->devices; i++)
		d->at[2 * i + 1] -= DEVICE_H / 2.0;
	topo_svg_hub(d->s, d->k, (struct svg_box){ d->b.x, d->b.y, d->b.w, HUB_H }, d->at);
}

static double put_rows(struct card *d)
{
	bool hub = topo_svg_has_hub(d->k);
	double top = d->b.y + (hub ? HUB_H + WIRE - 12 : 0), y = top + 12, width[MOST];
	double height = 12 + DEVICE_H + (d->k->n_nics ? WIRE + NIC_H : 0) + 14 + CPU_H + 6;
	struct svg_box panels[DOMAINS];
	lay_panels(d, top, height, panels);
	for (int n = 0; n < d->n_domains; n++)
		if (panels[n].w > 0) {
			topo_svg_rect(d->s, panels[n], 10, SVG_PANEL, SVG_EDGE);
			put_cores(d, n,
				  (struct svg_box){ panels[n].x + 6, top + height - CPU_H - 6,
						    panels[n].w - 12, CPU_H });
			place_row(d, n, panels[n], y, width);
		}
	for (int n = 0; n < d->n_domains; n++) {
		int devices, nics;
		count_in(d, n, &devices, &nics);
		put_row_nics(d, n, panels[n], y + DEVICE_H + WIRE, nics);
	}
	for (int i = 0; i < d->k->devices; i++)
		topo_svg_device(d->s, d->k, i,
				(struct svg_box){ d->at[2 * i] - width[i] / 2, y, width[i],
						  DEVICE_H });
	if (hub)
		put_row_hub(d);
	return top + height - d->b.y;
}

/* --- The ring: direct links between devices, NICs at both sides --- */

/* Orders the NICs of one side by the height of their devices. `at` and `which` have room for
 * SIDE_MAX. Returns the number of NICs. */
static int order_side(const struct card *d, int side, double height, double *at, int *which)
{
	int n = 0;
	for (int i = 0; i < d->k->n_nics && n < SIDE_MAX; i++) {
		double y = 0, x = 0;
		int users = 0, put = n;
		for (int v = 0; v < d->k->devices; v++)
			if (d->k->parts[v].nic == i) {
				y += d->at[2 * v + 1];
				x += d->at[2 * v];
				users++;
			}
		double middle = d->b.x + d->b.w / 2;
		int numa = d->k->nics[i].numa;
		/* A NIC of devices on both sides is on the side of its own domain. */
		bool right = users && fabs(x / users - middle) > 1 ? x / users > middle
			     : numa >= 0 && d->n_domains > 1       ? numa != d->k->parts[0].numa
								   : i % 2;
		if (right != side)
			continue;
		y = users ? y / users : d->b.y + height;
		for (; put > 0 && at[put - 1] > y; put--) {
			at[put] = at[put - 1];
			which[put] = which[put - 1];
		}
		at[put] = y;
		which[put] = i;
		n++;
	}
	return n;
}

static void put_side(struct card *d, int side, double x, double towards, double height)
{
	double at[SIDE_MAX], least = d->b.y + 10;
	int which[SIDE_MAX], n = order_side(d, side, height, at, which);
	double room = n ? (height - CPU_H - 24) / n : 0, h = room - 6 < NIC_H ? room - 6 : NIC_H;
	for (int i = 0; i < n; i++) {
		double most = d->b.y + height - CPU_H - 14 - (n - i) * (h + 6), top = at[i] - h / 2;
		top = top > most ? most : top;
		top = top < least ? least : top;
		least = top + h + 6;
		for (int v = 0; v < d->k->devices; v++)
			if (d->k->parts[v].nic == which[i]) {
				topo_svg_line(d->s, towards, top + h / 2,
					      d->at[2 * v] + (side ? 48 : -48), d->at[2 * v + 1], 3,
					      SVG_PCIE);
				d->s->pcie = true;
			}
		put_nic(d, which[i], (struct svg_box){ x, top, NIC_W, h });
	}
}

/* The domains with devices; that of device 0 is the first. Returns their number. */
static int held_domains(const struct card *d, int held[DOMAINS])
{
	int n = 1;
	held[0] = domain_of(d, d->k->parts[0].numa);
	for (int i = 0; i < d->n_domains; i++) {
		int devices, nics;
		count_in(d, i, &devices, &nics);
		if (devices && i != held[0])
			held[n++] = i;
	}
	return n;
}

/* The panels behind a ring: one for each of two domains that have a half of it each, otherwise one
 * for all. The bars of the domains are at the bottom. */
static void put_ring_panels(struct card *d, double height)
{
	int held[DOMAINS], n = held_domains(d, held), left;
	bool halves = n == 2 && topo_svg_two_halves(d->k, &left);
	double w = halves ? d->b.w / 2 - 8 : d->b.w;
	for (int i = 0; i < (halves ? 2 : 1); i++)
		topo_svg_rect(d->s, (struct svg_box){ d->b.x + i * (w + 16), d->b.y, w, height },
			      10, SVG_PANEL, SVG_EDGE);
	for (int i = 0; i < n; i++) {
		double pitch = halves ? w + 16 : (w - 8) / n;
		put_cores(d, held[i],
			  (struct svg_box){ d->b.x + 8 + i * pitch, d->b.y + height - CPU_H - 6,
					    halves ? w - 16 : pitch - 8, CPU_H });
	}
}

static double put_ring(struct card *d)
{
	bool many = d->k->devices > 8;
	double middle = d->b.x + d->b.w / 2, height = many ? 560 : 440, ring_w = many ? 860 : 620;
	struct svg_box ring = { middle - ring_w / 2, d->b.y + 34, ring_w, height - 108 };
	put_ring_panels(d, height);
	topo_svg_ring(d->s, d->k, ring, d->at);
	/* Wires end behind the devices. */
	put_side(d, 0, d->b.x + 60, d->b.x + 60 + NIC_W, height);
	put_side(d, 1, d->b.x + d->b.w - 60 - NIC_W, d->b.x + d->b.w - 60 - NIC_W, height);
	topo_svg_ring_devices(d->s, d->k, d->at);
	return height;
}

/* --- The grid: slots that do not differ, such as cores --- */

static double put_grid(struct card *d)
{
	int each = (d->k->devices + d->n_domains - 1) / d->n_domains;
	double w = (d->b.w - 16.0 * (d->n_domains - 1)) / d->n_domains;
	int columns = (int)((w - 24) / (SLOT + 5)),
	    shown = each < GRID / d->n_domains ? each : GRID / d->n_domains;
	columns = columns < 1 ? 1 : columns;
	double height = (shown + columns - 1) / columns * (SLOT + 5) + 24 + CPU_H +
			(d->k->n_nics ? NIC_H + 14 : 0) + 6;
	for (int n = 0; n < d->n_domains; n++) {
		struct svg_box panel = { d->b.x + n * (w + 16), d->b.y, w, height };
		int devices, nics,
			mine = d->k->devices - n * each < shown ? d->k->devices - n * each : shown;
		topo_svg_rect(d->s, panel, 10, SVG_PANEL, SVG_EDGE);
		for (int i = 0; i < mine; i++)
			topo_svg_rect(d->s,
				      (struct svg_box){ panel.x + 12 + i % columns * (SLOT + 5),
							panel.y + 12 + i / columns * (SLOT + 5),
							SLOT, SLOT },
				      4, SVG_DEVICE, NULL);
		count_in(d, n, &devices, &nics);
		if (d->k->n_nics)
			put_row_nics(d, n, (struct svg_box){ panel.x + 8, panel.y, w - 16, height },
				     panel.y + height - CPU_H - NIC_H - 16, nics);
		put_cores(d, n,
			  (struct svg_box){ panel.x + 6, panel.y + panel.h - CPU_H - 6, w - 12,
					    CPU_H });
	}
	return height;
}

static bool has_direct(const struct node_kind *k)
{
	for (int i = 0; k->links && i < k->devices * k->devices; i++)
		if (k->links[i].kind == LINK_NVLINK || k->links[i].kind == LINK_XGMI)
			return true;
	return false;
}

double topo_svg_kind(struct svg *s, const struct node_kind *k, int nodes, double y)
{
	struct buf inside = BUF_INIT, *out = s->out;
	double lift = nodes > 1 ? 12 : 0; /* room for the cards behind it */
	struct card d = { .s = s,
			  .k = k,
			  .n_domains = domains_of(k),
			  .at = calloc(2 * (size_t)k->devices + 2, sizeof *d.at),
			  .b = { SVG_MARGIN + PAD, y + lift + HEAD + 12,
				 SVG_WIDTH - 2 * (SVG_MARGIN + PAD) - lift, 0 } };
	if (!d.at) {
		out->failed = true;
		return 0;
	}
	s->out = &inside;
	put_head(&d, y + lift, nodes);
	d.wires = k->parts && k->devices <= MOST && strcmp(k->device, "cpu");
	double height = !d.wires ? put_grid(&d)
			: !k->switched && has_direct(k) && k->devices <= RING_DEVICES
				? put_ring(&d)
				: put_rows(&d);
	if (!k->switched && (has_direct(k) || (d.wires && topo_svg_has_hub(k)))) {
		struct buf links = BUF_INIT;
		topo_links_summary(k, &links);
		height += 2 + topo_svg_paragraph(s, d.b.x, d.b.y + height + 24, "sub", d.b.w,
						 buf_str(&links));
		buf_fini(&links);
	}
	if (*k->unsaid) {
		char text[sizeof k->unsaid + 16];
		snprintf(text, sizeof text, "missing: %s", k->unsaid);
		height += 2 + topo_svg_paragraph(s, d.b.x, d.b.y + height + 24, "sub", d.b.w, text);
	}
	s->out = out;
	struct svg_box card = { SVG_MARGIN, y + lift, SVG_WIDTH - 2 * SVG_MARGIN - lift,
				HEAD + 12 + height + PAD };
	if (nodes > 1)
		topo_svg_stack(s, card, 14, "#fff", SVG_EDGE);
	else
		topo_svg_rect(s, card, 14, "#fff", SVG_EDGE);
	buf_add(out, buf_str(&inside), inside.len);
	out->failed |= buf_failed(&inside);
	buf_fini(&inside);
	free(d.at);
	return lift + card.h;
}
