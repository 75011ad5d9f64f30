/* internal — declarations for the files of topo/draw/ and their tests only. */
#ifndef MUSTER_TOPO_DRAW_INTERNAL_H
#define MUSTER_TOPO_DRAW_INTERNAL_H

#include "topo/draw/draw.h"

/*
 * group.c: a cluster as a tree in which equal neighbours form one group: switches with equal
 * children, NVLink domains with equal nodes, and nodes of one kind. The children of a group are the
 * children of each of its members.
 */
enum group_what { GROUP_SWITCH, GROUP_DOMAIN, GROUP_NODES };

struct group {
	enum group_what what;
	int *members; /* [n]: indices of switches, of the first nodes of domains, of nodes */
	int n;
	int kind; /* GROUP_NODES: the kind of all members */
	struct group **below;
	int n_below;
};

/* The top-level groups; NULL without memory. */
struct group **topo_group_cluster(const struct cluster *c, int *n);
void topo_group_free(struct group **g, int n);
/* Counts the nodes and devices below one member; either pointer may be NULL. */
void topo_group_count(const struct cluster *c, const struct group *g, int *nodes, int *devices);
/* The names of the members, compressed: "node[0-127]", "leaf0". A domain is named after its
 * nodes. */
void topo_group_name(const struct cluster *c, const struct group *g, struct buf *out);

/* names.c: names with ranges in brackets, as Slurm writes them: "n[1-3,07-09],login". After `most`
 * bytes the remaining names are counted: ", 12 more". name(c, i) returns the i-th name. */
typedef const char *name_of(const struct cluster *c, int index);
void topo_names_fold(const struct cluster *c, name_of *name, const int *indices, int n, size_t most,
		     struct buf *out);
const char *topo_node_name(const struct cluster *c, int index);
const char *topo_switch_name(const struct cluster *c, int index);
int topo_nodes_of_kind(const struct cluster *c, int kind);
/* Appends text from outside without control characters. */
void topo_draw_plain(struct buf *out, const char *text);

/* outliers.c: one line per kind of node that differs from the majority of similar nodes: "n3: 3
 * GPUs where 15 similar nodes have 4: …". */
void topo_draw_outliers(const struct cluster *c, struct buf *out);

/* matrix.c: the path between any two devices of a node, their cores and adapters, and a legend. */
enum { MATRIX_MAX = 32 }; /* larger nodes are described in words */
void topo_draw_matrix(const struct node_kind *k, bool colour, struct buf *out);
/* The name of a link: "NV18", "PIX". */
void topo_link_name(const struct topo_link *l, char out[16]);
/* How the devices of a kind are connected: "NVSwitch, 450 GB/s per device"; "" if unknown. */
void topo_links_summary(const struct node_kind *k, struct buf *out);
/* text.c: the ports of a device, "PCIe 5.0 × 16, NVLink 4"; "" if unknown. */
void topo_port_summary(const struct topo_device *d, struct buf *out);

/* The terminal's escape sequence for a style; "" without colour. */
enum ink {
	INK_NONE,
	INK_BOLD,
	INK_DIM,
	INK_DEVICE,
	INK_DIRECT,
	INK_NEAR,
	INK_FAR,
	INK_NIC,
	INK_WARN
};
const char *topo_draw_colour(enum ink i, bool colour);
enum ink topo_draw_link_colour(enum link_kind kind);

#endif
