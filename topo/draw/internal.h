/* internal — what the drawings share; for this room and its tests alone. */
#ifndef MUSTER_TOPO_DRAW_INTERNAL_H
#define MUSTER_TOPO_DRAW_INTERNAL_H

#include "topo/draw/draw.h"

/*
 * group.c: a cluster as a tree in which equal neighbours are one group. Switches that hold the
 * same, NVLink domains that hold the same, nodes of one kind; what hangs below a group is what
 * hangs below each of its members.
 */
enum group_what { GROUP_SWITCH, GROUP_DOMAIN, GROUP_NODES };

struct group {
	enum group_what what;
	int *members; /* [n]: indices of switches, of the first nodes of domains, of nodes */
	int n;
	int kind; /* GROUP_NODES: of all of them */
	struct group **below;
	int n_below;
};

/* The groups at the top; NULL when there is no memory. */
struct group **topo_group_cluster(const struct cluster *c, int *n);
void topo_group_free(struct group **g, int n);
/* Nodes and devices below one member; NULL: not asked for. */
void topo_group_count(const struct cluster *c, const struct group *g, int *nodes, int *devices);
/* Their names in short, "node[0-127]", "leaf0"; a domain by the names of its nodes. */
void topo_group_name(const struct cluster *c, const struct group *g, struct buf *out);

/* names.c: names with ranges in brackets, as Slurm writes them: "n[1-3,07-09],login"; beyond `most`
 * bytes the rest is counted: ", 12 more". `name` gives the i-th. */
typedef const char *name_of(const struct cluster *c, int index);
void topo_names_fold(const struct cluster *c, name_of *name, const int *indices, int n, size_t most,
		     struct buf *out);
const char *topo_node_name(const struct cluster *c, int index);
const char *topo_switch_name(const struct cluster *c, int index);
int topo_nodes_of_kind(const struct cluster *c, int kind);
/* Text from outside, without what steers a terminal. */
void topo_put_plain(struct buf *out, const char *text);

/* odd.c: a line a kind of node that differs from the majority of its like: "n3: 3 GPUs where its
 * 15 like have 4: …". */
void topo_draw_odd(const struct cluster *c, struct buf *out);

/* matrix.c: how each device of a node reaches each other one, its cores and adapter, and what
 * the words mean. */
enum { MATRIX_MOST = 32 }; /* larger nodes are told in words */
void topo_draw_matrix(const struct node_kind *k, bool colour, struct buf *out);
/* The word of a link, "NV18", "PIX". */
void topo_link_name(const struct topo_link *l, char out[16]);
/* What a kind's devices are joined by: "NVSwitch, 450 GB/s a device" or "" when it is not known. */
void topo_links_summary(const struct node_kind *k, struct buf *out);
/* text.c: how a device is plugged in, "PCIe 5.0 × 16, NVLink 4"; nothing where it is not known. */
void topo_port_summary(const struct topo_device *d, struct buf *out);

/* Escape sequences of a terminal, "" without colour. */
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
const char *topo_ink(enum ink i, bool colour);
enum ink topo_link_ink(enum link_kind kind);

#endif
