/*
 * svg — declarations shared by the files that draw the SVG picture; for topo/draw/ only.
 *
 *     svg.c          the document, its title and key, text and shapes
 *     svg_fabric.c   switches above nodes, equal ones as a stack
 *     svg_node.c     a kind of node: its layout, NUMA domains and adapters
 *     svg_links.c    its devices and their connections: a hub, a ring, a row or a grid
 */
#ifndef MUSTER_TOPO_DRAW_SVG_H
#define MUSTER_TOPO_DRAW_SVG_H

#include "topo/draw/internal.h"

/* Pixels of a slide. */
enum { SVG_WIDTH = 1600, SVG_MARGIN = 50 };

/* The palette is that of the pipeline pictures (plan/show/draw_timeline.h). */
#define SVG_DEVICE       "#1f5fa8"
#define SVG_DEVICE_LIGHT "#8ab8e6"
#define SVG_DIRECT       "#2a7d3f"
#define SVG_DIRECT_LIGHT "#93cfa0"
#define SVG_SWITCH       "#137a7a"
#define SVG_SWITCH_LIGHT "#86cccb"
#define SVG_NIC          "#b0641a"
#define SVG_NIC_LIGHT    "#e6bd8c"
#define SVG_PCIE         "#999999"
#define SVG_PANEL        "#f3f5f8"
#define SVG_EDGE         "#cbd3dc"

struct svg {
	const struct cluster *c;
	struct buf *out;
	bool nvlink, xgmi, hub, nic, pcie, fabric; /* symbols that the key must explain */
};

struct svg_box {
	double x, y, w, h;
};

/* Text from outside, at most `most` characters. */
void topo_svg_text(struct svg *s, double x, double y, const char *class, int most,
		   const char *text);
/* Text in lines that end between words and are at most `width` wide. Returns the height. */
double topo_svg_paragraph(struct svg *s, double x, double y, const char *class, double width,
			  const char *text);
/* Formatted text of muster itself. */
void topo_svg_words(struct svg *s, double x, double y, const char *class, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* Text for a tooltip, as a <title>. */
void topo_svg_title(struct svg *s, const char *text);
/* A rounded box; stroke may be NULL. */
void topo_svg_rect(struct svg *s, struct svg_box b, double round, const char *fill,
		   const char *stroke);
/* A stack of three boxes, for several equal things. */
void topo_svg_stack(struct svg *s, struct svg_box b, double round, const char *fill,
		    const char *stroke);
void topo_svg_line(struct svg *s, double x1, double y1, double x2, double y2, double width,
		   const char *stroke);

/* Each draws at y and returns the height that it used. */
double topo_svg_fabric(struct svg *s, double y);
double topo_svg_kind(struct svg *s, const struct node_kind *k, int nodes, double y);

/* svg_links.c: places the devices of a kind, at most RING_DEVICES, as a ring inside b and draws their
 * links. Sets the centre of device i: at[2 × i], at[2 × i + 1]. Devices are drawn by
 * topo_svg_ring_devices, above what was drawn since. */
enum { RING_DEVICES = 16 };
void topo_svg_ring(struct svg *s, const struct node_kind *k, struct svg_box b, double *at);
void topo_svg_ring_devices(struct svg *s, const struct node_kind *k, const double *at);
/* Whether the ring has a half for each of two domains; *left: the devices of the first. */
bool topo_svg_two_halves(const struct node_kind *k, int *left);
/* Draws the switch fabrics as bars inside b, with wires to their devices. */
bool topo_svg_has_hub(const struct node_kind *k);
void topo_svg_hub(struct svg *s, const struct node_kind *k, struct svg_box b, const double *at);
void topo_svg_device(struct svg *s, const struct node_kind *k, int device, struct svg_box b);

#endif
